package mounts

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

var kubeClusters = schema.GroupVersionResource{Group: "contrib.example.org", Version: "v1", Resource: "kubeclusters"}

func definition() *apiextensionsv1.CustomResourceDefinition {
	preserve := true
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "kubeclusters.contrib.example.org"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: kubeClusters.Group, Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "kubeclusters", Singular: "kubecluster", Kind: "KubeCluster", ListKind: "KubeClusterList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: kubeClusters.Version, Served: true, Storage: true, Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &preserve}},
			}},
		},
	}
}

// mounting returns a workspace that mounts a KubeCluster.
func mounting(name, from string) *unstructured.Unstructured {
	ws := kcptest.Workspace(name, "", "")
	_ = unstructured.SetNestedMap(ws.Object, map[string]any{"apiVersion": kubeClusters.GroupVersion().String(), "kind": "KubeCluster", "name": from}, "spec", "mount", "ref")
	return ws
}

func create(t *testing.T, in *kcptest.Cluster, ws *unstructured.Unstructured) {
	t.Helper()
	if _, err := in.Dynamic(t, kcptest.Alice).Resource(kcptest.Workspaces).Create(kcptest.Context(t), ws, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// point creates a KubeCluster if it does not exist, and writes its status.
func point(t *testing.T, in *kcptest.Cluster, name, phase, url string) {
	t.Helper()
	ctx := kcptest.Context(t)
	client := in.Dynamic(t, kcptest.Alice).Resource(kubeClusters)
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": kubeClusters.GroupVersion().String(), "kind": "KubeCluster", "metadata": map[string]any{"name": name},
	}}
	if _, err := client.Get(ctx, name, metav1.GetOptions{}); err != nil {
		if _, err := client.Create(ctx, obj, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"phase": phase, "URL": url}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
}

// want waits until a mounted workspace has a phase, and a condition with a reason and a message that contains text.
func want(t *testing.T, in *kcptest.Cluster, name string, phase corev1alpha1.LogicalClusterPhase, reason, text string) {
	t.Helper()
	kcptest.Eventually(t, fmt.Sprintf("workspace %s is %s", name, phase), func(context.Context) error {
		got := in.GetWorkspace(t, name)
		for _, c := range got.Status.Conditions {
			if c.Type == "WorkspaceMountReady" && c.Reason == reason && strings.Contains(c.Message, text) && got.Status.Phase == phase {
				return nil
			}
		}
		return fmt.Errorf("got status %+v", got.Status)
	})
}

// get lists the ConfigMaps of a workspace, and returns the code and the Status of the response.
func get(t *testing.T, path string, user kcptest.User, header http.Header) (int, metav1.Status) {
	t.Helper()
	code, body := server.Named("root").Raw(t, user, http.MethodGet, "/clusters/"+path+"/api/v1/namespaces/default/configmaps", header, "")
	status := metav1.Status{}
	if err := json.Unmarshal(body, &status); err != nil {
		t.Fatalf("%s returned %d %s", path, code, body)
	}
	return code, status
}

// wantCode waits until a workspace returns a code: the status of the object takes effect shortly after the phase.
func wantCode(t *testing.T, path string, wanted int) {
	t.Helper()
	kcptest.Eventually(t, fmt.Sprintf("%s returns %d", path, wanted), func(context.Context) error {
		if code, status := get(t, path, kcptest.Alice, nil); code != wanted {
			return fmt.Errorf("got %d %s", code, status.Message)
		}
		return nil
	})
}

func TestMountedWorkspaceFollowsObject(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	org := server.Organization(t, kcptest.Alice)
	behind := org.CreateWorkspace(t, kcptest.Alice, kcptest.Workspace("behind", "", ""))
	path := org.Name + ":mounted"
	create(t, org, mounting("mounted", "prod"))
	want(t, org, "mounted", "Unavailable", "MountObjectNotFound", "KubeCluster of contrib.example.org/v1 is not served")
	wantCode(t, path, http.StatusServiceUnavailable)
	org.Define(t, definition())
	point(t, org, "prod", "Connecting", "")
	want(t, org, "mounted", "Unavailable", "MountObjectNotReady", `"Connecting"`)
	url := org.GetWorkspace(t, "behind").Spec.URL
	point(t, org, "prod", "Ready", url)
	want(t, org, "mounted", "Ready", "", "")
	if ws := org.GetWorkspace(t, "mounted"); ws.Spec.URL != url || ws.Spec.Cluster != "" || ws.Spec.Type != nil || ws.Labels["tenancy.kcp.io/phase"] != "Ready" {
		t.Errorf("got workspace %+v", ws)
	}
	wantCode(t, path, http.StatusOK)

	// Both workspaces have the same objects.
	mounted := server.Named(path)
	watch, err := mounted.Kube(t, kcptest.Alice).CoreV1().ConfigMaps("default").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	mounted.Kubectl(t, "create", "configmap", "made-through-the-mount")
	for event := range watch.ResultChan() {
		if configMap, ok := event.Object.(*corev1.ConfigMap); ok && configMap.Name == "made-through-the-mount" {
			break
		}
	}
	if ctx.Err() != nil {
		t.Error("a watch through the mount did not receive the object")
	}
	if _, err := behind.Kube(t, kcptest.Alice).CoreV1().ConfigMaps("default").Get(ctx, "made-through-the-mount", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}

	point(t, org, "prod", "Unknown", url)
	want(t, org, "mounted", "Unavailable", "MountObjectNotReady", `"Unknown"`)
	wantCode(t, path, http.StatusServiceUnavailable)
	for range watch.ResultChan() { // the watch ends with the mount
	}
	if ctx.Err() != nil {
		t.Error("a watch continues without the mount")
	}
	point(t, org, "prod", "Ready", elsewhere.URL)
	want(t, org, "mounted", "Ready", "", "")
	kcptest.Eventually(t, "the mount forwards to the other server", func(context.Context) error {
		if _, status := get(t, path, kcptest.Alice, nil); status.Kind != "Elsewhere" {
			return fmt.Errorf("got %+v", status)
		}
		return nil
	})
	org.Kubectl(t, "delete", "kubecluster", "prod")
	want(t, org, "mounted", "Unavailable", "MountObjectNotFound", "there is no KubeCluster prod")
	org.Kubectl(t, "delete", "workspace", "mounted")
	wantCode(t, path, http.StatusNotFound)
	if _, err := behind.Kube(t, kcptest.Alice).CoreV1().ConfigMaps("default").Get(ctx, "made-through-the-mount", metav1.GetOptions{}); err != nil {
		t.Errorf("the mounted content was deleted with the mount: %v", err)
	}
}
