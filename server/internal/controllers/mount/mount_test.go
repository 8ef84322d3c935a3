package mount

import (
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/request/mount"
	"github.com/kcplane/kcp/server/logicalcluster"
)

var clusters = schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "kubeclusters"}

func mounted(name, from string) *tenancyv1alpha1.Workspace {
	return &tenancyv1alpha1.Workspace{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{logicalcluster.AnnotationKey: "org"}},
		Spec: tenancyv1alpha1.WorkspaceSpec{Mount: &tenancyv1alpha1.Mount{Reference: tenancyv1alpha1.ObjectReference{
			APIVersion: clusters.GroupVersion().String(), Kind: "KubeCluster", Name: from,
		}}},
	}
}

func kubeCluster(cluster, name string, status map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": name, "annotations": map[string]any{logicalcluster.AnnotationKey: cluster}}, "status": status,
	}}
}

func newTestReconciler(t *testing.T) *reconciler {
	t.Helper()
	hosts, err := mount.NewHosts(nil, []string{"prod.example.org"})
	if err != nil {
		t.Fatal(err)
	}
	set := &informers.Set{}
	set.Workspaces.Informer = informers.New(tenancyv1alpha1.SchemeGroupVersion.WithResource("workspaces"), &tenancyv1alpha1.Workspace{}, &cache.ListWatch{}, nil)
	return newReconciler(Inputs{Set: set, Hosts: hosts, Objects: &runner.ObjectEvents{}})
}

func TestTheStatusOfAMountedWorkspaceFollowsItsObject(t *testing.T) {
	c := newTestReconciler(t)
	for name, test := range map[string]struct {
		status  map[string]any
		phase   corev1alpha1.LogicalClusterPhase
		message string
	}{
		"ready":         {map[string]any{"phase": "Ready", "URL": "https://prod.example.org"}, "Ready", ""},
		"connecting":    {map[string]any{"phase": "Connecting", "URL": "https://prod.example.org"}, "Unavailable", `"Connecting"`},
		"no URL":        {map[string]any{"phase": "Ready"}, "Unavailable", "no status.URL"},
		"no status":     {nil, "Unavailable", `status.phase ""`},
		"another type":  {map[string]any{"phase": "Ready", "URL": int64(5)}, "Unavailable", "no status.URL"},
		"unknown host":  {map[string]any{"phase": "Ready", "URL": "https://evil.example.org"}, "Unavailable", "may not use the host evil.example.org:443"},
		"no encryption": {map[string]any{"phase": "Ready", "URL": "http://prod.example.org"}, "Unavailable", "https://"},
	} {
		ws := mounted("ws", "prod")
		ref := ws.Spec.Mount.Reference
		c.evaluate(ref, kubeCluster("org", "prod", test.status)).show(ws)
		var condition corev1alpha1.Condition
		for _, found := range ws.Status.Conditions {
			if found.Type == tenancyv1alpha1.WorkspaceMountReady {
				condition = found
			}
		}
		if ws.Status.Phase != test.phase || !strings.Contains(condition.Message, test.message) || ws.Labels[corev1alpha1.PhaseLabel] != string(test.phase) {
			t.Errorf("%s: got %s, %+v", name, ws.Status.Phase, condition)
		}
		if ready := test.phase == "Ready"; (ws.Spec.URL != "") != ready || (condition.Status == metav1.ConditionTrue) != ready || (condition.Reason == "") != ready {
			t.Errorf("%s: the URL is %q, the condition %+v", name, ws.Spec.URL, condition)
		}
	}
}

func TestLongValuesOfAnObjectAreNotCopied(t *testing.T) {
	c := newTestReconciler(t)
	long := strings.Repeat("a", 1<<20)
	for name, status := range map[string]map[string]any{
		"phase": {"phase": long},
		"host":  {"phase": "Ready", "URL": "https://" + long},
		"path":  {"phase": "Ready", "URL": "https://prod.example.org/" + long},
	} {
		ws := mounted("ws", "prod")
		c.evaluate(ws.Spec.Mount.Reference, kubeCluster("org", "prod", status)).show(ws)
		content, err := json.Marshal(ws)
		if err != nil || len(content) > 4<<10 || ws.Status.Phase != corev1alpha1.LogicalClusterPhaseUnavailable {
			t.Errorf("%s: the workspace is %s and has %d bytes: %v", name, ws.Status.Phase, len(content), err)
		}
	}
}

func TestTheURLStaysWhileTheServerIsUnavailable(t *testing.T) {
	ws := mounted("ws", "prod")
	observation{url: "https://a"}.show(ws)
	missing("gone").show(ws)
	if ws.Spec.URL != "https://a" || ws.Generation != 1 || ws.Status.Phase != corev1alpha1.LogicalClusterPhaseUnavailable {
		t.Errorf("got %+v", ws)
	}
	observation{url: "https://b"}.show(ws)
	if ws.Spec.URL != "https://b" || ws.Generation != 2 || ws.Status.Phase != corev1alpha1.LogicalClusterPhaseReady {
		t.Errorf("got %+v", ws)
	}
}

func TestOnlyMountedWorkspacesAreRemembered(t *testing.T) {
	c := newTestReconciler(t)
	plain := mounted("plain", "")
	plain.Spec.Mount = nil
	a, b := mounted("a", "prod"), mounted("b", "prod")
	for _, ws := range []*tenancyv1alpha1.Workspace{plain, a, b} {
		c.workspaceChanged(nil, ws)
	}
	if len(c.mounted) != 1 || len(c.mounted[mountedFrom(a)]) != 2 {
		t.Fatalf("got %v", c.mounted)
	}
	c.workspaceChanged(a, nil)
	if len(c.mounted[mountedFrom(b)]) != 1 {
		t.Errorf("got %v", c.mounted)
	}
	c.workspaceChanged(b, nil)
	if len(c.mounted) != 0 {
		t.Errorf("got %v", c.mounted)
	}
}

// A mount of an object in another cluster, of another group or of another name is another mount.
func TestAnEventEnqueuesTheMountsOfItsObject(t *testing.T) {
	other := clusters
	other.Group = "example.net"
	for name, test := range map[string]struct {
		event    func(*reconciler)
		concerns bool
	}{
		"changed":         {func(c *reconciler) { c.Changed(clusters, kubeCluster("org", "prod", nil)) }, true},
		"deleted":         {func(c *reconciler) { c.Deleted(clusters, kubeCluster("org", "prod", nil)) }, true},
		"relisted":        {func(c *reconciler) { c.Relisted(clusters) }, true},
		"another cluster": {func(c *reconciler) { c.Changed(clusters, kubeCluster("com", "prod", nil)) }, false},
		"another name":    {func(c *reconciler) { c.Changed(clusters, kubeCluster("org", "test", nil)) }, false},
		"another group":   {func(c *reconciler) { c.Changed(other, kubeCluster("org", "prod", nil)) }, false},
		"another list":    {func(c *reconciler) { c.Relisted(other) }, false},
	} {
		c := newTestReconciler(t)
		queued := 0
		c.enqueue = func(informers.Key) { queued++ }
		c.workspaceChanged(nil, mounted("a", "prod"))
		queued = 0
		test.event(c)
		if (queued == 1) != test.concerns {
			t.Errorf("%s: %d reconciliations", name, queued)
		}
	}
}
