package admission

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"

	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/kcplane/kcp/server/internal/admission/objectlimit"
	"github.com/kcplane/kcp/server/internal/informers"
)

func TestTheChainHasEveryPlugin(t *testing.T) {
	config := newConfig(t, nil)
	config.Limits = objectlimit.New(objectlimit.Config{})
	chain, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	for operation, want := range map[admission.Operation]bool{
		admission.Create: true, admission.Update: true, admission.Delete: true, admission.Connect: true,
	} {
		if got := chain.Handles(operation); got != want {
			t.Errorf("the chain handles %s: %t, want %t", operation, got, want)
		}
	}
}

func TestReviewsAreTheRequestsOfTwoGroups(t *testing.T) {
	for group, want := range map[string]bool{"authorization.k8s.io": true, "authentication.k8s.io": true, "": false, "rbac.authorization.k8s.io": false} {
		resource := schema.GroupVersionResource{Group: group, Version: "v1", Resource: "subjectaccessreviews"}
		if got := isReview(deletion(resource, "SubjectAccessReview", "x")); got != want {
			t.Errorf("group %q is one of reviews: %t, want %t", group, got, want)
		}
	}
}

// empty returns an object of a kind without fields, as plugins see it.
func empty(t *testing.T, kind schema.GroupVersionKind) runtime.Object {
	t.Helper()
	for _, scheme := range []*runtime.Scheme{legacyscheme.Scheme, apiextensionsapiserver.Scheme} {
		if obj, err := scheme.New(schema.GroupVersionKind{Group: kind.Group, Version: runtime.APIVersionInternal, Kind: kind.Kind}); err == nil {
			return obj
		}
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	return u
}

// Without this, a plugin that is not called could have something to do.
func TestPluginsDoNothingForOtherGroupsThanTheirs(t *testing.T) {
	config := newConfig(t, nil, at("root", "root:org")...)
	config.Limits = objectlimit.New(objectlimit.Config{})
	chain, err := chainOf(config)
	if err != nil {
		t.Fatal(err)
	}
	limited := 0
	for _, n := range chain {
		if n.groups == nil {
			continue
		}
		limited++
		for _, k := range informers.Kinds() {
			if slices.Contains(n.groups, k.Resource.Group) {
				continue
			}
			kind := k.Resource.GroupVersion().WithKind(reflect.TypeOf(k.Example).Elem().Name())
			for _, operation := range []admission.Operation{admission.Create, admission.Update, admission.Delete, admission.Connect} {
				var obj, old runtime.Object
				if operation != admission.Delete {
					obj = empty(t, kind)
				}
				if operation != admission.Create {
					old = empty(t, kind)
				}
				a := admission.NewAttributesRecord(obj, old, kind, "", "x", k.Resource, "", operation, nil, false, tenant)
				var errs []error
				if m, ok := n.plugin.(admission.MutationInterface); ok && n.plugin.Handles(operation) {
					errs = append(errs, m.Admit(in(t, "org"), a, nil))
				}
				if v, ok := n.plugin.(admission.ValidationInterface); ok && n.plugin.Handles(operation) {
					errs = append(errs, v.Validate(in(t, "org"), a, nil))
				}
				if err := errors.Join(errs...); err != nil || obj != nil && !reflect.DeepEqual(obj, empty(t, kind)) {
					t.Errorf("%s, %s of %s: %v, %v", n.name, operation, k.Resource, err, obj)
				}
			}
		}
	}
	if limited == 0 {
		t.Error("no plugin has groups")
	}
}

// called counts the calls of a plugin.
type called struct{ times *int }

func (called) Handles(admission.Operation) bool { return true }

func (c called) Admit(context.Context, admission.Attributes, admission.ObjectInterfaces) error {
	*c.times++
	return nil
}

func (c called) Validate(context.Context, admission.Attributes, admission.ObjectInterfaces) error {
	*c.times++
	return nil
}

func TestPluginsAreCalledForTheirGroups(t *testing.T) {
	for _, c := range []struct {
		groups []string
		want   int
	}{{nil, 2}, {[]string{"a.example.org", "example.org"}, 2}, {[]string{"a.example.org"}, 0}} {
		times := 0
		plugin := chained{called{&times}, "test", c.groups}
		a := deletion(schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"}, "Widget", "x")
		if err := errors.Join(plugin.Admit(t.Context(), a, nil), plugin.Validate(t.Context(), a, nil)); err != nil {
			t.Fatal(err)
		}
		if times != c.want {
			t.Errorf("of %v: %d calls, want %d", c.groups, times, c.want)
		}
	}
}
