package mounts

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// ready returns an organization with a ready workspace that mounts a URL.
func ready(t *testing.T, url string) (org *kcptest.Cluster, path string) {
	t.Helper()
	org = server.Organization(t, kcptest.Alice)
	org.Define(t, definition())
	point(t, org, "prod", "Ready", url)
	create(t, org, mounting("mounted", "prod"))
	want(t, org, "mounted", "Ready", "", "")
	path = org.Name + ":mounted"
	kcptest.Eventually(t, path+" forwards requests", func(context.Context) error {
		if code, status := get(t, path, kcptest.Masters, nil); code == http.StatusNotFound || code == http.StatusServiceUnavailable {
			return fmt.Errorf("got %d %s", code, status.Message)
		}
		return nil
	})
	return org, path
}

// installation returns the URL with which users reach the server.
func installation(t *testing.T) string {
	t.Helper()
	shard := &corev1alpha1.Shard{}
	u, err := server.Named("root").Dynamic(t, kcptest.Masters).Resource(corev1alpha1.SchemeGroupVersion.WithResource("shards")).Get(kcptest.Context(t), "root", metav1.GetOptions{})
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, shard)
	}
	if err != nil {
		t.Fatal(err)
	}
	return shard.Spec.ExternalURL
}

func TestMountsGrantNoPermissions(t *testing.T) {
	t.Parallel()
	bobs := server.Organization(t, kcptest.Bob)
	_, path := ready(t, server.Named("root").GetWorkspace(t, strings.TrimPrefix(bobs.Name, "root:")).Spec.URL)
	for user, wanted := range map[string]int{"alice": http.StatusForbidden, "bob": http.StatusOK, "stranger": http.StatusForbidden} {
		who := map[string]kcptest.User{"alice": kcptest.Alice, "bob": kcptest.Bob, "stranger": kcptest.Stranger}[user]
		if code, status := get(t, path, who, nil); code != wanted {
			t.Errorf("%s: got %d %s, want %d", user, code, status.Message, wanted)
		}
	}
	// Users that this server does not authenticate are refused.
	if code, status := get(t, path, kcptest.Anonymous, nil); code != http.StatusForbidden || !strings.Contains(status.Message, "mounted") {
		t.Errorf("anonymous: got %d %s", code, status.Message)
	}
	if code, _ := get(t, path, kcptest.User{Token: "forged"}, nil); code != http.StatusUnauthorized {
		t.Errorf("a forged token: got %d", code)
	}
}

func TestMountsForwardOnlyIdentityOfClient(t *testing.T) {
	t.Parallel()
	_, path := ready(t, elsewhere.URL+remembered)
	header := http.Header{"X-Remote-User": {"admin"}, "X-Remote-Group": {"system:masters"}, "X-Remote-Extra-Scopes": {"all"}, "Cookie": {"a=b"}}
	if code, status := get(t, path, kcptest.Alice, header); code != http.StatusOK || status.Kind != "Elsewhere" {
		t.Fatalf("got %d %+v", code, status)
	}
	got := last.Load()
	if got.URL.Path != remembered+"/api/v1/namespaces/default/configmaps" || got.Header.Get("Authorization") != "Bearer "+kcptest.Alice.Token {
		t.Errorf("the server received %s with %v", got.URL, got.Header)
	}
	for name := range got.Header {
		if strings.HasPrefix(name, "X-Remote-") || strings.HasPrefix(name, "Impersonate-") || name == "Cookie" || name == "X-Forwarded-For" {
			t.Errorf("the server received the header %s: %v", name, got.Header[name])
		}
	}
	for name, value := range map[string]string{"Impersonate-User": "admin", "Impersonate-Group": "system:masters"} {
		if code, status := get(t, path, kcptest.Masters, http.Header{name: {value}}); code != http.StatusForbidden || !strings.Contains(status.Message, "impersonation") {
			t.Errorf("%s: got %d %s", name, code, status.Message)
		}
	}
}

