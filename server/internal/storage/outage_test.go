package storage

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestClientsRetryWhileEtcdDeniesAccessToTheServer(t *testing.T) {
	for name, cause := range map[string]error{"an error of the client": rpctypes.ErrPermissionDenied, "an error of a call": rpctypes.ErrGRPCUserNotFound} {
		for _, answer := range []time.Duration{0, firstAnswer} {
			_, lost, err := retry(t.Context(), answer, func(context.Context) (int, error) { return 0, cause })
			if !apierrors.IsServiceUnavailable(err) || lost != nil || !errors.Is(err, cause) {
				t.Errorf("%s: %v", name, err)
			}
			if _, retries := apierrors.SuggestsClientDelay(err); !retries {
				t.Errorf("%s: clients do not try again", name)
			}
		}
	}
	// A write that may have been applied must not be reported as rejected.
	calls := 0
	_, _, err := retry(t.Context(), firstAnswer, func(context.Context) (int, error) {
		if calls++; calls == 1 {
			return 0, status.Error(codes.Unavailable, "connection refused")
		}
		return 0, rpctypes.ErrPermissionDenied
	})
	if !apierrors.IsTimeout(err) {
		t.Errorf("a write that may have been done: %v", err)
	}
}

func TestWritesDuringAnEtcdOutageFailSoonWithTheCorrectError(t *testing.T) {
	refused := status.Error(codes.Unavailable, "connection refused")
	refuse := func(context.Context) (int, error) { return 0, refused }
	silent := func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() }
	for name, c := range map[string]struct {
		answer  time.Duration
		ask     func(context.Context) (int, error)
		code    int32
		reason  error
		retries bool
	}{
		"no listener":           {firstAnswer, refuse, http.StatusGatewayTimeout, refused, false},
		"no response":           {firstAnswer, silent, http.StatusGatewayTimeout, context.DeadlineExceeded, false},
		"no listener for reads": {0, refuse, http.StatusServiceUnavailable, refused, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				_, _, err := retry(t.Context(), c.answer, c.ask)
				if took := time.Since(began); took > patience || took < patience-time.Second {
					t.Errorf("it took %s", took)
				}
				var told apierrors.APIStatus
				if !errors.As(err, &told) || told.Status().Code != c.code || !errors.Is(err, c.reason) {
					t.Fatalf("the error is %v", err)
				}
				if seconds, retries := apierrors.SuggestsClientDelay(err); retries != c.retries || retries && seconds != 1 {
					t.Errorf("clients try again: %t, after %d s", retries, seconds)
				}
			})
		})
	}
}
