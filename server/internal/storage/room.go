package storage

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	etcdkubernetes "go.etcd.io/etcd/client/v3/kubernetes"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// Room is the free space of an etcd.
type Room interface {
	// Grow returns an error if writes that need more space than the value that they replace are rejected, Write if all writes are
	// rejected.
	Grow() error
	Write() error
}

// StatusReasonInsufficientStorage is the reason of errors when etcd is full.
const StatusReasonInsufficientStorage metav1.StatusReason = "InsufficientStorage"

// SetRoom makes every storage respect the free space in room. own recognizes requests of the server itself. It must be called before
// anything is read or written.
func (b *Backend) SetRoom(room Room, own func(context.Context) bool) {
	b.room = room
	reach := b.client.Kubernetes.(transactions)
	reach.room, reach.own = room, own
	b.client.Kubernetes = reach
}

// CheckRoom returns the reason why writes are rejected, or nil.
func (b *Backend) CheckRoom() error {
	if b.room == nil {
		return nil
	}
	return errors.Join(b.room.Write(), b.room.Grow())
}

// full returns the error for clients when there is no space for larger objects, halted when nothing can be written.
func full(cause error) error {
	return insufficient(cause, "objects cannot be created or grow until other objects are deleted, or an administrator of the "+
		"server frees space")
}

func halted(cause error) error {
	return insufficient(cause, "nothing can be written or deleted until an administrator of the server frees space")
}

func insufficient(cause error, consequence string) error {
	return &outage{cause: cause, StatusError: &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInsufficientStorage, Reason: StatusReasonInsufficientStorage,
		Message: fmt.Sprintf("the storage of the server is full (%v): %s", cause, consequence),
	}}}
}

// outOfSpace converts the error of a full etcd to the error for clients.
func outOfSpace(err error) error {
	if errors.Is(err, rpctypes.ErrNoSpace) || errors.Is(err, rpctypes.ErrGRPCNoSpace) {
		return full(errors.New("etcd has raised its NOSPACE alarm"))
	}
	return err
}

// refusePut returns an error for a put without enough space. Instead, it sets exists if the put creates an object and an object of
// that name exists.
func (t transactions) refusePut(ctx context.Context, key string, value []byte,
	revision int64) (exists *etcdkubernetes.PutResponse, err error) {
	if t.room == nil {
		return nil, nil
	}
	if err := t.room.Write(); err != nil {
		return nil, halted(err)
	}
	cause := t.room.Grow()
	if cause == nil || (revision != 0 && (t.isOwn(ctx) || isDeletion(ctx))) {
		return nil, nil
	}
	stored, err := t.Interface.Get(ctx, key, etcdkubernetes.GetOptions{})
	switch {
	case err != nil:
		return nil, err
	case stored.KV != nil && revision == 0:
		return &etcdkubernetes.PutResponse{KV: stored.KV, Revision: stored.Revision}, nil
	case stored.KV != nil && len(value) <= len(stored.KV.Value):
		return nil, nil
	}
	return nil, full(cause)
}

// refuseWrite returns an error if nothing can be written.
func (t transactions) refuseWrite() error {
	if t.room == nil {
		return nil
	}
	if err := t.room.Write(); err != nil {
		return halted(err)
	}
	return nil
}

// refuseHeld returns an error for a transaction without enough space, unless its first key exists.
func (t transactions) refuseHeld(ctx context.Context, held []put) error {
	if t.room == nil {
		return nil
	}
	if err := t.refuseWrite(); err != nil {
		return err
	}
	cause := t.room.Grow()
	if cause == nil {
		return nil
	}
	for _, h := range held {
		if stored, err := t.kv.Get(ctx, h.key, clientv3.WithCountOnly()); err == nil && stored.Count > 0 {
			return nil // the transaction stores nothing
		}
	}
	return full(cause)
}

// isOwn reports whether the server itself writes: its writes change existing objects, or delete them.
func (t transactions) isOwn(ctx context.Context) bool {
	_, ok := request.RequestInfoFrom(ctx)
	return !ok || t.own(ctx)
}
