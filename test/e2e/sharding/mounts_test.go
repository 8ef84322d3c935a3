package sharding

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// remotes are objects that workspaces are mounted from.
const remotes = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: remotes.example.org}
spec:
  group: example.org
  names: {plural: remotes, singular: remote, kind: Remote, listKind: RemoteList}
  scope: Cluster
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// mounted creates the workspace "mounted" in a parent, from an object with the URL of another workspace.
func mounted(t *testing.T, parent *kcptest.Cluster, url string) {
	t.Helper()
	parent.Apply(t, remotes)
	parent.WaitForDefinition(t, "remotes.example.org")
	parent.Apply(t, `
apiVersion: example.org/v1
kind: Remote
metadata: {name: remote}
---
apiVersion: tenancy.kcp.io/v1alpha1
kind: Workspace
metadata: {name: mounted}
spec: {mount: {ref: {apiVersion: example.org/v1, kind: Remote, name: remote}}}
`)
	lead(t, parent, url)
	kcptest.WaitForStatus(t, parent.Objects(t, kcptest.Workspaces), "mounted", "Ready", "phase")
}

// lead sets the URL of the mounted server.
func lead(t *testing.T, parent *kcptest.Cluster, url string) {
	t.Helper()
	parent.Kubectl(t, "patch", "remote", "remote", "--subresource=status", "--type=merge", "--patch",
		fmt.Sprintf(`{"status": {"phase": "Ready", "URL": %q}}`, url))
}

// The parent with the mount is on one shard, and the workspace behind the mount on another one.
func TestAWorkspaceOfAnotherShardIsMounted(t *testing.T) {
	for _, c := range [][2]string{{"root", "shard-1"}, {"shard-1", "shard-2"}, {"shard-2", "root"}, {"shard-1", "shard-1"}} {
		t.Run(c[0]+" mounts "+c[1], func(t *testing.T) {
			t.Parallel()
			name, parent := workspaceOn(t, shard(t, c[0]))
			behindName, behind := workspaceOn(t, shard(t, c[1]))
			behind.Grant(t, kcptest.Alice, "cluster-admin")
			parent.Grant(t, kcptest.Alice, "view")
			mounted(t, parent, root().GetWorkspace(t, behindName).Spec.URL)
			path := "root:" + name + ":mounted"
			for what, at := range map[string]*kcptest.Cluster{
				"through a proxy": through(0, path), "through another proxy": through(1, path), "at the shard": shard(t, c[0]).Server().Named(parent.Name + ":mounted"),
			} {
				usesMount(t, what, at.Kube(t, kcptest.Alice), behind)
				_, err := at.Kube(t, kcptest.Bob).CoreV1().ConfigMaps("default").List(kcptest.Context(t), metav1.ListOptions{})
				kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
			}
			entersMount(t, name, behindName)
			_, another := workspaceOn(t, shard(t, c[0]))
			movesMount(t, parent, path, another)
		})
	}
}

// usesMount writes through a mount, and reads and watches what is behind it.
func usesMount(t *testing.T, what string, client kubernetes.Interface, behind *kcptest.Cluster) {
	t.Helper()
	settings := client.CoreV1().ConfigMaps("default")
	kcptest.Eventually(t, "the mount is served "+what, func(ctx context.Context) error {
		_, err := settings.List(ctx, metav1.ListOptions{})
		return err
	})
	ctx := kcptest.Context(t)
	seen, err := settings.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatalf("watching %s: %v", what, err)
	}
	defer seen.Stop()
	made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "made-"}}
	if made, err = settings.Create(ctx, made, metav1.CreateOptions{}); err != nil {
		t.Fatalf("creating %s: %v", what, err)
	}
	for e := range seen.ResultChan() {
		if found, ok := e.Object.(*corev1.ConfigMap); ok && found.Name == made.Name {
			break
		}
	}
	if _, err := behind.Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default").Get(ctx, made.Name, metav1.GetOptions{}); err != nil {
		t.Errorf("what was created %s is not behind the mount: %v", what, err)
	}
}

// entersMount enters a mounted workspace with kubectl, by its path and from its parent.
func entersMount(t *testing.T, parent, behind string) {
	t.Helper()
	kubectl := through(0, "root:"+parent).Command(t, "kubectl", kcptest.Alice).WithPlugins(t)
	want := fmt.Sprintf("Current workspace is %q, a mount of %q.\n", "root:"+parent+":mounted", "root:"+behind)
	for _, to := range []string{"mounted", ":root:" + parent + ":mounted"} {
		if out := kubectl.Run(t, "ws", to); out != want {
			t.Errorf("kubectl ws %s printed %q", to, out)
		}
		if out := kubectl.Run(t, "get", "configmaps", "--namespace=default", "--output=name"); !strings.Contains(out, "configmap/made-") {
			t.Errorf("the entered workspace has %q", out)
		}
		kubectl.Run(t, "ws", ":root:"+parent)
	}
}

// movesMount leads a mount to another workspace, which the proxies follow.
func movesMount(t *testing.T, parent *kcptest.Cluster, path string, to *kcptest.Cluster) {
	t.Helper()
	to.Grant(t, kcptest.Alice, "cluster-admin")
	to.Kubectl(t, "create", "configmap", "sign")
	lead(t, parent, installation.URL()+"/clusters/"+to.Name)
	for n := range installation.Proxies {
		kcptest.Eventually(t, "a proxy follows the mount", func(ctx context.Context) error {
			_, err := through(n, path).Kube(t, kcptest.Alice).CoreV1().ConfigMaps("default").Get(ctx, "sign", metav1.GetOptions{})
			return err
		})
	}
}
