package kcptest

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WantReason fails the test unless err is a Status with that reason and a message.
func WantReason(t testing.TB, err error, reason metav1.StatusReason) {
	t.Helper()
	status := &apierrors.StatusError{}
	switch {
	case !errors.As(err, &status) || status.ErrStatus.Reason != reason:
		t.Errorf("got %v, want a Status with reason %s", err, reason)
	case status.ErrStatus.Message == "":
		t.Errorf("the Status with reason %s has no message", reason)
	}
}
