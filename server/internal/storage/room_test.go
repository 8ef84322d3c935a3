package storage

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	etcdkubernetes "go.etcd.io/etcd/client/v3/kubernetes"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kcplane/kcp/server/internal/storage/etcd"
)

var (
	etcdGet = etcdkubernetes.GetOptions{}
	etcdPut = etcdkubernetes.PutOptions{}
)

// room is the free space that a test sets.
type room struct{ grow, write error }

func (r *room) Grow() error  { return r.grow }
func (r *room) Write() error { return r.write }

func TestAFullStorageAcceptsWritesThatShrinkIt(t *testing.T) {
	server, err := etcd.Start(t.Context(), etcd.Config{Directory: filepath.Join(t.TempDir(), "etcd")})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	client := server.Client()
	defer client.Close()
	backend, left := NewBackend(client, "", 0), &room{}
	defer backend.Close()
	backend.SetRoom(left, func(ctx context.Context) bool {
		u, ok := request.UserFrom(ctx)
		return ok && u.GetName() == user.APIServerUser
	})
	kv := backend.client.Kubernetes
	as := func(name, verb string) context.Context {
		ctx := request.WithUser(t.Context(), &user.DefaultInfo{Name: name})
		return request.WithRequestInfo(ctx, &request.RequestInfo{IsResourceRequest: true, Verb: verb})
	}
	alice, server1 := as("alice", "update"), as(user.APIServerUser, "update")
	first, err := kv.OptimisticPut(alice, "/key", []byte("12345"), 0, etcdPut)
	if err != nil || !first.Succeeded {
		t.Fatalf("with room: %+v, %v", first, err)
	}
	left.grow = errors.New("34 of 32 MiB")
	refused := func(what string, err error) {
		t.Helper()
		var status apierrors.APIStatus
		if !errors.As(err, &status) || status.Status().Code != http.StatusInsufficientStorage || status.Status().Reason != StatusReasonInsufficientStorage {
			t.Errorf("%s: %v", what, err)
		}
	}
	put := func(ctx context.Context, key, value string, revision int64) (etcdkubernetes.PutResponse, error) {
		return kv.OptimisticPut(ctx, key, []byte(value), revision, etcdPut)
	}
	_, err = put(alice, "/new", "1", 0)
	refused("a new object", err)
	_, err = put(server1, "/new", "1", 0)
	refused("a new object of the server", err)
	_, err = put(alice, "/key", "123456", first.Revision)
	refused("a larger object", err)
	if again, err := put(alice, "/key", "1", 0); err != nil || again.Succeeded || again.KV == nil {
		t.Errorf("creating what exists: %+v, %v", again, err)
	}
	transaction := &Transaction{}
	if _, err := put(transaction.Hold(t.Context()), "/one", "1", 0); err != nil {
		t.Error(err)
	}
	_, err = put(transaction.Commit(t.Context()), "/two", "2", 0)
	refused("new objects at once", err)
	transaction = &Transaction{}
	if _, err := put(transaction.Hold(t.Context()), "/key", "1", 0); err != nil {
		t.Error(err)
	}
	if done, err := put(transaction.Commit(t.Context()), "/two", "2", 0); err != nil || done.Succeeded {
		t.Errorf("objects of which one exists: %+v, %v", done, err)
	}
	revision := first.Revision
	for _, step := range []struct {
		what  string
		ctx   context.Context
		value string
	}{
		{"a smaller object", alice, "1234"},
		{"an object of the same size", alice, "4321"},
		{"the mark of a deletion", as("alice", "delete"), "4321 is being deleted"},
		{"a status that the server writes", server1, "4321 is being deleted for a reason"},
	} {
		done, err := put(step.ctx, "/key", step.value, revision)
		if err != nil || !done.Succeeded {
			t.Fatalf("%s: %+v, %v", step.what, done, err)
		}
		revision = done.Revision
	}
	left.write = errors.New("the disk is full")
	_, err = kv.OptimisticDelete(alice, "/key", revision, etcdkubernetes.DeleteOptions{})
	refused("a deletion without any room", err)
	if !strings.Contains(err.Error(), "(the disk is full): nothing can be written or deleted until") {
		t.Errorf("a deletion without any room: %v", err)
	}
	_, err = put(alice, "/key", "1", revision)
	refused("a smaller object without any room", err)
	if got, err := kv.Get(alice, "/key", etcdGet); err != nil || got.KV == nil {
		t.Errorf("reading without any room: %+v, %v", got, err)
	}
	left.write = nil
	if done, err := kv.OptimisticDelete(alice, "/key", revision, etcdkubernetes.DeleteOptions{}); err != nil || !done.Succeeded {
		t.Errorf("a deletion: %+v, %v", done, err)
	}
	left.grow = nil
	if done, err := put(alice, "/new", "1", 0); err != nil || !done.Succeeded {
		t.Errorf("with room again: %+v, %v", done, err)
	}
}
