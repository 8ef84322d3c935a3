package replication

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	cachev1alpha1 "github.com/kcplane/kcp/api/cache/v1alpha1"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/internal/tenancy/cachedresources"
	"github.com/kcplane/kcp/server/internal/tenancy/exports"
	"github.com/kcplane/kcp/server/internal/tenancy/pathindex"
	"github.com/kcplane/kcp/server/internal/tenancy/references"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// holder is the shard that holds the logical cluster far. Its objects, by resource and name, arrive when it says that they exist.
type holder struct {
	objects map[string]objecttest.Object
	arrive  func(objecttest.Object)
	err     error
}

func (holder) Locate(context.Context, string) (logicalcluster.Name, bool, error) {
	return "", false, nil
}

func (h holder) Has(_ context.Context, _ logicalcluster.Name, resource schema.GroupResource, name string) (bool, error) {
	obj, ok := h.objects[resource.Resource+" "+name]
	if ok && h.err == nil {
		h.arrive(obj)
	}
	return ok && h.err == nil, h.err
}

func TestAViewFindsTheSliceAndTheExportOfAnotherShard(t *testing.T) {
	late := references.Unavailable("late")
	slice := objecttest.In("far", &cachev1alpha1.ClusterCachedResourceEndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "widgets"}})
	slice.Spec.Export.Name = "widgets"
	orphan := objecttest.In("far", &cachev1alpha1.ClusterCachedResourceEndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "orphan"}})
	orphan.Spec.Export.Name = "none"
	for name, c := range map[string]struct {
		slice string
		err   error
		found bool
	}{
		"of another shard":           {"widgets", nil, true},
		"no such slice":              {"none", nil, false},
		"a slice without its export": {"orphan", nil, false},
		"no response":                {"widgets", late, false},
	} {
		o := objecttest.New(t)
		o.Share(func(logicalcluster.Name) (string, []logicalcluster.Name) { return "us", nil })
		index := pathindex.New(o.Set)
		all, err := exports.New(o.Set, index, exports.System{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		cached, err := cachedresources.New(o.Set, all)
		if err != nil {
			t.Fatal(err)
		}
		r := references.New(o.Set, index)
		r.Share(holder{err: c.err, arrive: func(obj objecttest.Object) { o.Offer("us", obj) }, objects: map[string]objecttest.Object{
			"clustercachedresourceendpointslices widgets": slice, "clustercachedresourceendpointslices orphan": orphan,
			"apiexports widgets": objecttest.In("far", &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "widgets"}}),
		}})
		v := &view{Config: Config{Cached: cached, Exports: all, References: r}, cluster: "far", slice: c.slice}
		_, export, err := v.find(t.Context())
		if (export != nil) != c.found || !errors.Is(err, c.err) {
			t.Errorf("%s: got %v, %v", name, export, err)
		}
	}
}
