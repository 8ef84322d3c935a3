package storage

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/kubernetes/pkg/apis/core"
)

func TestOnlySelectedObjectsExistForARestrictedContext(t *testing.T) {
	s := configMaps(t)
	open := create(t, s, "ours", "default", "open", nil)
	create(t, s, "ours", "default", "secret", nil)
	label := func(value string) storage.UpdateFunc {
		return storage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
			obj.(*core.ConfigMap).Labels = map[string]string{"claimed": value}
			return obj, nil
		})
	}
	if err := s.GuaranteedUpdate(in("ours"), prefix+"/default/open", open, false, nil, label("yes"), nil); err != nil {
		t.Fatal(err)
	}
	ctx := WithRestriction(in("ours"), labels.SelectorFromSet(labels.Set{"claimed": "yes"}))
	if got := listIn(t, ctx, s, ""); len(got) != 1 || got[0] != "ours|default/open" {
		t.Errorf("listed %v", got)
	}
	twice := WithRestriction(ctx, labels.SelectorFromSet(labels.Set{"shown": "yes"}))
	if err := s.Get(twice, prefix+"/default/open", storage.GetOptions{}, &core.ConfigMap{}); !storage.IsNotFound(err) || len(listIn(t, twice, s, "")) != 0 {
		t.Errorf("one of two restrictions is forgotten: %v", err)
	}
	if err := s.Get(ctx, prefix+"/default/open", storage.GetOptions{}, &core.ConfigMap{}); err != nil {
		t.Errorf("what is selected cannot be read: %v", err)
	}
	for what, err := range map[string]error{
		"get":    s.Get(ctx, prefix+"/default/secret", storage.GetOptions{}, &core.ConfigMap{}),
		"update": s.GuaranteedUpdate(ctx, prefix+"/default/secret", &core.ConfigMap{}, false, nil, label("yes"), nil),
		"delete": s.Delete(ctx, prefix+"/default/secret", &core.ConfigMap{}, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{}),
	} {
		if !storage.IsNotFound(err) {
			t.Errorf("%s of an object that is not selected: %v", what, err)
		}
	}
	left := &core.ConfigMap{}
	if err := s.Get(ctx, prefix+"/default/secret", storage.GetOptions{IgnoreNotFound: true}, left); err != nil || left.Name != "" {
		t.Errorf("a get that may find nothing: %v, %v", left, err)
	}
	if err := s.GuaranteedUpdate(ctx, prefix+"/default/open", &core.ConfigMap{}, false, nil, label("no"), nil); !apierrors.IsForbidden(err) {
		t.Errorf("an object was moved out of reach: %v", err)
	}
	fresh := &core.ConfigMap{}
	fresh.Name, fresh.Namespace = "fresh", "default"
	if err := s.Create(ctx, prefix+"/default/fresh", fresh, nil, 0); !apierrors.IsForbidden(err) {
		t.Errorf("an object was created out of reach: %v", err)
	}
	if got := list(t, s, "ours", ""); len(got) != 2 {
		t.Errorf("the cluster holds %v", got)
	}
}

func TestAWatchOfARestrictedContextSeesSelectedObjects(t *testing.T) {
	s := configMaps(t)
	begin := create(t, s, "ours", "default", "first", nil)
	ctx := WithRestriction(in("ours"), labels.SelectorFromSet(labels.Set{"claimed": "yes"}))
	w, err := s.Watch(ctx, prefix, storage.ListOptions{ResourceVersion: begin.ResourceVersion, Predicate: everything(), Recursive: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	unrestricted := follow(t, s, "ours", begin.ResourceVersion)
	defer unrestricted.Stop()
	create(t, s, "ours", "default", "other", nil)
	if e := next(t, unrestricted); nameIn(t, e) != "other" {
		t.Fatalf("the watch of everything delivered %v", e)
	}
	for _, step := range []struct {
		label string
		want  watch.EventType
	}{{"yes", watch.Added}, {"no", watch.Deleted}} {
		err := s.GuaranteedUpdate(in("ours"), prefix+"/default/first", &core.ConfigMap{}, false, nil, storage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
			obj.(*core.ConfigMap).Labels = map[string]string{"claimed": step.label}
			return obj, nil
		}), nil)
		if err != nil {
			t.Fatal(err)
		}
		if e := next(t, w); e.Type != step.want || nameIn(t, e) != "first" {
			t.Errorf("with the label %q the watch delivered %v", step.label, e)
		}
	}
}

func TestEveryOperationRespectsTheRestriction(t *testing.T) {
	s := configMaps(t)
	create(t, s, "ours", "default", "only", nil)
	obj := &core.ConfigMap{}
	obj.Name, obj.Namespace = "only", "default"
	none := WithRestriction(in("ours"), labels.Nothing())
	for what, err := range operations(none, s, obj) {
		if err == nil && what != "list" && what != "watch" {
			t.Errorf("%s reached an object that nothing selects", what)
		}
	}
	if got := listIn(t, none, s, ""); len(got) != 0 {
		t.Errorf("listed %v, which nothing selects", got)
	}
}
