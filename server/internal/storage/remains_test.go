package storage

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
)

// storedWidgets are widgets below a separate root: their keys after <root>/example.org/widgets/, and their finalizers.
func storedWidgets(t *testing.T, stored map[string][]string) (r *Remains, keys func() []string) {
	t.Helper()
	b := *backend
	b.root = "/" + t.Name()
	prefix := b.root + "/example.org/widgets/"
	for key, finalizers := range stored {
		parts := strings.Split(key, "/")
		metadata := map[string]any{"name": parts[len(parts)-1], "uid": key, "annotations": map[string]any{"kcp.io/cluster": parts[1]}}
		if len(parts) == 4 {
			metadata["namespace"] = parts[2]
		}
		if finalizers != nil {
			metadata["finalizers"] = finalizers
		}
		value, err := json.Marshal(map[string]any{"apiVersion": "example.org/v1alpha1", "kind": "Widget", "metadata": metadata})
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(key, "/poison") {
			value = []byte("{")
		}
		if _, err := client.Put(t.Context(), prefix+key, string(value)); err != nil {
			t.Fatal(err)
		}
	}
	return b.Remains(below(b.root)), func() []string {
		found, err := client.Get(t.Context(), prefix, clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		var keys []string
		for _, kv := range found.Kvs {
			u := &unstructured.Unstructured{}
			key := strings.TrimPrefix(string(kv.Key), prefix)
			if json.Unmarshal(kv.Value, &u.Object) == nil && u.GetDeletionTimestamp() != nil {
				key += " (deleted)"
			}
			if len(u.GetLabels()) > 0 {
				key += fmt.Sprint(" ", u.GetLabels())
			}
			keys = append(keys, key)
		}
		return keys
	}
}

var widgetResource = schema.GroupResource{Group: "example.org", Resource: "widgets"}

func TestRemainsAreDeletedByKey(t *testing.T) {
	stored := map[string][]string{
		"customresources/ours/default/defined": nil, "mine/ours/default/plain": nil, "mine/ours/default/held": {"example.org/f"},
		"mine/ours/unscoped": {"example.org/f"}, "mine/ours/default/poison": nil, "mine/ours2/default/theirs": nil,
		"former/ours/default/old": {"example.org/f"}, "others/theirs/default/x": nil,
	}
	for i := range 2*remainsPage + 1 { // more than a page
		stored[fmt.Sprintf("mine/ours/default/many-%d", i)] = nil
	}
	r, keys := storedWidgets(t, stored)
	if got, err := r.Identities(in("ours"), widgetResource); err != nil || !slices.Equal(got, []string{"former", "mine"}) {
		t.Errorf("identities: got %v, %v", got, err)
	}
	namespaced := func(u *unstructured.Unstructured) bool { return u.GetNamespace() != "" }
	for _, step := range []struct {
		identity string
		left     int
		want     []string
	}{
		{"mine", 1, []string{"customresources/ours/default/defined", "former/ours/default/old", "mine/ours/default/held (deleted)", "mine/ours2/default/theirs", "others/theirs/default/x"}},
		{"mine", 1, []string{"customresources/ours/default/defined", "former/ours/default/old", "mine/ours/default/held (deleted)", "mine/ours2/default/theirs", "others/theirs/default/x"}},
		{"", 0, []string{"former/ours/default/old", "mine/ours/default/held (deleted)", "mine/ours2/default/theirs", "others/theirs/default/x"}},
	} {
		left, err := r.Delete(in("ours"), widgetResource, step.identity, namespaced)
		if got := keys(); err != nil || left != step.left || !slices.Equal(got, step.want) {
			t.Errorf("of %q: %d left, %v: %v", step.identity, left, err, got)
		}
	}
	if _, err := r.Delete(in("*"), widgetResource, "mine", namespaced); err == nil {
		t.Error("it deleted in all clusters")
	}
}

func TestRemainsAreInVersions(t *testing.T) {
	r, _ := storedWidgets(t, map[string][]string{"mine/ours/default/one": nil, "mine/ours/default/poison": nil, "former/theirs/default/one": nil})
	for _, c := range []struct {
		identity string
		known    []string
		want     string
	}{{"mine", []string{"v1"}, "v1alpha1"}, {"mine", []string{"v1", "v1alpha1"}, ""}, {"former", []string{"v1"}, ""}} {
		if got, err := r.StoredIn(in("ours"), widgetResource, c.identity, sets.New(c.known...)); err != nil || got != c.want {
			t.Errorf("%s, %v: got %q, %v", c.identity, c.known, got, err)
		}
	}
}

func TestRemainsAreLabeled(t *testing.T) {
	r, keys := storedWidgets(t, map[string][]string{"mine/ours/default/one": nil, "mine/ours/default/poison": nil, "mine/theirs/default/one": nil})
	wanted := func(map[string]string) map[string]string { return map[string]string{"a": "b"} }
	if err := r.Relabel(in("ours"), widgetResource, "mine", wanted); err != nil {
		t.Fatal(err)
	}
	if got, want := keys(), []string{"mine/ours/default/one map[a:b]", "mine/ours/default/poison", "mine/theirs/default/one"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
