package fleet

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// corpusResources are those of the corpus that install does not import anyway, and ReplicaSets, which Flux lists.
var corpusResources = []string{
	"replicasets.apps",
	"statefulsets.apps", "daemonsets.apps", "cronjobs.batch", "poddisruptionbudgets.policy", "networkpolicies.networking.k8s.io",
}

// application is a file of the directory corpus: manifests as the documentation of many projects has them.
type application struct {
	name    string
	objects []*unstructured.Unstructured
}

// applyCorpus applies each application in a namespace of its own, except for those that the workspace refuses.
func applyCorpus(t *testing.T, w *kcptest.Cluster) (all []application) {
	t.Helper()
	files, err := filepath.Glob("corpus/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("the corpus is empty: %v", err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		a := application{name: strings.TrimSuffix(filepath.Base(file), ".yaml")}
		for document := range bytes.SplitSeq(content, []byte("\n---\n")) {
			u := &unstructured.Unstructured{}
			if err := yaml.Unmarshal(document, &u.Object); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if u.GetNamespace() == "" && u.GetKind() != "Namespace" {
				u.SetNamespace(a.name)
			}
			a.objects = append(a.objects, u)
		}
		w.Kubectl(t, "create", "namespace", a.name)
		apply := w.Command(t, "kubectl", kcptest.Masters).Input(a.manifests(t))
		if a.name == "bare-pod" {
			apply.Fail(t, "apply", "--filename=-")
			continue
		}
		apply.Run(t, "apply", "--filename=-")
		all = append(all, a)
	}
	return all
}

// manifests returns the manifests with their namespaces, as kubectl completes them.
func (a application) manifests(t *testing.T) string {
	t.Helper()
	var all []string
	for _, u := range a.objects {
		content, err := yaml.Marshal(u)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(content))
	}
	return strings.Join(all, "---\n")
}

// placesCorpus checks that all objects exist on the cluster. No pods run there: TestFleetOnHosts checks that.
func (f *fleet) placesCorpus(t *testing.T) {
	w := f.workspace(t, on("east"))
	stay := []string{"Namespace", "Role", "RoleBinding", "ServiceAccount"}
	for _, a := range applyCorpus(t, w) {
		for _, u := range a.objects {
			if slices.Contains(stay, u.GetKind()) {
				continue
			}
			resource, _ := meta.UnsafeGuessKindToResource(u.GroupVersionKind())
			objects := f.clusters["east"].dynamic.Resource(resource).Namespace(w.Name + "-" + u.GetNamespace())
			kcptest.Eventually(t, a.name+": "+u.GetKind()+" "+u.GetName()+" exists on the cluster", func(ctx context.Context) error {
				_, err := objects.Get(ctx, u.GetName(), metav1.GetOptions{})
				return err
			})
		}
	}
	w.Kubectl(t, "delete", "placement", "all")
	kcptest.Eventually(t, "no assignment of the workspace is left", func(ctx context.Context) error {
		if left := f.describe(ctx, w); left != "" {
			return errors.New(left)
		}
		return nil
	})
}
