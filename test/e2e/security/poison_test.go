package security

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// usualPoisonTime is how long an ordinary run writes random objects. KCP_POISON sets a longer time.
const usualPoisonTime = 8 * time.Second

func poisonTime(t *testing.T) time.Duration {
	t.Helper()
	long := os.Getenv("KCP_POISON")
	if long == "" {
		return usualPoisonTime
	}
	d, err := time.ParseDuration(long)
	if err != nil {
		t.Fatalf("KCP_POISON: %v", err)
	}
	return d
}

// systemDefinitions returns the definitions of kcp's own resources.
func systemDefinitions(t *testing.T) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	files, err := filepath.Glob("../../../server/internal/apis/customresources/system/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("found no definitions: %v", err)
	}
	var all []*apiextensionsv1.CustomResourceDefinition
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(content, crd); err != nil {
			t.Fatal(err)
		}
		all = append(all, crd)
	}
	return all
}

func TestServerToleratesEveryStoredValue(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile, err := environment.ca.Issue(dir, "client")
	if err != nil {
		t.Fatal(err)
	}
	const prefix = "/poisoned"
	begin := func() *kcptest.Server {
		return kcptest.StartIn(t, dir, "--etcd-prefix="+prefix, "--etcd-servers="+environment.etcdURL,
			"--etcd-cafile="+environment.ca.File, "--etcd-certfile="+certFile, "--etcd-keyfile="+keyFile)
	}
	server := begin()
	t.Cleanup(func() {
		if content, err := os.ReadFile(server.Log); err == nil && os.Getenv("KCP_LOG") != "" {
			_ = os.WriteFile(os.Getenv("KCP_LOG"), content, 0o600)
		}
	})
	definitions := systemDefinitions(t)
	c := server.Organization(t, kcptest.Alice)
	c.CreateWorkspace(t, kcptest.Alice, kcptest.Workspace("fuzzed", "", ""))
	fuzzed := server.Named(logicalClusterOf(t, c, "fuzzed"))
	f := newFuzz(t, server, fuzzed, definitions)
	f.run(poisonTime(t))
	f.report()

	c.CreateWorkspace(t, kcptest.Alice, kcptest.Workspace("poisoned", "", ""))
	poisoned := server.Named(logicalClusterOf(t, c, "poisoned"))
	keys := poisonCluster(t, prefix, poisoned.Name, definitions)
	inService(t, server, "before the restart")
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	server = begin()
	inService(t, server, "after the restart")
	c = server.Named(c.Name)
	poisoned = server.Named(poisoned.Name)
	reported(t, server, poisoned)
	damaged := poisoned.Dynamic(t, kcptest.Alice).Resource(endpointSlices)
	for _, name := range []string{"garbage", "conditions"} {
		if err := damaged.Delete(kcptest.Context(t), name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("deleting %s as its owner: %v", name, err)
		}
	}

	// The rest is deleted with its cluster, whose LogicalCluster object is also corrupt.
	put(t, prefix+"/core.kcp.io/logicalclusters/customresources/"+poisoned.Name+"/cluster", "garbage")
	workspaces := c.Dynamic(t, kcptest.Alice).Resource(kcptest.Workspaces)
	if err := workspaces.Delete(kcptest.Context(t), "poisoned", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "the workspace is gone", func(ctx context.Context) error {
		ws, err := workspaces.Get(ctx, "poisoned", metav1.GetOptions{})
		if err == nil {
			return fmt.Errorf("it still exists, with status %v", ws.Object["status"])
		}
		return kcptest.Gone(err)
	})
	for _, key := range keys {
		if found, err := environment.etcd.Get(t.Context(), key, clientv3.WithCountOnly()); err != nil || found.Count > 0 {
			t.Errorf("%s remains: %v", key, err)
		}
	}
}

var endpointSlices = schema.GroupVersionResource{Group: "apis.kcp.io", Version: "v1alpha1", Resource: "apiexportendpointslices"}

// logicalClusterOf returns the logical cluster of a workspace.
func logicalClusterOf(t *testing.T, c *kcptest.Cluster, name string) string {
	t.Helper()
	return c.GetWorkspace(t, name).Spec.Cluster
}

func put(t *testing.T, key, value string) {
	t.Helper()
	if _, err := environment.etcd.Put(t.Context(), key, value); err != nil {
		t.Fatal(err)
	}
}

