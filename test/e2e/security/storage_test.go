package security

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

type contextType = context.Context

const firstKey, secondKey = "key-1", "key-2"

// encryption returns a configuration whose first key encrypts, and whose other keys only decrypt.
func encryption(keys ...string) string {
	var list strings.Builder
	for _, key := range keys {
		secret := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte(key[len(key)-1:]), 32))
		fmt.Fprintf(&list, "      - {name: %s, secret: %s}\n", key, secret)
	}
	return `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - secretbox:
      keys:
` + list.String() + `  - identity: {}
- resources: [notes.security.test]
  providers:
  - aesgcm:
      keys:
` + list.String()
}

var notes = schema.GroupVersionResource{Group: "security.test", Version: "v1", Resource: "notes"}

const notesDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: notes.security.test}
spec:
  group: security.test
  scope: Namespaced
  names: {plural: notes, singular: note, kind: Note}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {text: {type: string}}}}
`

const plain = "must-not-be-readable"

// store creates a Secret and a custom resource with the same text.
func store(t *testing.T, c *kcptest.Cluster, name string) {
	t.Helper()
	_, err := c.Kube(t, kcptest.Masters).CoreV1().Secrets("default").Create(kcptest.Context(t),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"text": plain}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	note := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "security.test/v1", "kind": "Note", "metadata": map[string]any{"name": name}, "text": plain}}
	if _, err := c.Dynamic(t, kcptest.Masters).Resource(notes).Namespace("default").Create(kcptest.Context(t), note, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// read returns the texts of both.
func read(t *testing.T, c *kcptest.Cluster, name string) (secret, note string, err error) {
	t.Helper()
	s, err := c.Kube(t, kcptest.Masters).CoreV1().Secrets("default").Get(kcptest.Context(t), name, metav1.GetOptions{})
	if err != nil {
		return "", "", err
	}
	n, err := c.Dynamic(t, kcptest.Masters).Resource(notes).Namespace("default").Get(kcptest.Context(t), name, metav1.GetOptions{})
	if err != nil {
		return "", "", err
	}
	note, _, _ = unstructured.NestedString(n.Object, "text")
	return string(s.Data["text"]), note, nil
}

// keysOf returns the etcd keys of both, each with the prefix that its encrypted value has.
func keysOf(cluster, name string) map[string]string {
	return map[string]string{
		"/registry/core/secrets/" + cluster + "/default/" + name: "k8s:enc:secretbox:v1:",
		noteKey(cluster, name): "k8s:enc:aesgcm:v1:",
	}
}

func noteKey(cluster, name string) string {
	return "/registry/security.test/notes/customresources/" + cluster + "/default/" + name
}

// stored returns the value of a key in etcd.
func stored(t *testing.T, key string) []byte {
	t.Helper()
	found, err := environment.etcd.Get(t.Context(), key)
	if err != nil || len(found.Kvs) != 1 {
		t.Fatalf("%s: %v, %v", key, found, err)
	}
	return found.Kvs[0].Value
}

func TestEncryptedContentIsBoundToItsCluster(t *testing.T) {
	server := environment.server
	one, two := server.Cluster(t), server.Cluster(t)
	for _, c := range []*kcptest.Cluster{one, two} {
		c.Apply(t, notesDefinition)
		c.WaitForDefinition(t, "notes.security.test")
		store(t, c, "kept")
		if secret, note, err := read(t, c, "kept"); err != nil || secret != plain || note != plain {
			t.Errorf("read %q and %q: %v", secret, note, err)
		}
	}
	for _, c := range []*kcptest.Cluster{one, two} {
		for key, prefix := range keysOf(c.Name, "kept") {
			value := stored(t, key)
			if !bytes.HasPrefix(value, []byte(prefix+firstKey+":")) || bytes.Contains(value, []byte(plain)) ||
				bytes.Contains(value, []byte(base64.StdEncoding.EncodeToString([]byte(plain)))) {
				t.Errorf("%s is stored as %q", key, value)
			}
		}
	}
	plainMap := "/registry/core/configmaps/" + one.Name + "/default/kube-root-ca.crt"
	if value := stored(t, plainMap); bytes.HasPrefix(value, []byte("k8s:enc:")) {
		t.Errorf("%s is encrypted, but the configuration does not include it", plainMap)
	}
	// The key in etcd, which includes the cluster, is authenticated with the content: content of one cluster is invalid in another.
	if _, err := environment.etcd.Put(t.Context(), noteKey(two.Name, "kept"), string(stored(t, noteKey(one.Name, "kept")))); err != nil {
		t.Fatal(err)
	}
	_, err := two.Dynamic(t, kcptest.Masters).Resource(notes).Namespace("default").Get(kcptest.Context(t), "kept", metav1.GetOptions{})
	if err == nil || strings.Contains(err.Error(), plain) || strings.Contains(err.Error(), one.Name) {
		t.Errorf("reading the content of another cluster: %v", err)
	}
}

func TestEncryptionKeysCanBeRotated(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "encryption.yaml")
	write := func(keys ...string) {
		if err := os.WriteFile(file, []byte(encryption(keys...)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(firstKey)
	e := &environment
	certFile, keyFile, err := e.ca.Issue(dir, "client")
	if err != nil {
		t.Fatal(err)
	}
	const prefix = "/rotated"
	begin := func() *kcptest.Server {
		return kcptest.StartIn(t, dir, "--encryption-provider-config="+file, "--etcd-prefix="+prefix,
			"--etcd-servers="+e.etcdURL, "--etcd-cafile="+e.ca.File, "--etcd-certfile="+certFile, "--etcd-keyfile="+keyFile)
	}
	server := begin()
	c := server.Cluster(t)
	c.Apply(t, notesDefinition)
	c.WaitForDefinition(t, "notes.security.test")
	store(t, c, "old")
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	write(secondKey, firstKey)
	server = begin()
	c = server.Named(c.Name)
	c.WaitForDefinition(t, "notes.security.test")
	store(t, c, "new")
	for name, key := range map[string]string{"old": firstKey, "new": secondKey} {
		kcptest.Eventually(t, "both are readable", func(contextType) error {
			secret, note, err := read(t, c, name)
			if err == nil && (secret != plain || note != plain) {
				t.Fatalf("%s: read %q and %q", name, secret, note)
			}
			return err
		})
		for k, begin := range keysOf(c.Name, name) {
			value := stored(t, prefix+strings.TrimPrefix(k, "/registry"))
			if !bytes.HasPrefix(value, []byte(begin+key+":")) {
				t.Errorf("%s is not encrypted with %s", k, key)
			}
		}
	}
}
