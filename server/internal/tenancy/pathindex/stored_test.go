package pathindex

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// etcd contains the stored objects by cluster and name. It counts its requests, and adds requested objects to the index.
type etcd struct {
	objects map[string]runtime.Object
	asked   int
	told    func(runtime.Object)
	err     error
}

func (e *etcd) Get(ctx context.Context, name string, out runtime.Object) error {
	e.asked++
	if e.err != nil {
		return e.err
	}
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return err
	}
	switch found := e.objects[string(cluster)+"|"+name].(type) {
	case *corev1alpha1.LogicalCluster:
		found.DeepCopyInto(out.(*corev1alpha1.LogicalCluster))
		e.told(found)
	case *tenancyv1alpha1.Workspace:
		found.DeepCopyInto(out.(*tenancyv1alpha1.Workspace))
		e.told(found)
	default:
		return apierrors.NewNotFound(corev1alpha1.Resource("objects"), name)
	}
	return nil
}

func newStored(t *testing.T) (*Stored, *etcd) {
	t.Helper()
	index := newIndex(t, logicalCluster("root", "root", ""))
	e := &etcd{objects: map[string]runtime.Object{
		"root|team":    workspace("root", "team", "2x9k", corev1alpha1.LogicalClusterPhaseReady),
		"2x9k|cluster": logicalCluster("2x9k", "root:team", "root"),
		"root|later":   workspace("root", "later", "", corev1alpha1.LogicalClusterPhaseScheduling),
	}}
	e.told = func(obj runtime.Object) {
		informer := index.workspaces.Informer
		if _, ok := obj.(*corev1alpha1.LogicalCluster); ok {
			informer = index.clusters.Informer
		}
		time.AfterFunc(10*time.Millisecond, func() { _ = informer.Indexer().Add(obj) })
	}
	return NewStored(index, e, e, func(r *http.Request) bool { return r.Header.Get("own") != "" }), e
}

func TestWorkspacesStoredByAnotherServerAreFound(t *testing.T) {
	for path, want := range map[string]logicalcluster.Name{"root:team": "2x9k", "2x9k": "2x9k", "root:absent": "", "absent": "", "root:later": "", "root:team:absent": "", "absent:team": ""} {
		s, e := newStored(t)
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		place, ok, err := s.Find(r, path)
		if err != nil || ok != (want != "") || place.Cluster != want {
			t.Errorf("%s resolves to %+v, %t, %v", path, place, ok, err)
		}
		if e.asked == 0 {
			t.Errorf("%s: storage was not read", path)
		}
		asked := e.asked
		if _, ok, err := s.Find(r, "root"); !ok || err != nil || e.asked != asked {
			t.Errorf("root, which is known: %t, %v; storage was read %d times", ok, err, e.asked-asked)
		}
		r.Header.Set("own", "yes")
		if _, ok, err := s.Find(r, "root:absent"); ok || err != nil || e.asked != asked {
			t.Errorf("the server itself: %t, %v; storage was read %d times", ok, err, e.asked-asked)
		}
	}
}

// from returns a request from an address, with a token.
func from(address, token string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = address
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

// flood requests paths that do not exist, and returns how often it was rejected.
func flood(t *testing.T, s *Stored, requests func(i int) *http.Request) (refused int) {
	t.Helper()
	for i := range 3 * serverBurst {
		if _, ok, err := s.Find(requests(i), "root:absent"); ok {
			t.Fatal("what does not exist is found")
		} else if seconds, retries := apierrors.SuggestsClientDelay(err); retries && seconds == 1 {
			refused++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	return refused
}

func TestLookupsInStorageAreLimited(t *testing.T) {
	s, e := newStored(t)
	if flood(t, s, func(i int) *http.Request { return from(fmt.Sprintf("10.0.%d.%d:1", i/256, i%256), fmt.Sprint(i)) }) == 0 || e.asked > 2*serverBurst {
		t.Errorf("storage was read %d times", e.asked)
	}
	if _, ok, err := s.Find(from("10.1.0.1:1", "a"), "absent"); ok || err != nil {
		t.Errorf("a name beyond the limit: %t, %v; want authorization to decide", ok, err)
	}
}

func TestAFloodOfUnknownPathsDoesNotStopOthers(t *testing.T) {
	for name, c := range map[string]struct {
		flood func(i int) *http.Request
		other *http.Request
	}{
		"another user at the same address":    {func(int) *http.Request { return from("10.0.0.1:1", "a") }, from("10.0.0.1:1", "b")},
		"another address":                     {func(int) *http.Request { return from("10.0.0.1:1", "a") }, from("10.0.0.2:1", "a")},
		"another address than of many tokens": {func(i int) *http.Request { return from("10.0.0.1:1", fmt.Sprint(i)) }, from("10.0.0.2:1", "a")},
		"another network than of many hosts": {
			func(i int) *http.Request { return from(fmt.Sprintf("[2001:db8::%x]:1", i+1), "a") }, from("[2001:db8:0:1::1]:1", "a"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := newStored(t)
			if flood(t, s, c.flood) == 0 {
				t.Error("nothing of the flood was refused")
			}
			if place, ok, err := s.Find(c.other, "root:team"); !ok || err != nil || place.Cluster != "2x9k" {
				t.Errorf("what another server has stored: %+v, %t, %v", place, ok, err)
			}
		})
	}
}

func TestAnErrorOfStorageIsReturned(t *testing.T) {
	s, e := newStored(t)
	e.err = apierrors.NewServiceUnavailable("no answer")
	if _, _, err := s.Find(httptest.NewRequest(http.MethodGet, "/", nil), "root:team"); !errors.Is(err, e.err) {
		t.Errorf("the error is %v", err)
	}
}

func TestAShardServesOnlyWhatItHolds(t *testing.T) {
	s, _ := newStored(t)
	add := func(ws *tenancyv1alpha1.Workspace, shard string) {
		ws.Annotations[tenancyv1alpha1.ShardAnnotation] = shard
		if err := s.workspaces.Indexer().Add(ws); err != nil {
			t.Fatal(err)
		}
	}
	add(workspace("root", "near", "aaa", corev1alpha1.LogicalClusterPhaseReady), "eu")
	add(workspace("root", "far", "bbb", corev1alpha1.LogicalClusterPhaseReady), "us")
	if err := s.clusters.Indexer().Add(logicalCluster("aaa", "root:near", "root")); err != nil {
		t.Fatal(err)
	}
	for path, c := range map[string]struct {
		found, elsewhere bool
	}{"root:near": {true, false}, "root:far": {false, true}, "root:absent": {false, false}, "root": {true, false}, "absent": {false, false}} {
		for _, sharded := range []bool{true, false} {
			if s.Shard = ""; sharded {
				s.Shard = "eu"
			}
			_, ok, err := s.Find(httptest.NewRequest(http.MethodGet, "/", nil), path)
			elsewhere := sharded && c.elsewhere
			if found := c.found || (!sharded && c.elsewhere); ok != found || apierrors.IsTooManyRequests(err) != elsewhere {
				t.Errorf("%s on a server with other shards %t: %t, %v", path, sharded, ok, err)
			}
			if seconds, retries := apierrors.SuggestsClientDelay(err); elsewhere && (!retries || seconds != 1) {
				t.Errorf("%s: retry after %d s, %t, want 1", path, seconds, retries)
			}
		}
	}
}
