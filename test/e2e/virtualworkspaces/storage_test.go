package virtualworkspaces

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// exportOfNotes is an export whose objects are served at the URL of a View.
const exportOfNotes = `
apiVersion: apis.kcp.io/v1alpha2
kind: APIExport
metadata: {name: notes}
spec:
  resources:
  - group: example.org
    name: notes
    schema: v1.notes.example.org
    storage: {virtual: {identityHash: notes, reference: {apiGroup: example.org, kind: View, name: notes}}}
`

// robot is the identity of the server for the example.
var robot = kcptest.User{Name: "kcp-shard"}

// library returns the example, and a server whose workspace root:library can publish the objects of the example.
func library(t *testing.T) (notes, *kcptest.Server) {
	t.Helper()
	dir := t.TempDir()
	authority, err := kcptest.NewAuthority(dir, "authority")
	if err != nil {
		t.Fatal(err)
	}
	serving, servingKey, err := authority.Issue(dir, "notes")
	if err != nil {
		t.Fatal(err)
	}
	proving, provingKey, err := authority.Issue(dir, robot.Name)
	if err != nil {
		t.Fatal(err)
	}
	n := reserve(t)
	n.ca = authority.File
	own := kcptest.StartIn(t, t.TempDir(), "--virtual-storage-endpoints=root:library="+n.url+"/services/notes", "--virtual-storage-ca-file="+authority.File,
		"--virtual-storage-client-cert-file="+proving, "--virtual-storage-client-key-file="+provingKey)
	n.run(t, own.Kubeconfig(), "--tls-cert-file="+serving, "--tls-private-key-file="+servingKey, "--client-ca-file="+authority.File)
	return n, own
}

// provide creates a workspace that exports notes, which are served at a URL.
func provide(t *testing.T, own *kcptest.Server, name, url string) *kcptest.Cluster {
	t.Helper()
	p := own.Named("root").CreateWorkspace(t, kcptest.Masters, kcptest.Workspace(name, "", ""))
	p.Apply(t, views)
	p.WaitForDefinition(t, "views.example.org")
	kubectl := p.Command(t, "kubectl", kcptest.Masters).WithPlugins(t)
	p.Apply(t, kubectl.Run(t, "kcp", "crd", "snapshot", "--prefix=v1", "--filename="+filepath.Join(repository, "docs", "examples", "notes", "definition.yaml")))
	p.Apply(t, "apiVersion: example.org/v1\nkind: View\nmetadata: {name: notes}\n")
	lead(t, p, url)
	p.Apply(t, exportOfNotes)
	kcptest.WaitForStatus(t, p.Objects(t, kcptest.APIExports), "notes", "", "identityHash")
	return p
}

// lead sets the URL in the View of a provider.
func lead(t *testing.T, p *kcptest.Cluster, url string) {
	t.Helper()
	p.Kubectl(t, "patch", "view", "notes", "--subresource=status", "--type=merge", "--patch", fmt.Sprintf(`{"status": {"endpoints": [{"url": %q}]}}`, url))
}

// reader creates a cluster with a binding to notes, and with notes that Alice and the server can read.
func reader(t *testing.T, own *kcptest.Server, p *kcptest.Cluster, names ...string) *kcptest.Cluster {
	t.Helper()
	c := own.Cluster(t)
	c.Apply(t, writer)
	for _, user := range []kcptest.User{kcptest.Alice, robot} {
		c.Kubectl(t, "create", "clusterrolebinding", "notes-"+user.Name, "--clusterrole=notes", "--user="+user.Name)
		c.Kubectl(t, "create", "clusterrolebinding", "access-"+user.Name, "--clusterrole="+kcptest.EntryRole, "--user="+user.Name)
	}
	c.Bind(t, p, "notes")
	for _, name := range names {
		keep(t, c, name)
	}
	return c
}

// keep creates a ConfigMap that is a note.
func keep(t *testing.T, c *kcptest.Cluster, name string) {
	t.Helper()
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"example.org/note": "true"}}, Data: map[string]string{"text": "milk"}}
	if _, err := c.Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default").Create(kcptest.Context(t), m, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// holds waits until a cluster has exactly the notes with those names.