// poisonCluster writes values that no API accepts for every system resource, and for built-in ones, and returns their keys.
func poisonCluster(t *testing.T, prefix, cluster string, definitions []*apiextensionsv1.CustomResourceDefinition) []string {
	t.Helper()
	var keys []string
	poison := func(key, value string) {
		put(t, key, value)
		keys = append(keys, key)
	}
	for _, crd := range definitions {
		if crd.Name == "logicalclusters.core.kcp.io" {
			continue // the last object
		}
		below := fmt.Sprintf("%s/%s/%s/customresources/%s/", prefix, crd.Spec.Group, crd.Spec.Names.Plural, cluster)
		stored := crd.Spec.Versions[0].Name
		for _, v := range crd.Spec.Versions {
			if v.Storage {
				stored = v.Name
			}
		}
		object := func(name, rest string) string {
			return fmt.Sprintf(`{"apiVersion":"%s/%s","kind":%q,"metadata":{"name":%q,"annotations":{"kcp.io/cluster":%q}},%s}`, crd.Spec.Group, stored, crd.Spec.Names.Kind, name, cluster, rest)
		}
		if onlyInRoot[crd.Name] {
			put(t, fmt.Sprintf("%s/%s/%s/customresources/root/garbage", prefix, crd.Spec.Group, crd.Spec.Names.Plural), `{"kind"`)
			continue
		}
		poison(below+"garbage", `{"kind"`)
		poison(below+"type", object("type", `"spec":"text"`))
		poison(below+"conditions", object("conditions", `"status":{"conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2020-01-01t00:00:00z"}]}`))
		poison(below+"elsewhere", strings.Replace(object("elsewhere", `"spec":{}`), cluster, "root", 1))
	}
	for _, key := range []string{
		"/core/configmaps/" + cluster + "/default/", "/core/secrets/" + cluster + "/default/", "/core/serviceaccounts/" + cluster + "/default/", "/core/resourcequotas/" + cluster + "/default/",
		"/rbac.authorization.k8s.io/roles/" + cluster + "/default/", "/rbac.authorization.k8s.io/clusterroles/" + cluster + "/", "/core/namespaces/" + cluster + "/",
		"/apiextensions.k8s.io/customresourcedefinitions/" + cluster + "/", "/admissionregistration.k8s.io/validatingadmissionpolicies/" + cluster + "/",
	} {
		poison(prefix+key+"garbage", "k8s\x00\x0agarbage")
		poison(prefix+key+"text", "text")
	}
	return keys
}

// inService fails the test unless the server is ready and its controllers work.
func inService(t *testing.T, server *kcptest.Server, when string) {
	t.Helper()
	if code, body := get(t, server, "/readyz"); code != http.StatusOK {
		t.Fatalf("%s: /readyz returned %d: %s", when, code, body)
	}
	root := server.Named("root")
	root.CreateWorkspace(t, kcptest.Masters, kcptest.Workspace("w"+kcptest.Suffix(), "", ""))
	c := server.Cluster(t)
	c.Apply(t, notesDefinition)
	c.WaitForDefinition(t, "notes.security.test")
	c.Grant(t, kcptest.Bob, "view")
	c.Apply(t, "apiVersion: apis.kcp.io/v1alpha2\nkind: APIExport\nmetadata: {name: e}\nspec: {}\n")
	kcptest.Eventually(t, when+": an APIExport gets its slice", func(ctx context.Context) error {
		_, err := c.Dynamic(t, kcptest.Masters).Resource(endpointSlices).Get(ctx, "e", metav1.GetOptions{})
		return err
	})
}

