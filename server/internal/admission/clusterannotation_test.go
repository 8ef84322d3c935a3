package admission

import (
	"maps"
	"testing"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/logicalcluster"
)

func TestObjectsHaveTheAnnotationOfTheirCluster(t *testing.T) {
	for name, test := range map[string]struct {
		write
		want map[string]string
	}{
		"an object without annotations gets it": {write{object: `{}`}, map[string]string{logicalcluster.AnnotationKey: "team"}},
		"other annotations are kept":            {write{object: `metadata: {annotations: {a: b}}`}, map[string]string{"a": "b", logicalcluster.AnnotationKey: "team"}},
		"a value of the client is replaced":     {write{object: `metadata: {annotations: {kcp.io/cluster: root}}`}, map[string]string{logicalcluster.AnnotationKey: "team"}},
		"an update of the status gets it":       {write{object: `{}`, before: `{}`, subresource: "status"}, map[string]string{logicalcluster.AnnotationKey: "team"}},
		"another subresource is not changed":    {write{object: `{}`, before: `{}`, subresource: "scale"}, nil},
		"a review is not changed":               {write{group: "authorization.k8s.io", version: "v1", object: `{}`}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			a := test.attributes(t, "Widget")
			if err := (clusterAnnotation{}).Admit(in(t, "team"), a, nil); err != nil {
				t.Fatal(err)
			}
			if got := annotations(a.GetObject()); !maps.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
	if err := (clusterAnnotation{}).Admit(t.Context(), write{object: `{}`}.attributes(t, "Widget"), nil); err == nil {
		t.Error("a request without a cluster is admitted")
	}
}

func TestAnnotateReplacesTheMapOfAnnotations(t *testing.T) {
	shared := map[string]string{"a": "b"}
	lc := &corev1alpha1.LogicalCluster{}
	lc.Annotations = shared
	annotate(lc, "a", "c")
	if shared["a"] != "b" || lc.Annotations["a"] != "c" {
		t.Errorf("the shared annotations are %v, those of the object %v", shared, lc.Annotations)
	}
}

func TestPathAnnotationsAreCorrect(t *testing.T) {
	const path = corev1alpha1.PathAnnotation
	for name, test := range map[string]struct {
		write
		kind string
		want map[string]string
	}{
		"a WorkspaceType gets its path":             {write{group: "tenancy.kcp.io", object: `{}`}, "WorkspaceType", map[string]string{path: "root:org:team"}},
		"an APIExport gets its path":                {write{object: `{}`}, "APIExport", map[string]string{path: "root:org:team"}},
		"an APIBinding gets its path":               {write{object: `{}`}, "APIBinding", map[string]string{path: "root:org:team"}},
		"a ClusterCachedResource gets its path":     {write{group: "cache.kcp.io", object: `{}`}, "ClusterCachedResource", map[string]string{path: "root:org:team"}},
		"an update restores it":                     {write{object: `{}`, before: `metadata: {annotations: {kcp.io/path: "root:org:team"}}`}, "APIExport", map[string]string{path: "root:org:team"}},
		"a wrong value on any object is replaced":   {write{group: "example.org", object: `metadata: {annotations: {kcp.io/path: root}}`}, "Widget", map[string]string{path: "root:org:team"}},
		"other objects without it do not get it":    {write{group: "example.org", object: `{}`}, "Widget", nil},
		"a LogicalCluster keeps its path":           {write{group: "core.kcp.io", object: `metadata: {annotations: {kcp.io/path: root}}`}, "LogicalCluster", map[string]string{path: "root"}},
		"an update of the status is not changed":    {write{object: `{}`, before: `{}`, subresource: "status"}, "APIExport", nil},
		"a review with the annotation is unchanged": {write{group: "authentication.k8s.io", object: `metadata: {annotations: {kcp.io/path: root}}`}, "TokenReview", map[string]string{path: "root"}},
	} {
		t.Run(name, func(t *testing.T) {
			a := test.attributes(t, test.kind)
			if err := (pathAnnotation{rules{newConfig(t, nil, at("root:org:team")...)}}).Admit(in(t, "team"), a, nil); err != nil {
				t.Fatal(err)
			}
			if got := annotations(a.GetObject()); !maps.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
