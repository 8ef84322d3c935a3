package server

import (
	"context"
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

func TestOnlyWhatCanBeTheKeyOfAnObjectIsReadFromStorage(t *testing.T) {
	var failure error
	var asked []string
	exists := true
	find := func(ctx context.Context, namespace, name string, out runtime.Object) (bool, error) {
		cluster, err := logicalcluster.NameFrom(ctx)
		asked = append(asked, string(cluster)+"|"+namespace+"/"+name)
		out.(*corev1alpha1.LogicalCluster).Name = name
		err = errors.Join(err, failure)
		return exists && err == nil, err
	}
	s := storedObjects{example: &corev1alpha1.LogicalCluster{}, find: find}
	for _, key := range []informers.Key{
		{Cluster: "", Name: "cluster"}, {Cluster: "*", Name: "cluster"}, {Cluster: "a/b", Name: "cluster"}, {Cluster: "..", Name: "cluster"},
		{Cluster: "a", Name: ""}, {Cluster: "a", Name: ".."}, {Cluster: "a", Name: "b/c"}, {Cluster: "a", Namespace: "..", Name: "b"},
		{Cluster: "a", Namespace: "b/c", Name: "d"}, {Cluster: "A", Name: "cluster"},
	} {
		if obj, err := s.Read(t.Context(), key); obj != nil || err != nil || len(asked) > 0 {
			t.Errorf("%q: got %v, %v, asked for %q", key, obj, err, asked)
		}
	}
	obj, err := s.Read(t.Context(), informers.Key{Cluster: "a", Namespace: "n", Name: "b"})
	if err != nil || obj.(*corev1alpha1.LogicalCluster).Name != "b" || strings.Join(asked, " ") != "a|n/b" {
		t.Errorf("got %v, %v, asked for %q", obj, err, asked)
	}
	exists = false
	if obj, err := s.Read(t.Context(), informers.Key{Cluster: "a", Name: "b"}); obj != nil || err != nil {
		t.Errorf("an object that does not exist: got %v, %v", obj, err)
	}
	failure = errors.New("etcd does not respond")
	if _, err := s.Read(t.Context(), informers.Key{Cluster: "a", Name: "b"}); err == nil {
		t.Error("an object that cannot be read is absent")
	}
}
