package kcpaccess

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// serve starts a server of objects by their paths.
func serve(t *testing.T, objects map[string]string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := objects[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			text = `{"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": "nothing is there"}`
		}
		fmt.Fprint(w, text)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func workspaceAt(shard, cluster string) string {
	text, _ := json.Marshal(map[string]any{"metadata": metav1.ObjectMeta{Annotations: map[string]string{shardAnnotation: shard}},
		"spec": map[string]string{"cluster": cluster}})
	return string(text)
}

// A workspace is at the shard that its Workspace says, which is at the shard of its parent.
func TestAWorkspaceIsFoundOnItsShard(t *testing.T) {
	const workspaces = "/apis/tenancy.kcp.io/v1alpha1/workspaces/"
	west := serve(t, map[string]string{
		"/clusters/2org" + workspaces + "team": workspaceAt("west", "3team"),
		"/clusters/2org" + workspaces + "back": workspaceAt("root", "4back"),
		"/clusters/2org" + workspaces + "new":  workspaceAt("", ""),
	})
	root := serve(t, map[string]string{
		"/clusters/root" + workspaces + "org":                  workspaceAt("west", "2org"),
		"/clusters/root" + workspaces + "lost":                 workspaceAt("gone", "9lost"),
		"/clusters/root/apis/core.kcp.io/v1alpha1/shards/west": `{"spec": {"baseURL": "` + west + `/"}}`,
	})
	for _, test := range []struct{ path, url, cluster, message string }{
		{"root", root, "root", ""},
		{"root:org", west, "2org", ""},
		{"root:org:team", west, "3team", ""},
		{"root:org:back", root, "4back", ""},
		{"2fx8q1z4m0p7k3vd", root, "2fx8q1z4m0p7k3vd", ""},
		{"root:org:new", "", "", "workspace new of root:org:new is not scheduled yet"},
		{"root:none", "", "", "nothing is there"},
		{"root:lost", "", "", "nothing is there"},
	} {
		url, cluster, err := locate(t.Context(), http.DefaultClient, root, test.path)
		if url != test.url || cluster != test.cluster || (err == nil) != (test.message == "") ||
			err != nil && !strings.Contains(err.Error(), test.message) {
			t.Errorf("%s: got %s %s, %v", test.path, url, cluster, err)
		}
		if test.message == "nothing is there" && !apierrors.IsNotFound(err) {
			t.Errorf("%s: got %v, which is not recognized", test.path, err)
		}
	}
}
