package admission

import (
	"context"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
)

func TestEmptyURLsOfAShardAreItsBaseURL(t *testing.T) {
	spec := func(base, external, views string) map[string]any {
		all := map[string]any{}
		for key, value := range map[string]string{"baseURL": base, "externalURL": external, "virtualWorkspaceURL": views} {
			if value != "" {
				all[key] = value
			}
		}
		return all
	}
	for name, test := range map[string]struct {
		write
		want map[string]any
	}{
		"both URLs are set":                      {write{object: `spec: {baseURL: b}`}, spec("b", "b", "b")},
		"a URL of the client is kept":            {write{object: `spec: {baseURL: b, externalURL: e}`}, spec("b", "e", "b")},
		"all URLs of the client are kept":        {write{object: `spec: {baseURL: b, externalURL: e, virtualWorkspaceURL: v}`}, spec("b", "e", "v")},
		"nothing is set without a base URL":      {write{object: `spec: {externalURL: e}`}, spec("", "e", "")},
		"an update sets them too":                {write{object: `spec: {baseURL: c}`, before: `spec: {baseURL: b}`}, spec("c", "c", "c")},
		"an update of the status is not changed": {write{object: `spec: {baseURL: b}`, before: `{}`, subresource: "status"}, spec("b", "", "")},
		"another kind of the group is unchanged": {write{group: "tenancy.kcp.io", object: `spec: {baseURL: b}`}, spec("b", "", "")},
	} {
		t.Run(name, func(t *testing.T) {
			if test.group == "" {
				test.group = "core.kcp.io"
			}
			a := test.attributes(t, "Shard")
			if err := (shardDefaults{}).Admit(in(t, "root"), a, nil); err != nil {
				t.Fatal(err)
			}
			content := contentOf(t, a)
			if got := content["spec"]; !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestAShardThatHoldsLogicalClustersIsNotDeleted(t *testing.T) {
	forced := func(value string) map[string]string {
		return map[string]string{"core.kcp.io/delete-with-placements": value}
	}
	shards := corev1alpha1.SchemeGroupVersion.WithResource("shards")
	for name, test := range map[string]struct {
		resource    schema.GroupVersionResource
		annotations map[string]string
		held        int64
		refused     bool
		collection  bool
	}{
		"a shard with logical clusters":                 {shards, nil, 12, true, false},
		"an empty shard":                                {shards, nil, 0, false, false},
		"with the annotation":                           {shards, forced("true"), 12, false, false},
		"with another value of the annotation":          {shards, forced("no"), 12, true, false},
		"another resource":                              {shards.GroupVersion().WithResource("logicalclusters"), nil, 12, false, false},
		"a shard with logical clusters of a collection": {shards, nil, 12, true, true},
		"an empty shard of a collection":                {shards, nil, 0, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			old := &unstructured.Unstructured{Object: map[string]any{}}
			old.SetAnnotations(test.annotations)
			old.SetName("west")
			name := "west"
			if test.collection {
				name = ""
			}
			a := admission.NewAttributesRecord(nil, old, shards.GroupVersion().WithKind("Shard"), "", name, test.resource, "", admission.Delete,
				&metav1.DeleteOptions{}, false, privileged)
			placed := func(_ context.Context, shard string) int64 {
				if shard != "west" {
					t.Errorf("the placements of shard %q are counted", shard)
				}
				return test.held
			}
			plugin := shardDeletion{rules{Config{Placed: placed}}}
			if !plugin.Handles(admission.Delete) {
				t.Error("the plugin does not see deletions")
			}
			err := plugin.Validate(in(t, "root"), a, nil)
			if (err != nil) != test.refused || (test.refused && !strings.Contains(err.Error(), "holds 12 logical clusters")) {
				t.Errorf("got %v", err)
			}
		})
	}
}