func TestMountsForwardOnlyToConfiguredHosts(t *testing.T) {
	t.Parallel()
	org := server.Organization(t, kcptest.Alice)
	org.Define(t, definition())
	create(t, org, mounting("mounted", "prod"))
	for url, text := range map[string]string{
		"https://evil.example.com":                                               "may not use the host evil.example.com:443",
		"https://169.254.169.254/latest/meta-data":                               "may not use the host",
		"http" + strings.TrimPrefix(elsewhere.URL, "https"):                      "https://",
		installation(t) + "/metrics":                                             "neither that of a workspace",
		installation(t) + "/clusters/root/api/v1/namespaces/x":                   "neither that of a workspace",
		"https://user:password@" + strings.TrimPrefix(elsewhere.URL, "https://"): "more than a host",
	} {
		point(t, org, "prod", "Ready", url)
		want(t, org, "mounted", "Unavailable", "MountObjectNotReady", text)
		if ws := org.GetWorkspace(t, "mounted"); ws.Spec.URL != "" {
			t.Errorf("%s was set as URL %s", url, ws.Spec.URL)
		}
		wantCode(t, org.Name+":mounted", http.StatusServiceUnavailable)
	}
}

func TestLoopsOfMountsAreRefused(t *testing.T) {
	t.Parallel()
	org, path := ready(t, elsewhere.URL)
	create(t, org, mounting("back", "back"))
	point(t, org, "prod", "Ready", installation(t)+"/clusters/"+org.Name+":back")
	point(t, org, "back", "Ready", installation(t)+"/clusters/"+path)
	want(t, org, "back", "Ready", "", "")
	wantCode(t, path, http.StatusInternalServerError)
	if _, status := get(t, path, kcptest.Alice, nil); !strings.Contains(status.Message, "loop") {
		t.Errorf("got %+v", status)
	}
}

func TestMountedWorkspaceHasNoLocalContent(t *testing.T) {
	t.Parallel()
	org, path := ready(t, elsewhere.URL)
	// It has no workspaces, and no logical cluster with a name.
	for _, below := range []string{path + ":child", path + ":child:grandchild"} {
		if code, status := get(t, below, kcptest.Masters, nil); code != http.StatusNotFound {
			t.Errorf("%s returned %d %+v", below, code, status)
		}
	}
	ws := org.GetWorkspace(t, "mounted")
	if ws.Spec.Cluster != "" || len(ws.Finalizers) != 0 || ws.Annotations["internal.tenancy.kcp.io/cluster"] != "" || ws.Annotations["core.kcp.io/shard"] != "" {
		t.Errorf("got workspace %+v", ws)
	}
	for _, trick := range []string{"/clusters/" + path + "/clusters/root/api", "/clusters/" + path + "/../root/api", "/clusters/" + path + "/a%2f..%2fb", "/clusters/" + path + "/metrics"} {
		if code, body := server.Named("root").Raw(t, kcptest.Masters, http.MethodGet, trick, nil, ""); code == http.StatusOK || strings.Contains(string(body), "Elsewhere") {
			t.Errorf("%s returned %d %s", trick, code, body)
		}
	}
}

func TestInvalidMountsAreRefused(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	org, _ := ready(t, elsewhere.URL)
	workspaces := org.Dynamic(t, kcptest.Alice).Resource(kcptest.Workspaces)
	with := func(value any, fields ...string) *unstructured.Unstructured {
		ws := mounting("ws-"+kcptest.Suffix(), "prod")
		if err := unstructured.SetNestedField(ws.Object, value, fields...); err != nil {
			t.Fatal(err)
		}
		return ws
	}
	for text, ws := range map[string]*unstructured.Unstructured{
		"mutually exclusive":               with(map[string]any{"name": "universal", "path": "root"}, "spec", "type"),
		"needs apiVersion, as <group>":     with("a/b/c", "spec", "mount", "ref", "apiVersion"),
		"kind and name":                    with("", "spec", "mount", "ref", "name"),
		"built-in type":                    with(map[string]any{"apiVersion": "v1", "kind": "Secret", "name": "x", "namespace": "default"}, "spec", "mount", "ref"),
		"only be set by system privileged": with("https://evil", "spec", "URL"),
		"can only be set by system":        with("root", "spec", "cluster"),
		"spec.mount.ref.kind: Required":    with(map[string]any{"apiVersion": "a/v1", "name": "x"}, "spec", "mount", "ref"),
	} {
		if _, err := workspaces.Create(ctx, ws, metav1.CreateOptions{}); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want %q", err, text)
		}
	}
	for _, patch := range []string{`{"spec":{"mount":null}}`, `{"spec":{"mount":{"ref":{"name":"other"}}}}`, `{"spec":{"URL":"https://evil"}}`, `{"spec":{"type":{"name":"universal"}}}`} {
		if _, err := workspaces.Patch(ctx, "mounted", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err == nil {
			t.Errorf("%s was accepted", patch)
		}
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"phase": "Inactive"}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = workspaces.Patch(ctx, "mounted", types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
}
