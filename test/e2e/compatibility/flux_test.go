package compatibility

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

var (
	gitRepositories = schema.GroupVersionResource{Group: "source.toolkit.fluxcd.io", Version: "v1", Resource: "gitrepositories"}
	kustomizations  = schema.GroupVersionResource{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Resource: "kustomizations"}
)

const kustomization = `
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: shop, namespace: default}
spec: {url: "https://git.example.com/shop", interval: 1h}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: shop, namespace: default}
spec:
  interval: 2s
  prune: true
  wait: true
  targetNamespace: default
  sourceRef: {kind: GitRepository, name: shop}
`

// artifacts replaces source-controller: it serves archives, and writes their URLs to the status of a source.
type artifacts struct {
	server *httptest.Server

	mutex   sync.Mutex
	archive map[string][]byte // by path
}

func newArtifacts(t *testing.T) *artifacts {
	a := &artifacts{archive: map[string][]byte{}}
	a.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mutex.Lock()
		defer a.mutex.Unlock()
		_, _ = w.Write(a.archive[r.URL.Path])
	}))
	t.Cleanup(a.server.Close)
	return a
}

// publish sets the content of a source at a revision.
func (a *artifacts) publish(t *testing.T, w workspace, source schema.GroupVersionResource, name, revision string, files map[string]string) {
	t.Helper()
	archive := pack(t, files)
	path := "/" + source.Resource + "/" + name + "/" + revision + ".tar.gz"
	a.mutex.Lock()
	a.archive[path] = archive
	a.mutex.Unlock()
	now := time.Now().UTC().Format(time.RFC3339)
	status := map[string]any{"status": map[string]any{
		"observedGeneration": 1,
		"artifact": map[string]any{
			"url": a.server.URL + path, "path": path[1:], "revision": revision, "lastUpdateTime": now,
			"digest": fmt.Sprintf("sha256:%x", sha256.Sum256(archive)), "size": len(archive),
		},
		"conditions": []any{map[string]any{
			"type": "Ready", "status": "True", "reason": "Succeeded", "message": "stored", "lastTransitionTime": now, "observedGeneration": 1,
		}},
	}}
	patch, err := json.Marshal(status)
	if err != nil {
		t.Fatal(err)
	}
	sources := w.Dynamic(t, w.account).Resource(source).Namespace("default")
	if _, err := sources.Patch(kcptest.Context(t), name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
}

func pack(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var packed bytes.Buffer
	zipped := gzip.NewWriter(&packed)
	archive := tar.NewWriter(zipped)
	for name, content := range files {
		if err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}

// startFlux installs the definitions of Flux, and starts one of its controllers.
func startFlux(t *testing.T, w workspace, controller string) {
	t.Helper()
	kcptest.FluxSource.Install(t, w.Cluster, 0)
	w.Kubectl(t, "apply", "--server-side", "--filename="+moduleFile(t, "test/compatibility", "github.com/fluxcd/"+controller, "config/crd/bases"))
	w.Kubectl(t, "wait", "crd", "--all", "--for=condition=Established", "--timeout=60s")
	w.start(t, []string{"RUNTIME_NAMESPACE=default"}, controller,
		"--metrics-addr="+freeAddress(t), "--health-addr="+freeAddress(t), "--enable-leader-election=false")
}

// kustomizeController applies the content of a source, corrects drift, and prunes objects that were removed from the source.
func kustomizeController(t *testing.T, w workspace) {
	startFlux(t, w, "kustomize-controller")
	w.Apply(t, kustomization)
	source := newArtifacts(t)
	source.publish(t, w, gitRepositories, "shop", "main@sha1:1111", map[string]string{"apple.yaml": configMap("apple", "1"), "pear.yaml": configMap("pear", "2")})
	awaitReady(t, w, kustomizations, "shop", "main@sha1:1111")
	awaitPrice(t, w, "apple", "1")
	awaitPrice(t, w, "pear", "2")
	w.Kubectl(t, "patch", "configmap", "apple", "--type=merge", `--patch={"data":{"price":"100"}}`)
	awaitPrice(t, w, "apple", "1")
	source.publish(t, w, gitRepositories, "shop", "main@sha1:2222", map[string]string{"apple.yaml": configMap("apple", "3")})
	awaitReady(t, w, kustomizations, "shop", "main@sha1:2222")
	awaitPrice(t, w, "apple", "3")
	awaitGone(t, w, "pear")
	w.Kubectl(t, "delete", "kustomization", "shop", "--namespace=default", "--timeout=60s")
	awaitGone(t, w, "apple")
}

// awaitReady waits until a Flux object is ready for its current spec, with a revision if its status has one.
func awaitReady(t *testing.T, w workspace, resource schema.GroupVersionResource, name, revision string) {
	t.Helper()
	kcptest.Eventually(t, name+" is ready with "+revision, func(ctx context.Context) error {
		object, err := w.Dynamic(t, w.account).Resource(resource).Namespace("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		status, err := json.Marshal(object.Object["status"])
		if err != nil {
			return err
		}
		var got struct {
			LastAppliedRevision string
			Conditions          []metav1.Condition
		}
		if err := json.Unmarshal(status, &got); err != nil {
			return err
		}
		for _, c := range got.Conditions {
			if c.Type == "Ready" && c.Status == metav1.ConditionTrue && c.ObservedGeneration == object.GetGeneration() && got.LastAppliedRevision == revision {
				return nil
			}
		}
		return fmt.Errorf("got status %s", status)
	})
}
