package exports

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/internal/tenancy/pathindex"
	"github.com/kcplane/kcp/server/internal/tenancy/references"
	"github.com/kcplane/kcp/server/internal/tenancy/workspacetypes"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// provider is another shard, with the workspace root:far, a workspace type and its export, which arrive with the first question about them.
type provider struct {
	objects map[string]objecttest.Object
	offer   func(objecttest.Object)
	err     error
}

func (p *provider) Locate(_ context.Context, path string) (logicalcluster.Name, bool, error) {
	return "far", path == "root:far", p.err
}

func (p *provider) Has(_ context.Context, _ logicalcluster.Name, resource schema.GroupResource, name string) (bool, error) {
	obj, ok := p.objects[resource.Resource+" "+name]
	if ok && p.err == nil {
		p.offer(obj)
	}
	return ok, p.err
}

func logicalCluster(cluster, path, typed string) *corev1alpha1.LogicalCluster {
	return objecttest.In(cluster, &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{
		Name: corev1alpha1.LogicalClusterName,
		Annotations: map[string]string{
			corev1alpha1.PathAnnotation: path, tenancyv1alpha1.TypeAnnotation: typed, tenancyv1alpha1.TypeClusterAnnotation: "far",
		},
	}})
}

// A workspace gets its default bindings with the first request, even if its type and the export are on another shard and have just been
// created.
func TestDefaultBindingsWaitForTheTypeAndTheExport(t *testing.T) {
	late := references.Unavailable("late")
	for name, c := range map[string]struct {
		typed string
		err   error
		want  int // default bindings to widgets
		retry bool
	}{
		"of another shard":            {typed: "root:far:binding", want: 1},
		"extended by the type":        {typed: "root:far:derived", want: 1},
		"no type":                     {},
		"the type was deleted":        {typed: "root:far:none"},
		"the path does not exist":     {typed: "root:none:binding"},
		"the export does not exist":   {typed: "root:far:toNone"},
		"the shard does not respond":  {typed: "root:far:binding", err: late, retry: true},
		"no type, without a response": {err: late},
	} {
		o := objecttest.New(t)
		o.Share(func(cluster logicalcluster.Name) (string, []logicalcluster.Name) {
			return map[logicalcluster.Name]string{"far": "us", "root": "root"}[cluster], nil
		})
		index := pathindex.New(o.Set)
		all, err := New(o.Set, index, System{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		lc := logicalCluster("team", "root:team", c.typed)
		o.Show(lc)
		p := &provider{err: c.err, objects: map[string]objecttest.Object{
			"workspacetypes binding": binding("binding", "widgets"), "workspacetypes toNone": binding("toNone", "none"),
			"workspacetypes derived": extending("derived", "binding"),
			"apiexports widgets":     objecttest.In("far", &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "widgets"}}),
		}}
		p.offer = func(obj objecttest.Object) {
			o.Offer("root", logicalCluster("root", "root", ""))
			o.Offer("root", objecttest.In("root", &tenancyv1alpha1.Workspace{
				ObjectMeta: metav1.ObjectMeta{Name: "far"}, Spec: tenancyv1alpha1.WorkspaceSpec{Cluster: "far"},
				Status: tenancyv1alpha1.WorkspaceStatus{Phase: corev1alpha1.LogicalClusterPhaseReady},
			}))
			o.Offer("us", logicalCluster("far", "root:far", ""))
			o.Offer("us", obj)
		}
		shared := references.New(o.Set, index)
		shared.Share(p)
		types := workspacetypes.New(o.Set, index)
		types.Share(shared)
		d := Defaults{Exports: all, Types: types, References: shared}
		if err := d.Await(t.Context(), lc); (err != nil) != c.retry || (c.retry && !errors.Is(err, late)) {
			t.Errorf("%s: got %v", name, err)
		}
		bound := 0
		for _, b := range d.Of(lc) {
			if b.Spec.Reference.Export.Name == "widgets" && len(b.Labels) == 1 {
				bound++
			}
		}
		if _, err := all.Get("far", "widgets"); c.want > 0 && err != nil { // the binding accepts the claims of the export
			t.Errorf("%s: got %v", name, err)
		}
		if bound != c.want {
			t.Errorf("%s: got %d bindings, want %d", name, bound, c.want)
		}
	}
}

func binding(name, export string) *tenancyv1alpha1.WorkspaceType {
	wt := objecttest.In("far", &tenancyv1alpha1.WorkspaceType{ObjectMeta: metav1.ObjectMeta{Name: name}})
	wt.Spec.DefaultAPIBindings = []tenancyv1alpha1.APIExportReference{{Path: "root:far", Export: export}}
	return wt
}

func extending(name, extended string) *tenancyv1alpha1.WorkspaceType {
	wt := objecttest.In("far", &tenancyv1alpha1.WorkspaceType{ObjectMeta: metav1.ObjectMeta{Name: name}})
	wt.Spec.Extend.With = []tenancyv1alpha1.WorkspaceTypeReference{{Path: "root:far", Name: extended}}
	return wt
}

// The informer gets a copy of what is stored, instead of decoding it.
func TestDefaultBindingsAreAsTheyAreRead(t *testing.T) {
	o := objecttest.New(t)
	index := pathindex.New(o.Set)
	all, err := New(o.Set, index, System{{Group: "tenancy.kcp.io", Resource: "workspaces"}: "tenancy.kcp.io"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	export := func(name string, spec apisv1alpha2.APIExportSpec) *apisv1alpha2.APIExport {
		return objecttest.In("root", &apisv1alpha2.APIExport{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec, Status: apisv1alpha2.APIExportStatus{IdentityHash: "identity"},
		})
	}
	lc := logicalCluster("team", "root:team", "")
	o.Show(logicalCluster("root", "root", ""))
	o.Show(lc)
	o.Show(objecttest.In("root", &apisv1alpha1.APIResourceSchema{
		ObjectMeta: metav1.ObjectMeta{Name: "v1.workspaces.tenancy.kcp.io", UID: "uid"},
		Spec:       apisv1alpha1.APIResourceSchemaSpec{Versions: []apisv1alpha1.APIResourceVersion{{Name: "v1alpha1", Storage: true}}},
	}))
	o.Show(export("tenancy.kcp.io", apisv1alpha2.APIExportSpec{Resources: []apisv1alpha2.ResourceSchema{
		{Group: "tenancy.kcp.io", Name: "workspaces", Schema: "v1.workspaces.tenancy.kcp.io"},
	}}))
	o.Show(export("topology.kcp.io", apisv1alpha2.APIExportSpec{PermissionClaims: []apisv1alpha2.PermissionClaim{
		{GroupResource: apisv1alpha2.GroupResource{Resource: "configmaps"}, Verbs: []string{"get"}},
	}}))
	bindings := Defaults{Exports: all, Types: workspacetypes.New(o.Set, index), References: references.New(o.Set, index)}.Of(lc)
	if len(bindings) != len(everywhere) {
		t.Fatalf("got %d bindings, want %d", len(bindings), len(everywhere))
	}
	for _, b := range bindings {
		if err := objecttest.IsAsRead(b); err != nil {
			t.Errorf("%s: %v", b.Name, err)
		}
	}
	if bound := bindings[0].Status; len(bound.BoundResources) != 1 || len(bound.Conditions) == 0 {
		t.Errorf("got the status %v", bound)
	}
}
