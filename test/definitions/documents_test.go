package definitions

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// documented are the pages with manifests and patches, and the minimum number of each.
var documented = map[string][2]int{"operator.md": {2, 0}, "etcd.md": {3, 3}, "operations.md": {3, 8}}

var (
	manifest = regexp.MustCompile("(?ms)^(apiVersion: operator\\.kcp\\.io/v1alpha1\n.*?)^(---|EOF|```)$")
	patch    = regexp.MustCompile(`(?s)patch (rootshard|etcdcluster) \S+ --type=merge (?:-p |--patch=)'(\{.*?\})'`)
)

func TestManifestsInDocumentationAreValid(t *testing.T) {
	byKind := definitions(t)
	samples := map[string]string{"rootshard": "RootShard", "etcdcluster": "EtcdCluster"}
	for page, least := range documented {
		text, err := os.ReadFile(filepath.Join("../../docs", page))
		if err != nil {
			t.Fatal(err)
		}
		manifests, patches := manifest.FindAllSubmatch(text, -1), patch.FindAllSubmatch(text, -1)
		if len(manifests) < least[0] || len(patches) < least[1] {
			t.Errorf("%s: only %d manifests and %d patches are found", page, len(manifests), len(patches))
		}
		for _, found := range manifests {
			object := parse(t, found[1])
			if errs := byKind[object["kind"].(string)].validate(object, nil); len(errs) > 0 {
				t.Errorf("%s: %v\n%s", page, errs.ToAggregate(), found[1])
			}
		}
		for _, found := range patches {
			resource := string(found[1])
			sample := parse(t, read(t, filepath.Join(configDir, "samples", resource+".yaml")))
			after := runtime.DeepCopyJSON(sample)
			merge(after, parse(t, found[2]))
			if errs := byKind[samples[resource]].validate(after, sample); len(errs) > 0 {
				t.Errorf("%s: %v\n%s", page, errs.ToAggregate(), found[2])
			}
		}
	}
}

// merge does what kubectl patch --type=merge does.
func merge(into, patch map[string]any) {
	for name, value := range patch {
		inner, isObject := value.(map[string]any)
		switch {
		case value == nil:
			delete(into, name)
		case isObject:
			if _, exists := into[name].(map[string]any); !exists {
				into[name] = map[string]any{}
			}
			merge(into[name].(map[string]any), inner)
		default:
			into[name] = value
		}
	}
}
