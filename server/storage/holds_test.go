package storage

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestHoldsSeesItsOwnClusterAndNamespaceOnly(t *testing.T) {
	s := configMaps(t)
	create(t, s, "ours", "default", "one", nil)
	create(t, s, "ours2", "other", "two", nil)
	b := *backend
	b.root = "/" + t.Name()
	for _, test := range []struct {
		cluster, resource, namespace string
		want                         bool
	}{
		{"ours", "configmaps", "", true}, {"ours", "configmaps", "default", true}, {"ours", "configmaps", "def", false},
		{"ours", "configmaps", "other", false}, {"our", "configmaps", "", false}, {"ours", "secrets", "", false}, {"ours2", "configmaps", "other", true},
	} {
		got, err := b.Holds(in(test.cluster), schema.GroupResource{Resource: test.resource}, test.namespace)
		if err != nil || got != test.want {
			t.Errorf("%+v: got %t, %v", test, got, err)
		}
	}
	if _, err := b.Holds(in("*"), schema.GroupResource{Resource: "configmaps"}, ""); err == nil {
		t.Error("it answered for all clusters")
	}
}
