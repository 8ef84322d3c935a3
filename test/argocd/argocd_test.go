package argocd

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/argoproj/argo-cd/gitops-engine/pkg/health"
	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"github.com/argoproj/argo-cd/v3/util/lua"
	"github.com/argoproj/argo-cd/v3/util/settings"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const config = "../../config"

// overrides returns the settings that Argo CD reads from its ConfigMap with config/argocd applied.
func overrides(t *testing.T) lua.ResourceHealthOverrides {
	t.Helper()
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(config, "argocd"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := made.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	configMap := &corev1.ConfigMap{}
	if err := yaml.UnmarshalStrict(text, configMap); err != nil {
		t.Fatal(err)
	}
	configMap.Namespace = "argocd"
	read, err := settings.NewSettingsManager(t.Context(), fake.NewClientset(configMap), "argocd").GetResourceOverrides()
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// fixture is an object with its expected health.
type fixture struct {
	Name    string
	Object  map[string]any
	Status  health.HealthStatusCode
	Message string
}

func fixtures(t *testing.T) []fixture {
	t.Helper()
	content, err := os.ReadFile("testdata/health.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all []fixture
	if err := yaml.UnmarshalStrict(content, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestHealthMatchesConditions(t *testing.T) {
	read := overrides(t)
	for _, f := range fixtures(t) {
		t.Run(f.Name, func(t *testing.T) {
			object := &unstructured.Unstructured{Object: f.Object}
			object.SetAPIVersion("operator.kcp.io/v1alpha1")
			got, err := health.GetResourceHealth(object, read)
			if err != nil {
				t.Fatal(err)
			}
			if got == nil || got.Status != f.Status || got.Message != f.Message {
				t.Errorf("got %+v, want %s: %s", got, f.Status, f.Message)
			}
		})
	}
}

func TestEveryKindHasHealthCheck(t *testing.T) {
	read := overrides(t)
	tested := map[string]bool{}
	for _, f := range fixtures(t) {
		tested[fmt.Sprint(f.Object["kind"])] = true
	}
	files, err := filepath.Glob(filepath.Join(config, "crd/bases/*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		definition := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(content, &definition.Object); err != nil {
			t.Fatal(err)
		}
		kind, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "kind")
		if read["operator.kcp.io/"+kind].HealthLua == "" {
			t.Errorf("config/argocd has no health check for %s", kind)
		}
		if !tested[kind] {
			t.Errorf("no fixture tests the health of %s", kind)
		}
	}
}

func TestApplicationInstallsChart(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(config, "argocd/application.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	application := &v1alpha1.Application{}
	if err := yaml.UnmarshalStrict(content, application); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join("../..", application.Spec.Source.Path, "Chart.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var chart struct{ AppVersion string }
	if err := yaml.Unmarshal(text, &chart); err != nil {
		t.Fatal(err)
	}
	if application.Spec.Source.TargetRevision != chart.AppVersion {
		t.Errorf("the Application has revision %s, and the chart has appVersion %s", application.Spec.Source.TargetRevision, chart.AppVersion)
	}
	if !application.Spec.SyncPolicy.SyncOptions.HasOption("ServerSideApply=true") {
		t.Error("the Application does not use server-side apply")
	}
	values, err := os.ReadFile(filepath.Join("../..", application.Spec.Source.Path, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	known, set := map[string]any{}, map[string]any{}
	if err := yaml.Unmarshal(values, &known); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(application.Spec.Source.Helm.ValuesYAML(), &set); err != nil {
		t.Fatal(err)
	}
	for _, value := range slices.Sorted(maps.Keys(set)) {
		if known[value] == nil {
			t.Errorf("the chart has no value %s", value)
		}
	}
	if strings.Count(string(content), "kind: Application\n") != 1 {
		t.Error("found more than one Application")
	}
}
