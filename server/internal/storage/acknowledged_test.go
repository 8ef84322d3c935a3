package storage

import (
	"context"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/kubernetes/pkg/apis/core"
)

func storedVersion(t *testing.T, obj *core.ConfigMap) uint64 {
	t.Helper()
	version, err := strconv.ParseUint(obj.ResourceVersion, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return version
}

func TestEveryAcknowledgedWriteIsRecorded(t *testing.T) {
	s, known := configMaps(t), backend.Acknowledged(schema.GroupResource{Resource: "configmaps"})
	want := func(what string, version uint64) {
		t.Helper()
		if got := known.Last("noted"); got != version {
			t.Errorf("%s: got %d, want %d", what, got, version)
		}
	}
	key, out := prefix+"/default/one", &core.ConfigMap{}
	want("created", storedVersion(t, create(t, s, "noted", "default", "one", nil)))
	change := storage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
		obj.(*core.ConfigMap).Data = map[string]string{"a": "b"}
		return obj, nil
	})
	if err := s.GuaranteedUpdate(in("noted"), key, out, false, nil, change, nil); err != nil {
		t.Fatal(err)
	}
	want("updated", storedVersion(t, out))
	if err := s.Delete(in("noted"), key, out, nil, func(context.Context, runtime.Object) error { return nil }, nil, storage.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	want("deleted", storedVersion(t, out))
	if err := s.Delete(in("noted"), key, &core.ConfigMap{}, nil, func(context.Context, runtime.Object) error { return nil }, nil, storage.DeleteOptions{}); err == nil {
		t.Error("it was deleted twice")
	}
	want("refused", storedVersion(t, out))
	known.Forget("noted", storedVersion(t, out)-1)
	want("forgotten what is not the last one", storedVersion(t, out))
	known.Forget("noted", storedVersion(t, out))
	want("forgotten", 0)
}
