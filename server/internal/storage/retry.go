package storage

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	etcdkubernetes "go.etcd.io/etcd/client/v3/kubernetes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// patience limits how long a write is retried. An election takes some seconds.
	patience = 10 * time.Second
	// firstAnswer is the timeout of the first attempt. Each later attempt has twice the timeout of the previous one, so
	// that a slow etcd does not get ever more requests.
	firstAnswer = 2 * time.Second
	// tryPause is the pause between two attempts.
	tryPause = 50 * time.Millisecond
)

// retry repeats a request until etcd responds. An etcd with several members does not respond, and does not report whether a write
// was applied, during the election of a leader, and when the requested member stops. A write must contain the revision that it
// replaces, so that it is applied at most once. If lost is not nil, an attempt before the successful one failed with that error
// and may have been applied. The first attempt takes at most answer, and all attempts together at most patience; zero, for reads,
// means no limit.
func retry[R any](ctx context.Context, answer time.Duration, ask func(context.Context) (R, error)) (response R, lost, err error) {
	reads := answer == 0
	for end := time.Now().Add(patience); ; answer = min(2*answer, patience) {
		response, err = try(ctx, answer, end, ask)
		switch {
		case denied(err) && (reads || lost == nil):
			return response, lost, forbidden(err)
		case denied(err), lost != nil && (IsFenced(err) || IsRecordChanged(err)): // the lost attempt may precede the fence or the record
			return response, lost, lost
		case err == nil || ctx.Err() != nil || !unanswered(err):
			return response, lost, err
		}
		lost = unavailable(err, reads)
		if time.Until(end) <= tryPause {
			return response, lost, lost
		}
		select {
		case <-time.After(tryPause):
		case <-ctx.Done():
			return response, lost, lost
		}
	}
}

func try[R any](ctx context.Context, answer time.Duration, end time.Time, ask func(context.Context) (R, error)) (R, error) {
	if answer == 0 {
		return ask(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, min(answer, time.Until(end)))
	defer cancel()
	return ask(ctx)
}

// outage is the error for clients when etcd does not respond.
type outage struct {
	*apierrors.StatusError
	cause error
}

func (o *outage) Unwrap() error { return o.cause }

// unavailable returns the error for clients in place of an error of etcd. Clients automatically retry after an error with a
// retry delay. They must not retry a write that may have been applied: the creation of an object whose name the server
// generates would be applied twice.
func unavailable(err error, reads bool) error {
	if !reads {
		return &outage{cause: err, StatusError: apierrors.NewTimeoutError(
			"the storage of the server did not respond: check whether the change was applied before you retry", 0)}
	}
	response := apierrors.NewServiceUnavailable("the storage of the server does not respond: retry the request")
	response.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return &outage{cause: err, StatusError: response}
}

// denied reports whether etcd denied a request because of the identity of the server, which etcd checks before it applies
// anything.
func denied(err error) bool {
	return slices.Contains([]error{
		rpctypes.ErrPermissionDenied, rpctypes.ErrUserNotFound, rpctypes.ErrUserEmpty, rpctypes.ErrAuthFailed, rpctypes.ErrInvalidAuthToken,
		rpctypes.ErrAuthOldRevision,
	}, rpctypes.Error(err))
}

// forbidden returns the error for clients when etcd denies access to the server: as soon as etcd grants access, requests
// work again.
func forbidden(err error) error {
	response := apierrors.NewServiceUnavailable("etcd denies access to this server: an administrator of the installation must grant access")
	response.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return &outage{cause: err, StatusError: response}
}

// unanswered reports whether an error leaves open whether etcd applied a request, and a retry can succeed. Errors without a
// code come from a leader that is about to transfer leadership, and from what is between the server and etcd when a member
// stops.
func unanswered(err error) bool {
	var known rpctypes.EtcdError
	if errors.As(err, &known) {
		return known.Code() == codes.Unavailable
	}
	s, ok := status.FromError(err)
	return errors.Is(err, context.DeadlineExceeded) || ok && (s.Code() == codes.Unavailable || s.Code() == codes.Unknown)
}

// retryPut is OptimisticPut of kv, repeated until etcd responds.
func retryPut(ctx context.Context, kv etcdkubernetes.Interface, key string, value []byte, revision int64,
	options etcdkubernetes.PutOptions) (etcdkubernetes.PutResponse, error) {
	options.GetOnFailure = true
	response, lost, err := retry(ctx, firstAnswer, func(ctx context.Context) (etcdkubernetes.PutResponse, error) {
		return kv.OptimisticPut(ctx, key, value, revision, options)
	})
	if err != nil || response.Succeeded || lost == nil {
		return response, err
	}
	if response.KV != nil && bytes.Equal(response.KV.Value, value) {
		return etcdkubernetes.PutResponse{Succeeded: true, Revision: response.KV.ModRevision}, nil
	}
	return etcdkubernetes.PutResponse{}, lost // it may have been applied, and replaced
}

// retryDelete is OptimisticDelete of kv, repeated until etcd responds.
func retryDelete(ctx context.Context, kv etcdkubernetes.Interface, key string, revision int64,
	options etcdkubernetes.DeleteOptions) (etcdkubernetes.DeleteResponse, error) {
	options.GetOnFailure = true
	response, lost, err := retry(ctx, firstAnswer, func(ctx context.Context) (etcdkubernetes.DeleteResponse, error) {
		return kv.OptimisticDelete(ctx, key, revision, options)
	})
	switch {
	case err != nil || response.Succeeded || lost == nil:
		return response, err
	case response.KV == nil:
		response.Succeeded = true
		return response, nil
	case response.KV.CreateRevision > revision:
		return etcdkubernetes.DeleteResponse{}, lost // it may have been applied, and the object created again
	}
	return response, nil
}

// retryCommit stores all held objects, or none if any of them or of keys exists, or one is in a fenced cluster.
func retryCommit(ctx context.Context, kv clientv3.KV, held []put, keys []string) (etcdkubernetes.PutResponse, error) {
	absent, puts, reads := make([]clientv3.Cmp, len(held)), make([]clientv3.Op, len(held)), []clientv3.Op{clientv3.OpGet(held[0].key)}
	for i, h := range held {
		absent[i] = clientv3.Compare(clientv3.ModRevision(h.key), "=", 0)
		puts[i] = clientv3.OpPut(h.key, "", clientv3.WithLease(h.options.LeaseID))
		puts[i].WithValueBytes(h.value) // instead of two copies; values do not change
	}
	for _, fence := range fencesOf(held) {
		absent, reads = append(absent, clientv3.Compare(clientv3.CreateRevision(fence), "=", 0)), append(reads, clientv3.OpGet(fence))
	}
	for _, key := range keys {
		absent = append(absent, clientv3.Compare(clientv3.ModRevision(key), "=", 0))
	}
	done, lost, err := retry(ctx, firstAnswer, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		done, err := kv.Txn(ctx).If(absent...).Then(puts...).Else(reads...).Commit()
		if err == nil && !done.Succeeded {
			err = fencedBy(done.Responses[1:])
		}
		return done, err
	})
	switch {
	case err != nil:
		return etcdkubernetes.PutResponse{}, err
	case done.Succeeded || lost == nil:
		return etcdkubernetes.PutResponse{Succeeded: done.Succeeded, Revision: done.Header.Revision}, nil
	}
	first := done.Responses[0].GetResponseRange().Kvs
	if len(first) == 1 && bytes.Equal(first[0].Value, held[0].value) {
		return etcdkubernetes.PutResponse{Succeeded: true, Revision: first[0].ModRevision}, nil
	}
	return etcdkubernetes.PutResponse{}, lost
}
