package sharding

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/test/e2e/kcptest"
	"github.com/kcplane/kcp/test/sharded"
)

var exports = apisv1alpha2.SchemeGroupVersion.WithResource("apiexports")

// inFeed returns what a shard offers to others, by cluster and name.
func (h holder) inFeed(shard, resource string) (map[string]metav1.PartialObjectMetadata, error) {
	found := map[string]metav1.PartialObjectMetadata{}
	token := ""
	for {
		code, body := h.send(http.MethodGet, installation.Cache.URL+"/services/cache/shards/"+shard+"/clusters/*/apis/"+resource+"?continue="+token,
			"", nil)
		page := metav1.PartialObjectMetadataList{}
		if err := json.Unmarshal([]byte(body), &page); err != nil || code != http.StatusOK {
			return nil, fmt.Errorf("got %d: %.300s", code, body)
		}
		for _, item := range page.Items {
			found[item.Annotations["kcp.io/cluster"]+"/"+item.Name] = item
		}
		if token = page.Continue; token == "" {
			return found, nil
		}
	}
}

// eventuallyOffers waits until a shard offers an object, or no longer does.
func (h holder) eventuallyOffers(want bool, shard, resource, cluster, name string) metav1.PartialObjectMetadata {
	h.t.Helper()
	var offered metav1.PartialObjectMetadata
	kcptest.Eventually(h.t, fmt.Sprintf("shard %s offers %s %s of %s: %t", shard, resource, name, cluster, want), func(context.Context) error {
		found, err := h.inFeed(shard, resource)
		is := false
		if offered, is = found[cluster+"/"+name]; err == nil && is != want {
			err = fmt.Errorf("it offers %d others", len(found))
		}
		return err
	})
	return offered
}

func TestExportsAreOfferedWithTheWayFromRoot(t *testing.T) {
	const exportsPath, edges, clusters = "apis.kcp.io/v1alpha2/apiexports", "tenancy.kcp.io/v1alpha1/workspaces",
		"core.kcp.io/v1alpha1/logicalclusters"
	other := installation.Shards[1].Name
	reader := peer(t, sharded.KindShard, other)
	org := "offers-" + kcptest.Suffix()
	parent := root().CreateWorkspace(t, kcptest.Masters, kcptest.On(sharded.Root, kcptest.Workspace(org, "", "")))
	team := parent.CreateWorkspace(t, kcptest.Masters, kcptest.On(sharded.Root, kcptest.Workspace("team", "", "")))
	export := func() *unstructured.Unstructured {
		return kcptest.Parse(t, "apiVersion: apis.kcp.io/v1alpha2\nkind: APIExport\nmetadata: {name: widgets}\nspec: {}\n")
	}
	created, err := team.Objects(t, exports).Create(kcptest.Context(t), export(), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	orgCluster, teamCluster := root().GetWorkspace(t, org).Spec.Cluster, parent.GetWorkspace(t, "team").Spec.Cluster
	offered := reader.eventuallyOffers(true, sharded.Root, exportsPath, teamCluster, "widgets")
	if uid := offered.Annotations["cache.kcp.io/original-resource-UID"]; uid != string(created.GetUID()) ||
		offered.Annotations["kcp.io/shard"] != sharded.Root || offered.Annotations["internal.kcp.io/incarnation"] == "" {
		t.Errorf("got annotations %v", offered.Annotations)
	}
	reader.eventuallyOffers(true, sharded.Root, clusters, teamCluster, "cluster")
	reader.eventuallyOffers(true, sharded.Root, clusters, orgCluster, "cluster")
	reader.eventuallyOffers(true, sharded.Root, edges, orgCluster, "team")
	edge := reader.eventuallyOffers(true, sharded.Root, edges, "root", org)
	if edge.Annotations["core.kcp.io/shard"] != sharded.Root || strings.Contains(fmt.Sprint(edge.Annotations), "owner") {
		t.Errorf("the edge has the annotations %v", edge.Annotations)
	}

	if err := team.Objects(t, exports).Delete(kcptest.Context(t), "widgets", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	reader.eventuallyOffers(false, sharded.Root, exportsPath, teamCluster, "widgets")
}

func TestTheShardOfAParentOffersWhereAnotherShardHasAChild(t *testing.T) {
	other := installation.Shards[1]
	reader := peer(t, sharded.KindShard, sharded.Root)
	name := "far-" + kcptest.Suffix()
	root().CreateWorkspace(t, kcptest.Masters, kcptest.On(other.Name, kcptest.Workspace(name, "", "")))
	cluster := root().GetWorkspace(t, name).Spec.Cluster
	there := other.Server().Named(cluster)
	manifest := "apiVersion: apis.kcp.io/v1alpha2\nkind: APIExport\nmetadata: {name: widgets}\nspec: {}\n"
	if _, err := there.Objects(t, exports).Create(kcptest.Context(t), kcptest.Parse(t, manifest), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	reader.eventuallyOffers(true, other.Name, "apis.kcp.io/v1alpha2/apiexports", cluster, "widgets")
	edge := reader.eventuallyOffers(true, sharded.Root, "tenancy.kcp.io/v1alpha1/workspaces", "root", name)
	if edge.Annotations["core.kcp.io/shard"] != other.Name {
		t.Errorf("the edge has the annotations %v", edge.Annotations)
	}
}
