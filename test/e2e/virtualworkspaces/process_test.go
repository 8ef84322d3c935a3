package virtualworkspaces

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

const plants = `
apiVersion: apis.kcp.io/v1alpha1
kind: APIResourceSchema
metadata: {name: v1.plants.example.org}
spec:
  group: example.org
  names: {plural: plants, singular: plant, kind: Plant, listKind: PlantList}
  scope: Cluster
  versions:
  - {name: v1, served: true, storage: true, schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: apis.kcp.io/v1alpha2
kind: APIExport
metadata: {name: plants}
spec:
  resources:
  - {group: example.org, name: plants, schema: v1.plants.example.org, storage: {crd: {}}}
`

func ports(t *testing.T, n int) (free []int) {
	t.Helper()
	for range n {
		port, err := kcptest.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		free = append(free, port)
	}
	return free
}

func TestAProcessOfItsOwnServesTheVirtualWorkspacesOfAShard(t *testing.T) {
	free := ports(t, 2)
	etcd, url := free[0], fmt.Sprintf("https://127.0.0.1:%d", free[1])
	shard := kcptest.StartIn(t, t.TempDir(), fmt.Sprintf("--embedded-etcd-client-port=%d", etcd), "--run-virtual-workspaces=false",
		"--shard-virtual-workspace-url="+url)
	views := kcptest.StartViewsIn(t, t.TempDir(), free[1], fmt.Sprintf("--etcd-servers=http://127.0.0.1:%d", etcd),
		"--service-account-private-key-file="+shard.Root+"/sa.key")
	provider, consumer := shard.Cluster(t), shard.Cluster(t)
	provider.Apply(t, plants)
	consumer.Bind(t, provider, "plants")
	plant := schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "plants"}
	rose := kcptest.Parse(t, "{apiVersion: example.org/v1, kind: Plant, metadata: {name: rose}}")
	if _, err := consumer.Objects(t, plant).Create(kcptest.Context(t), rose, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	path := ""
	slices := provider.Objects(t, apisv1alpha1.SchemeGroupVersion.WithResource("apiexportendpointslices"))
	kcptest.Eventually(t, "the endpoint slice has the URL of the process", func(ctx context.Context) error {
		slice, err := slices.Get(ctx, "plants", metav1.GetOptions{})
		if err != nil {
			return err
		}
		endpoints, _, _ := unstructured.NestedSlice(slice.Object, "status", "endpoints")
		if len(endpoints) == 1 {
			path, _ = strings.CutPrefix(fmt.Sprint(endpoints[0].(map[string]any)["url"]), url)
		}
		if path == "" {
			return fmt.Errorf("got %v", endpoints)
		}
		return nil
	})
	all := views.DynamicAt(t, kcptest.Masters, path+"/clusters/*").Resource(plant)
	kcptest.Eventually(t, "the process serves the view", func(ctx context.Context) error {
		list, err := all.List(ctx, metav1.ListOptions{})
		if err == nil && (len(list.Items) != 1 || list.Items[0].GetName() != "rose") {
			err = fmt.Errorf("got %d plants", len(list.Items))
		}
		return err
	})
	if code, body := views.Get(t, kcptest.Alice, path+"/clusters/*/apis/example.org/v1/plants"); code != http.StatusForbidden {
		t.Errorf("a user without a role: got %d %s", code, body)
	}
	if code, body := shard.Get(t, kcptest.Masters, path+"/clusters/*/apis"); code != http.StatusNotFound || !strings.Contains(body, url) {
		t.Errorf("the view at the shard: got %d %s, want 404 with the URL of the process", code, body)
	}
	for _, other := range []string{"/clusters/root/api", "/clusters/" + consumer.Name + "/apis/example.org/v1/plants", "/services/peers/v1/review"} {
		if code, body := views.Get(t, kcptest.Masters, other); code != http.StatusNotFound {
			t.Errorf("%s at the process: got %d %s", other, code, body)
		}
	}
}