func get(t *testing.T, server *kcptest.Server, path string) (int, string) {
	t.Helper()
	client, err := rest.HTTPClientFor(server.Config(kcptest.Masters))
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Get(server.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// reported fails the test unless the log, a metric and an Event report the unreadable objects.
func reported(t *testing.T, server *kcptest.Server, c *kcptest.Cluster) {
	t.Helper()
	if _, metrics := get(t, server, "/metrics"); !strings.Contains(metrics, "\nkcp_storage_unreadable_objects_total ") || strings.Contains(metrics, "\nkcp_storage_unreadable_objects_total 0") {
		t.Error("the metric does not count the unreadable objects")
	}
	if log, err := os.ReadFile(server.Log); err != nil || !strings.Contains(string(log), "Stored object is set aside") || !strings.Contains(string(log), c.Name) {
		t.Errorf("the log does not mention the unreadable objects: %v", err)
	}
	kcptest.Eventually(t, "an Event reports the unreadable object to its owner", func(ctx context.Context) error {
		events, err := c.Kube(t, kcptest.Alice).CoreV1().Events("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.Reason == "Unreadable" && e.InvolvedObject.Name == "garbage" {
				return nil
			}
		}
		return fmt.Errorf("found %d other Events", len(events.Items))
	})
}

// fuzz writes random objects that the schemas of kcp's own resources allow.
type fuzz struct {
	t     *testing.T
	kinds []fuzzedKind
	seed  uint64

	mu      sync.Mutex
	written map[string]int
	refused map[string]int
	reasons map[string]string // the last reasons
}

type fuzzedKind struct {
	client dynamic.ResourceInterface
	gvk    schema.GroupVersionKind
	schema *apiextensionsv1.JSONSchemaProps
	status bool
}

// onlyInRoot are the definitions that only the logical cluster root serves.
var onlyInRoot = map[string]bool{"shards.core.kcp.io": true, "logicalclustermigrations.migration.kcp.io": true}

func newFuzz(t *testing.T, server *kcptest.Server, c *kcptest.Cluster, definitions []*apiextensionsv1.CustomResourceDefinition) *fuzz {
	f := &fuzz{t: t, seed: poisonSeed(t), written: map[string]int{}, refused: map[string]int{}, reasons: map[string]string{}}
	for _, crd := range definitions {
		at := c
		if onlyInRoot[crd.Name] {
			at = server.Named("root")
		}
		for _, v := range crd.Spec.Versions {
			gvk := schema.GroupVersionKind{Group: crd.Spec.Group, Version: v.Name, Kind: crd.Spec.Names.Kind}
			f.kinds = append(f.kinds, fuzzedKind{
				client: at.Dynamic(t, kcptest.Masters).Resource(gvk.GroupVersion().WithResource(crd.Spec.Names.Plural)),
				gvk:    gvk, schema: v.Schema.OpenAPIV3Schema, status: v.Subresources != nil && v.Subresources.Status != nil,
			})
		}
	}
	return f
}

// writers is the number of concurrent writers.
const writers = 4

func (f *fuzz) run(d time.Duration) {
	ctx, cancel := context.WithTimeout(f.t.Context(), d)
	defer cancel()
	var running sync.WaitGroup
	for w := range writers {
		random := newGenerator(f.seed + uint64(w))
		running.Go(func() {
			for n := w; ctx.Err() == nil; n += writers {
				f.write(ctx, random, f.kinds[(n/writers)%len(f.kinds)], fmt.Sprintf("f%d", n))
			}
		})
	}
	running.Wait()
}

// write creates an object, and updates it and its status.
func (f *fuzz) write(ctx context.Context, random *generator, k fuzzedKind, name string) {
	object := random.object(k.gvk, k.schema)
	plain := random.minimal(k.gvk, k.schema)
	switch k.gvk.Kind {
	case "LogicalCluster":
		name = "cluster"
	case "APIResourceSchema":
		name += ".widgets.example.org"
		plain.Object["spec"] = map[string]any{
			"group": "example.org", "names": map[string]any{"plural": "widgets", "singular": "widget", "kind": "Widget"}, "scope": "Cluster",
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{"type": "object"}}},
		}
	case "Shard":
		unschedulable := map[string]string{corev1alpha1.UnschedulableAnnotation: "true"}
		object.SetAnnotations(unschedulable)
		plain.SetAnnotations(unschedulable)
		plain.Object["spec"] = map[string]any{"baseURL": "https://example.org"}
	}
	object.SetName(name)
	plain.SetName(name)
	_, err := k.client.Create(ctx, object, metav1.CreateOptions{})
	if !f.note(ctx, "create", k, err) {
		_, err := k.client.Create(ctx, plain, metav1.CreateOptions{}) // for updates
		f.note(ctx, "plain", k, err)
	}
	verbs := []string{"update"}
	if k.status {
		verbs = append(verbs, "status", "apply", "status", "apply")
	}
	for _, verb := range verbs {
		stored, err := k.client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return
		}
		other := random.object(k.gvk, k.schema)
		for _, part := range []string{"spec", "status"} {
			if (verb == "update") == (part == "spec") || stored.Object[part] == nil {
				stored.Object[part] = other.Object[part]
			}
		}
		switch verb {
		case "update":
			stored.SetManagedFields(other.GetManagedFields())
			_, err = k.client.Update(ctx, stored, metav1.UpdateOptions{})
		case "status":
			_, err = k.client.UpdateStatus(ctx, stored, metav1.UpdateOptions{})
		case "apply":
			stored.SetManagedFields(nil)
			stored.SetResourceVersion("")
			_, err = k.client.ApplyStatus(ctx, name, stored, metav1.ApplyOptions{FieldManager: "fuzz", Force: true})
		}
		f.note(ctx, verb, k, err)
	}
}

// note records the result of a write, and reports whether it succeeded. An error other than a refusal is a defect.
func (f *fuzz) note(ctx context.Context, verb string, k fuzzedKind, err error) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := k.gvk.Kind + " " + k.gvk.Version + " " + verb
	if err == nil {
		f.written[key]++
		return true
	}
	if ctx.Err() != nil {
		return false
	}
	f.refused[key]++
	f.reasons[key] = err.Error()
	var status apierrors.APIStatus
	invalidPatch := strings.Contains(err.Error(), "failed to create typed patch object") // upstream returns 500
	if !errors.As(err, &status) || status.Status().Code >= http.StatusInternalServerError && !invalidPatch {
		f.t.Errorf("seed %d: %s of a %s: %v", f.seed, verb, k.gvk, err)
	}
	return false
}

// report logs the counts, and fails if no object of a kind was stored. An APIConversion requires the APIResourceSchema of the same name.
func (f *fuzz) report() {
	f.t.Helper()
	for _, k := range f.kinds {
		written := 0
		for _, verb := range []string{"create", "plain", "update", "status", "apply"} {
			key := k.gvk.Kind + " " + k.gvk.Version + " " + verb
			written += f.written[key]
			f.t.Logf("%s: %d stored, %d refused, the last with %.300s", key, f.written[key], f.refused[key], f.reasons[key])
		}
		if written == 0 && k.gvk.Kind != "APIConversion" {
			f.t.Errorf("seed %d: no random %s was stored", f.seed, k.gvk)
		}
	}
}
