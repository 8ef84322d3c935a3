package compatibility

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

var (
	gitRepositories = schema.GroupVersionResource{Group: "source.toolkit.fluxcd.io", Version: "v1", Resource: "gitrepositories"}
	kustomizations  = schema.GroupVersionResource{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Resource: "kustomizations"}
)

// startFlux installs the definitions of Flux, and starts one of its controllers.
func startFlux(t *testing.T, w workspace, controller string) {
	t.Helper()
	kcptest.FluxSource.Install(t, w.Cluster, 0)
	w.Kubectl(t, "apply", "--server-side", "--filename="+moduleFile(t, "test/compatibility", "github.com/fluxcd/"+controller, "config/crd/bases"))
	w.Kubectl(t, "wait", "crd", "--all", "--for=condition=Established", "--timeout=60s")
	w.start(t, []string{"RUNTIME_NAMESPACE=default"}, controller,
		"--metrics-addr="+kcptest.FreeAddress(t), "--health-addr="+kcptest.FreeAddress(t), "--enable-leader-election=false")
}

// kustomizeController applies the content of a source, corrects drift, and prunes objects that were removed from the source.
func kustomizeController(t *testing.T, w workspace) {
	startFlux(t, w, "kustomize-controller")
	w.Apply(t, kcptest.FluxKustomization)
	source := kcptest.NewArtifacts(t)
	source.Publish(t, w.Dynamic(t, w.account), gitRepositories, "shop", "main@sha1:1111", map[string]string{"apple.yaml": configMap("apple", "1"), "pear.yaml": configMap("pear", "2")})
	awaitReady(t, w, kustomizations, "shop", "main@sha1:1111")
	awaitPrice(t, w, "apple", "1")
	awaitPrice(t, w, "pear", "2")
	w.Kubectl(t, "patch", "configmap", "apple", "--type=merge", `--patch={"data":{"price":"100"}}`)
	awaitPrice(t, w, "apple", "1")
	source.Publish(t, w.Dynamic(t, w.account), gitRepositories, "shop", "main@sha1:2222", map[string]string{"apple.yaml": configMap("apple", "3")})
	awaitReady(t, w, kustomizations, "shop", "main@sha1:2222")
	awaitPrice(t, w, "apple", "3")
	awaitGone(t, w, "pear")
	w.Kubectl(t, "delete", "kustomization", "shop", "--namespace=default", "--timeout=60s")
	awaitGone(t, w, "apple")
}

// awaitReady waits until a Flux object is ready for its current spec, with a revision if its status has one.
func awaitReady(t *testing.T, w workspace, resource schema.GroupVersionResource, name, revision string) {
	t.Helper()
	kcptest.Eventually(t, name+" is ready with "+revision, func(ctx context.Context) error {
		object, err := w.Dynamic(t, w.account).Resource(resource).Namespace("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		status, err := json.Marshal(object.Object["status"])
		if err != nil {
			return err
		}
		var got struct {
			LastAppliedRevision string
			Conditions          []metav1.Condition
		}
		if err := json.Unmarshal(status, &got); err != nil {
			return err
		}
		for _, c := range got.Conditions {
			if c.Type == "Ready" && c.Status == metav1.ConditionTrue && c.ObservedGeneration == object.GetGeneration() && got.LastAppliedRevision == revision {
				return nil
			}
		}
		return fmt.Errorf("got status %s", status)
	})
}
