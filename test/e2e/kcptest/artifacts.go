package kcptest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
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
	"k8s.io/client-go/dynamic"
)

// Artifacts replaces source-controller of Flux: it serves archives, and writes their URLs to the status of a source.
type Artifacts struct {
	server *httptest.Server

	mutex   sync.Mutex
	archive map[string][]byte // by path
}

// NewArtifacts returns artifacts that are served until the test ends.
func NewArtifacts(t testing.TB) *Artifacts {
	a := &Artifacts{archive: map[string][]byte{}}
	a.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mutex.Lock()
		defer a.mutex.Unlock()
		_, _ = w.Write(a.archive[r.URL.Path])
	}))
	t.Cleanup(a.server.Close)
	return a
}

// Publish sets the content of a source in the namespace default at a revision.
func (a *Artifacts) Publish(t testing.TB, client dynamic.Interface, source schema.GroupVersionResource, name, revision string,
	files map[string]string) {
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
	sources := client.Resource(source).Namespace("default")
	if _, err := sources.Patch(Context(t), name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
}

func pack(t testing.TB, files map[string]string) []byte {
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

// FluxKustomization are objects of Flux, shop in the namespace default, which apply an artifact.
const FluxKustomization = `
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
