package storage

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/kubernetes/pkg/apis/core"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// ledger is a limit that records its calls for each cluster.
type ledger struct {
	held, pending map[logicalcluster.Name]int
	full          error
}

func (l *ledger) Add(ctx context.Context, _ schema.GroupResource, _ runtime.Object) (func(bool), error) {
	cluster, _ := logicalcluster.NameFrom(ctx)
	if l.full != nil {
		return nil, l.full
	}
	l.pending[cluster]++
	return func(stored bool) {
		l.pending[cluster]--
		if stored {
			l.held[cluster]++
		}
	}, nil
}

func (l *ledger) Deleted(cluster logicalcluster.Name, _ schema.GroupResource) { l.held[cluster]-- }

func TestALimitCountsStoredAndDeletedObjects(t *testing.T) {
	l := &ledger{held: map[logicalcluster.Name]int{}, pending: map[logicalcluster.Name]int{}}
	s := configMaps(t).(*clusterStorage)
	s.limit = l
	want := func(what string, ours int) {
		t.Helper()
		if l.held["ours"] != ours || l.pending["ours"] != 0 || l.held["theirs"] != 1 {
			t.Errorf("%s: it holds %v, and %v are on their way", what, l.held, l.pending)
		}
	}
	create(t, s, "theirs", "default", "a", nil)
	create(t, s, "ours", "default", "a", nil)
	want("created", 1)
	again := &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}
	if err := s.Create(in("ours"), prefix+"/default/a", again, nil, 0); err == nil {
		t.Error("it was created twice")
	}
	want("created again", 1)
	apply := func(name, value string) error {
		return s.GuaranteedUpdate(in("ours"), prefix+"/default/"+name, &core.ConfigMap{}, true, nil, storage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
			m := obj.(*core.ConfigMap)
			m.Namespace, m.Name, m.Data = "default", name, map[string]string{"value": value}
			return m, nil
		}), nil)
	}
	if err := errors.Join(apply("b", "created"), apply("b", "changed")); err != nil {
		t.Fatal(err)
	}
	want("applied", 2)
	remove := func() error {
		return s.Delete(in("ours"), prefix+"/default/a", &core.ConfigMap{}, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{})
	}
	if err := remove(); err != nil {
		t.Fatal(err)
	}
	want("deleted", 1)
	if err := remove(); err == nil {
		t.Error("it was deleted twice")
	}
	want("deleted again", 1)

	l.full = errors.New("full")
	if err := apply("c", "created"); !errors.Is(err, l.full) {
		t.Errorf("applying to a full cluster: %v", err)
	}
	if err := apply("b", "changed again"); err != nil {
		t.Errorf("changing in a full cluster: %v", err)
	}
	want("full", 1)
}