func holds(t *testing.T, c *kcptest.Cluster, names ...string) {
	t.Helper()
	kcptest.Eventually(t, fmt.Sprintf("the notes are %v", names), func(ctx context.Context) error {
		list, err := c.Dynamic(t, kcptest.Alice).Resource(resource).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var seen []string
		for _, item := range list.Items {
			if cluster := item.GetAnnotations()["kcp.io/cluster"]; cluster != c.Name {
				return fmt.Errorf("%s has the cluster %s", item.GetName(), cluster)
			}
			seen = append(seen, item.GetName())
		}
		if fmt.Sprint(seen) != fmt.Sprint(names) {
			return fmt.Errorf("got %v", seen)
		}
		return nil
	})
}

func TestConsumersReadObjectsFromViewOfProvider(t *testing.T) {
	t.Parallel()
	n, own := library(t)
	p := provide(t, own, "library", n.url+"/services/notes")
	c, other := reader(t, own, p, "one", "two"), reader(t, own, p, "three")
	holds(t, c, "one", "two")
	holds(t, other, "three")
	ctx := kcptest.Context(t)
	if out := c.Kubectl(t, "get", "notes", "--no-headers", "one"); !strings.Contains(out, "milk") {
		t.Errorf("got output %q", out)
	}
	if out := c.Kubectl(t, "api-resources", "--api-group=example.org", "--verbs=create", "--output=name"); out != "" {
		t.Errorf("%s can be created", out)
	}
	mine := c.Dynamic(t, kcptest.Alice).Resource(resource).Namespace("default")
	seen, err := mine.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer seen.Stop()
	keep(t, c, "zero")
	for e := range seen.ResultChan() {
		u, ok := e.Object.(*unstructured.Unstructured)
		if !ok || e.Type != watch.Added {
			t.Fatalf("the watch delivered %v", e)
		}
		if u.GetName() == "zero" {
			break
		}
	}
	_, err = mine.Create(ctx, note("own", "x"), metav1.CreateOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonMethodNotAllowed)
	_, err = mine.Get(ctx, "none", metav1.GetOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonNotFound)
	_, err = c.Dynamic(t, kcptest.Bob).Resource(resource).Namespace("default").List(ctx, metav1.ListOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	code, body := c.Raw(t, kcptest.Alice, http.MethodGet, "/clusters/"+c.Name+"/apis/example.org/v1/notes", http.Header{"X-Kcp-Virtual-Resource-Hops": {"4"}}, "")
	if code != http.StatusInternalServerError || !strings.Contains(string(body), "may form a loop") {
		t.Errorf("a request that was forwarded four times: got %d %s", code, body)
	}

	// A watch ends when the View changes.
	lead(t, p, n.url+"/services/other")
	for range seen.ResultChan() {
	}
	_, err = mine.List(ctx, metav1.ListOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonServiceUnavailable)
}

func TestProvidersCannotRedirectServer(t *testing.T) {
	t.Parallel()
	n, own := library(t)
	p := provide(t, own, "library", n.url+"/services/notes")
	c := reader(t, own, p, "one")
	holds(t, c, "one")
	// The example belongs to another provider, so this provider cannot use it in its slice.
	thief := provide(t, own, "thief", n.url+"/services/notes")
	victim := reader(t, own, thief, "private")
	_, err := victim.Dynamic(t, kcptest.Alice).Resource(resource).List(kcptest.Context(t), metav1.ListOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonServiceUnavailable)
	for _, url := range []string{
		own.URL + "/services/apiexport/root/tenancy.kcp.io", own.URL + "/clusters/root", own.URL, "https://127.0.0.1:2379/services/notes", "http://169.254.169.254/latest",
		n.url + "/services/notes/clusters/" + victim.Name, n.url + "/services/notes/../notes/clusters/" + victim.Name, n.url + "/healthz", n.url + "/services/notes?a=b",
	} {
		lead(t, p, url)
		kcptest.Eventually(t, url+" is not used", func(ctx context.Context) error {
			_, err := c.Dynamic(t, kcptest.Alice).Resource(resource).List(ctx, metav1.ListOptions{})
			if err == nil || !strings.Contains(err.Error(), "allowed") {
				return fmt.Errorf("consumers got %v", err)
			}
			return nil
		})
	}
	lead(t, p, n.url+"/services/notes")
	holds(t, c, "one")
}
