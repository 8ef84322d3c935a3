package kcptest

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WantReason fails the test unless err is a Status of that reason that also says something.
func WantReason(t testing.TB, err error, reason metav1.StatusReason) {
	t.Helper()
	status := &apierrors.StatusError{}
	switch {
	case !errors.As(err, &status) || status.ErrStatus.Reason != reason:
		t.Errorf("got %v, want a status of reason %s", err, reason)
	case status.ErrStatus.Message == "":
		t.Errorf("the status of reason %s says nothing", reason)
	}
}
