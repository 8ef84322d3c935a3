package virtualworkspaces

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// views are objects that configure the view of a mounted workspace.
const views = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: views.example.org}
spec:
  group: example.org
  names: {plural: views, singular: view, kind: View, listKind: ViewList}
  scope: Cluster
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// mounting returns a workspace that mounts a View.
const mounting = `
apiVersion: example.org/v1
kind: View
metadata: {name: notes}
---
apiVersion: tenancy.kcp.io/v1alpha1
kind: Workspace
metadata: {name: notes}
spec: {mount: {ref: {apiVersion: example.org/v1, kind: View, name: notes}}}
`

// Users who only know the URL of the server reach a program beside it through a workspace that mounts it.
func TestMountedWorkspaceServesViewForItsUsers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	content, key, err := cert.GenerateSelfSignedCertKey("localhost", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	n := reserve(t)
	n.ca = filepath.Join(dir, "notes.crt")
	keyFile := filepath.Join(dir, "notes.key")
	for file, content := range map[string][]byte{n.ca: content, keyFile: key} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	own := kcptest.StartIn(t, t.TempDir(), "--mount-proxy-hosts="+strings.TrimPrefix(n.url, "https://"), "--mount-proxy-ca-file="+n.ca)
	n.run(t, own.Kubeconfig(), "--tls-cert-file="+n.ca, "--tls-private-key-file="+keyFile)

	c := own.Cluster(t)
	grant(t, n, c, kcptest.Alice)
	c.Apply(t, views)
	c.WaitForDefinition(t, "views.example.org")
	c.Apply(t, mounting)
	c.Kubectl(t, "patch", "view", "notes", "--subresource=status", "--type=merge", "--patch",
		fmt.Sprintf(`{"status": {"phase": "Ready", "URL": %q}}`, n.url+"/services/notes/clusters/"+c.Name))
	mounted := own.Named(c.Name + ":notes")
	of := func(user kcptest.User) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			_, err := mounted.Dynamic(t, user).Resource(resource).Namespace("default").List(ctx, metav1.ListOptions{})
			return err
		}
	}
	kcptest.Eventually(t, "the mounted workspace has the notes", of(kcptest.Alice))
	ctx := kcptest.Context(t)
	if _, err := mounted.Dynamic(t, kcptest.Alice).Resource(resource).Namespace("default").Create(ctx, note("one", "milk"), metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := c.Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default").Get(ctx, "one", metav1.GetOptions{}); err != nil {
		t.Errorf("the note is not in its workspace: %v", err)
	}
	kcptest.WantReason(t, of(kcptest.Bob)(ctx), metav1.StatusReasonForbidden)
}
