package pathindex

import (
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

func TestTheHomeOfAUserIsAHashOfTheirName(t *testing.T) {
	for user, want := range map[string]logicalcluster.Name{
		"alice": "v1u4alow0iv9", "bob": "2okdry95y5lkv", "": "36ks9xj4a2n61", "user172": "0f9mt7goyif7",
	} {
		if got := HomeCluster(user); got != want {
			t.Errorf("%q: got %s, want %s", user, got, want)
		}
	}
}

func at(cluster string) map[string]string {
	return map[string]string{logicalcluster.AnnotationKey: cluster}
}

func logicalCluster(cluster, path, parent string) *corev1alpha1.LogicalCluster {
	lc := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster", Annotations: at(cluster)}}
	lc.Annotations[corev1alpha1.PathAnnotation] = path
	if parent != "" {
		lc.Spec.Owner = &corev1alpha1.LogicalClusterOwner{Cluster: parent}
	}
	return lc
}

func workspace(parent, name, cluster string, phase corev1alpha1.LogicalClusterPhase) *tenancyv1alpha1.Workspace {
	return &tenancyv1alpha1.Workspace{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: at(parent)},
		Spec:       tenancyv1alpha1.WorkspaceSpec{Cluster: cluster}, Status: tenancyv1alpha1.WorkspaceStatus{Phase: phase},
	}
}

func newIndex(t *testing.T, clusters ...*corev1alpha1.LogicalCluster) *Index {
	t.Helper()
	set := &informers.Set{}
	set.LogicalClusters.Informer = informers.New(corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters"), &corev1alpha1.LogicalCluster{}, &cache.ListWatch{}, nil)
	set.Workspaces.Informer = informers.New(tenancyv1alpha1.SchemeGroupVersion.WithResource("workspaces"), &tenancyv1alpha1.Workspace{}, &cache.ListWatch{}, nil)
	for _, lc := range clusters {
		if err := set.LogicalClusters.Indexer().Add(lc); err != nil {
			t.Fatal(err)
		}
	}
	return New(set)
}

func TestAPathIsResolvedThroughTheWorkspaces(t *testing.T) {
	const ready, unavailable = corev1alpha1.LogicalClusterPhaseReady, corev1alpha1.LogicalClusterPhaseUnavailable
	index := newIndex(t, logicalCluster("root", "root", ""), logicalCluster("aaa", "root:org", "root"),
		logicalCluster("v1u4alow0iv9", "user:alice", ""))
	mount := workspace("aaa", "mounted", "", ready)
	mount.Spec.Mount, mount.Spec.URL = &tenancyv1alpha1.Mount{}, "https://elsewhere"
	broken := workspace("aaa", "broken", "", unavailable)
	broken.Spec.Mount = &tenancyv1alpha1.Mount{}
	for _, ws := range []*tenancyv1alpha1.Workspace{
		broken, workspace("root", "org", "aaa", ready), workspace("aaa", "team", "bbb", ready), workspace("root", "down", "ccc", unavailable),
		workspace("ccc", "below", "ddd", ready), workspace("root", "new", "eee", corev1alpha1.LogicalClusterPhaseScheduling), mount,
		workspace("v1u4alow0iv9", "toys", "fff", ready),
	} {
		if err := index.workspaces.Indexer().Add(ws); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]Place{
		"root": {Cluster: "root"}, "root:org": {Cluster: "aaa"}, "root:org:team": {Cluster: "bbb"}, "aaa:team": {Cluster: "bbb"},
		"root:down": {Cluster: "ccc", Code: http.StatusServiceUnavailable}, "root:down:below": {Cluster: "ddd", Code: http.StatusServiceUnavailable},
		"root:org:mounted": {URL: "https://elsewhere", Mounted: informers.Key{Cluster: "aaa", Name: "mounted"}}, "root:org:broken": {Code: http.StatusServiceUnavailable},
		"user:alice": {Cluster: "v1u4alow0iv9"}, "user:alice:toys": {Cluster: "fff"},
	} {
		if got, ok := index.Lookup(path); !ok || got != want {
			t.Errorf("%s: got %+v, %t, want %+v", path, got, ok, want)
		}
	}
	for _, path := range []string{"", "other", "root:new", "root:gone", "root:org:team:none", "root:org:mounted:further", "root:org:broken:further", "user:bob", "org", "root:"} {
		if got, ok := index.Lookup(path); ok {
			t.Errorf("%s resolves to %+v", path, got)
		}
	}
	if got := index.Path("aaa"); got != "root:org" {
		t.Errorf("the path of aaa is %s", got)
	}
	if parent, ok := index.Parent("aaa"); !ok || parent != "root" {
		t.Errorf("the parent of aaa is %s", parent)
	}
}

func TestThePathOfAHomeIsUnique(t *testing.T) {
	for name, want := range map[string]string{
		"alice": "user:alice", "alice:toys": "", "oidc:alice": "", ":alice": "", "Alice": "", "alice@example.org": "", "a/b": "",
	} {
		if want == "" {
			want = string(HomeCluster(name))
		}
		if got := HomePath(name); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}
