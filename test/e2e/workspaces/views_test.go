package workspaces

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// waiting is all that a view of waiting logical clusters serves.
var waiting = []*metav1.APIResourceList{{
	TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "core.kcp.io/v1alpha1",
	APIResources: []metav1.APIResource{
		{
			Name: "logicalclusters", SingularName: "logicalcluster", Kind: "LogicalCluster", Categories: []string{"kcp"},
			Verbs: metav1.Verbs{"get", "list", "watch"}, StorageVersionHash: "l84hS/aun10=",
		},
		{Name: "logicalclusters/status", Kind: "LogicalCluster", Verbs: metav1.Verbs{"get", "patch", "update"}},
	},
}}

func TestViewsOfWaitingClustersServeOnlyLogicalClusters(t *testing.T) {
	t.Parallel()
	org := server.Organization(t, kcptest.Alice)
	root := server.Named("root")
	for _, view := range []string{"initializing", "terminating"} {
		url := stepped(t, org, view, view, map[string]any{strings.TrimSuffix(view, "ing") + "or": true})
		path := url[strings.Index(url, "/services/"):]
		for _, c := range []struct {
			path string
			user kcptest.User
		}{{path + "/clusters/*", kcptest.Victor}, {path, kcptest.Victor}, {"/services/" + view + "workspaces/something", kcptest.Masters}} {
			client, err := discovery.NewDiscoveryClientForConfig(server.At(c.user, c.path))
			if err != nil {
				t.Fatal(err)
			}
			groups, resources, err := client.ServerGroupsAndResources()
			if err != nil {
				t.Fatal(err)
			}
			groups = slices.DeleteFunc(groups, func(g *metav1.APIGroup) bool { return len(g.Versions) == 0 })
			if len(groups) != 1 || groups[0].Name != "core.kcp.io" {
				t.Errorf("%s: got groups %v", c.path, groups)
			}
			if diff := cmp.Diff(waiting, resources); diff != "" {
				t.Errorf("%s: resources differ:\n%s", c.path, diff)
			}
			if _, err := client.ServerVersion(); err != nil {
				t.Errorf("%s: reading the version: %v", c.path, err)
			}
			documents, err := client.OpenAPIV3().Paths()
			if err != nil {
				t.Fatal(err)
			}
			want := []string{"api", "apis", "apis/core.kcp.io", "apis/core.kcp.io/v1alpha1", "version"}
			if got := slices.Sorted(maps.Keys(documents)); !slices.Equal(got, want) {
				t.Errorf("%s describes %v, want %v", c.path, got, want)
			}
			code, body := root.Raw(t, c.user, http.MethodGet, c.path+"/", nil, "")
			var index metav1.RootPaths
			if err := json.Unmarshal(body, &index); err != nil || code != http.StatusOK {
				t.Fatalf("%s: got %d %s", c.path, code, body)
			}
			if want := []string{"/api", "/apis", "/apis/core.kcp.io", "/apis/core.kcp.io/v1alpha1", "/openapi/v2", "/openapi/v3", "/version"}; !slices.Equal(index.Paths, want) {
				t.Errorf("%s: got paths %v, want %v", c.path, index.Paths, want)
			}
		}
		// Users without permission get no information, and neither do controllers of another type.
		for _, path := range []string{path, path + "/clusters/*", "/services/" + view + "workspaces/something"} {
			if code, body := root.Raw(t, kcptest.Stranger, http.MethodGet, path+"/apis", nil, ""); code != http.StatusForbidden {
				t.Errorf("%s as a user without permissions: got %d %s", path, code, body)
			}
		}
		for path, want := range map[string]int{
			"/services/" + view + "workspaces/something/apis":                                                 http.StatusForbidden,
			"/services/" + view + "workspaces/something/clusters/*/apis/core.kcp.io/v1alpha1/logicalclusters": http.StatusForbidden,
			path + "/apis/core.kcp.io/v1alpha1/logicalclusters":                                               http.StatusNotFound,
			path + "/metrics": http.StatusNotFound,
		} {
			if code, body := root.Raw(t, kcptest.Victor, http.MethodGet, path, nil, ""); code != want {
				t.Errorf("%s: got %d %s, want %d", path, code, body, want)
			}
		}
	}
}

func TestTerminatorReceivesStartOfDeletionAsModification(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	org := server.Organization(t, kcptest.Alice)
	url := stepped(t, org, "watched", "terminating", map[string]any{"terminator": true})
	parent := org.CreateWorkspace(t, kcptest.Alice, kcptest.Workspace("parent", "", ""))
	parent.CreateWorkspace(t, kcptest.Alice, kcptest.Workspace("going", org.Name, "watched"))
	server.UseShardOf(parent.GetWorkspace(t, "going"), url)
	clusters := at(t, url, "*", kcptest.Victor).Resource(kcptest.LogicalClusters)
	found, err := clusters.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	seen, err := clusters.Watch(ctx, metav1.ListOptions{ResourceVersion: found.GetResourceVersion(), AllowWatchBookmarks: true})
	if err != nil {
		t.Fatal(err)
	}
	defer seen.Stop()
	if err := parent.Dynamic(t, kcptest.Alice).Resource(kcptest.Workspaces).Delete(ctx, "going", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if e := first(ctx, seen); e.Type != watch.Modified {
		t.Errorf("the start of the deletion is delivered as %v", e)
	}
	again, err := clusters.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Stop()
	if e := first(ctx, again); e.Type != watch.Added {
		t.Errorf("a watch that starts later delivers %v", e)
	}
}

// first returns the first event that is not a bookmark.
func first(ctx context.Context, w watch.Interface) watch.Event {
	for {
		select {
		case <-ctx.Done():
			return watch.Event{}
		case e := <-w.ResultChan():
			if e.Type != watch.Bookmark {
				return e
			}
		}
	}
}
