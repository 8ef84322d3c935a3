package conversion

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
)

// Each example is one object in the two versions.
var examples = map[string]struct{ kind, v1alpha1, v1alpha2 string }{
	"the name of a schema determines a resource": {"APIExport", `
spec: {latestResourceSchemas: [v1.widgets.demo.example.io, v2.jobs.core]}
status: {identityHash: abc}`, `
spec:
  resources:
  - {name: widgets, group: demo.example.io, schema: v1.widgets.demo.example.io, storage: {crd: {}}}
  - {name: jobs, group: "", schema: v2.jobs.core, storage: {crd: {}}}
status: {identityHash: abc}`},

	"resource-schemas: virtual storage, and names that the schema does not have": {"APIExport", `
metadata:
  annotations:
    mine: kept
    apis.v1alpha2.kcp.io/resource-schemas: '[{"name":"regions","group":"example.io","schema":"v1.regions.example.io","storage":{"virtual":{"reference":{"apiGroup":"cache.kcp.io","kind":"ClusterCachedResourceEndpointSlice","name":"r"},"identityHash":"abc"}}},{"name":"gadgets","group":"example.io","schema":"v1.widgets.example.io","storage":{"crd":{}}}]'
spec: {latestResourceSchemas: [v1.widgets.example.io]}`, `
metadata: {annotations: {mine: kept}}
spec:
  resources:
  - {name: widgets, group: example.io, schema: v1.widgets.example.io, storage: {crd: {}}}
  - name: regions
    group: example.io
    schema: v1.regions.example.io
    storage: {virtual: {reference: {apiGroup: cache.kcp.io, kind: ClusterCachedResourceEndpointSlice, name: r}, identityHash: abc}}
  - {name: gadgets, group: example.io, schema: v1.widgets.example.io, storage: {crd: {}}}`},

	"a schema without a resource in its name": {"APIExport", `
spec: {latestResourceSchemas: [wrong]}`, `
spec: {resources: [{name: "", group: "", schema: wrong, storage: {crd: {}}}]}`},

	"permission-claims: certain verbs, a default selector": {"APIExport", `
metadata:
  annotations:
    apis.v1alpha2.kcp.io/permission-claims: '[{"group":"","resource":"configmaps","verbs":["get","list"],"identityHash":""},{"group":"example.io","resource":"widgets","verbs":["*"],"identityHash":"abc","defaultSelector":{"matchLabels":{"app":"x"}}}]'
spec:
  permissionClaims:
  - {group: "", resource: configmaps, all: true}
  - {group: "", resource: secrets, all: true}
  - {group: example.io, resource: widgets, identityHash: abc, all: true}`, `
spec:
  permissionClaims:
  - {group: "", resource: configmaps, identityHash: "", verbs: [get, list]}
  - {group: "", resource: secrets, identityHash: "", verbs: ["*"]}
  - {group: example.io, resource: widgets, identityHash: abc, verbs: ["*"], defaultSelector: {matchLabels: {app: x}}}`},

	"v1alpha1-permission-claims: names in an export": {"APIExport", `
spec: {permissionClaims: [{group: "", resource: configmaps, resourceSelector: [{name: settings, namespace: default}]}, {group: "", resource: secrets, all: true}]}`, `
metadata:
  annotations:
    apis.v1alpha2.kcp.io/v1alpha1-permission-claims: '[{"group":"","resource":"configmaps","resourceSelector":[{"name":"settings","namespace":"default"}]}]'
spec: {permissionClaims: [{group: "", resource: configmaps, identityHash: "", verbs: ["*"]}, {group: "", resource: secrets, identityHash: "", verbs: ["*"]}]}`},

	"acceptable-permission-claims: certain verbs, and labels": {"APIBinding", `
metadata:
  annotations:
    apis.v1alpha2.kcp.io/acceptable-permission-claims: '[{"group":"","resource":"configmaps","verbs":["get"],"identityHash":"","selector":{"matchAll":true},"state":"Accepted"},{"group":"","resource":"secrets","verbs":["*"],"identityHash":"","selector":{"matchLabels":{"app":"x"}},"state":"Rejected"}]'
spec:
  reference: {export: {path: root, name: demo}}
  permissionClaims:
  - {group: "", resource: configmaps, all: true, state: Accepted}
  - {group: "", resource: secrets, state: Rejected}
  - {group: "", resource: events, all: true, state: Accepted}`, `
spec:
  reference: {export: {path: root, name: demo}}
  permissionClaims:
  - {group: "", resource: configmaps, identityHash: "", verbs: [get], selector: {matchAll: true}, state: Accepted}
  - {group: "", resource: secrets, identityHash: "", verbs: ["*"], selector: {matchLabels: {app: x}}, state: Rejected}
  - {group: "", resource: events, identityHash: "", verbs: ["*"], selector: {matchAll: true}, state: Accepted}`},

	"v1alpha1-permission-claims: names in a binding": {"APIBinding", `
spec:
  reference: {export: {name: demo}}
  permissionClaims: [{group: "", resource: configmaps, resourceSelector: [{name: settings}], state: Accepted}]`, `
metadata:
  annotations:
    apis.v1alpha2.kcp.io/v1alpha1-permission-claims: '[{"group":"","resource":"configmaps","resourceSelector":[{"name":"settings"}]}]'
spec:
  reference: {export: {name: demo}}
  permissionClaims: [{group: "", resource: configmaps, identityHash: "", verbs: ["*"], selector: {matchAll: true}, state: Accepted}]`},

	"status-export-permission-claims and status-applied-permission-claims": {"APIBinding", `
metadata:
  annotations:
    apis.v1alpha2.kcp.io/status-export-permission-claims: '[{"group":"","resource":"configmaps","verbs":["get"],"identityHash":""}]'
    apis.v1alpha2.kcp.io/status-applied-permission-claims: '[{"group":"","resource":"configmaps","verbs":["get"],"identityHash":"","selector":{"matchLabels":{"app":"x"}}}]'
spec: {reference: {export: {name: demo}}}
status:
  phase: Bound
  apiExportClusterName: abc
  boundResources: [{group: g.io, resource: rs, schema: {name: v1.rs.g.io, UID: u, identityHash: i}, storageVersions: [v1]}]
  exportPermissionClaims: [{group: "", resource: configmaps, all: true}]
  appliedPermissionClaims: [{group: "", resource: configmaps}]`, `
spec: {reference: {export: {name: demo}}}
status:
  phase: Bound
  apiExportClusterName: abc
  boundResources: [{group: g.io, resource: rs, schema: {name: v1.rs.g.io, UID: u, identityHash: i}, storageVersions: [v1]}]
  exportPermissionClaims: [{group: "", resource: configmaps, identityHash: "", verbs: [get]}]
  appliedPermissionClaims: [{group: "", resource: configmaps, identityHash: "", verbs: [get], selector: {matchLabels: {app: x}}}]`},

	"v1alpha1-status-export-permission-claims and v1alpha1-status-applied-permission-claims": {"APIBinding", `
spec: {reference: {export: {name: demo}}}
status:
  exportPermissionClaims: [{group: "", resource: configmaps, resourceSelector: [{name: a}]}]
  appliedPermissionClaims: [{group: "", resource: configmaps, resourceSelector: [{name: b}]}]`, `
metadata:
  annotations:
    apis.v1alpha2.kcp.io/v1alpha1-status-export-permission-claims: '[{"group":"","resource":"configmaps","resourceSelector":[{"name":"a"}]}]'
    apis.v1alpha2.kcp.io/v1alpha1-status-applied-permission-claims: '[{"group":"","resource":"configmaps","resourceSelector":[{"name":"b"}]}]'
spec: {reference: {export: {name: demo}}}
status:
  exportPermissionClaims: [{group: "", resource: configmaps, identityHash: "", verbs: ["*"]}]
  appliedPermissionClaims: [{group: "", resource: configmaps, identityHash: "", verbs: ["*"], selector: {matchAll: true}}]`},
}

func TestVersionsAreConvertedInBothDirections(t *testing.T) {
	for name, example := range examples {
		t.Run(name, func(t *testing.T) {
			old := object(t, example.v1alpha1, apisv1alpha1.SchemeGroupVersion.WithKind(example.kind))
			current := object(t, example.v1alpha2, apisv1alpha2.SchemeGroupVersion.WithKind(example.kind))
			wantConverted(t, current, old)
			wantConverted(t, old, current)
		})
	}
}

// Conversions that are intentionally not lossless, each in one direction.
func TestConversionsThatAreNotLosslessFavorOneVersion(t *testing.T) {
	for name, example := range map[string]struct{ kind, v1alpha1, v1alpha2 string }{
		"an annotation that makes no sense is as good as none": {"APIExport", `
metadata: {annotations: {apis.v1alpha2.kcp.io/resource-schemas: "[", apis.v1alpha2.kcp.io/permission-claims: '{}'}}
spec: {permissionClaims: [{group: "", resource: configmaps, all: true}]}`, `
spec: {permissionClaims: [{group: "", resource: configmaps, identityHash: "", verbs: ["*"]}]}`},
		"more about a claim that is gone": {"APIExport", `
metadata: {annotations: {apis.v1alpha2.kcp.io/permission-claims: '[{"group":"","resource":"configmaps","verbs":["get"],"identityHash":""}]'}}
spec: {permissionClaims: [{group: "", resource: secrets, all: true}]}`, `
spec: {permissionClaims: [{group: "", resource: secrets, identityHash: "", verbs: ["*"]}]}`},
		"labels, whatever the same claim has in v1alpha1": {"APIBinding", `
metadata: {annotations: {apis.v1alpha2.kcp.io/acceptable-permission-claims: '[{"group":"","resource":"secrets","verbs":["*"],"identityHash":"","selector":{"matchLabels":{"app":"x"}},"state":"Rejected"}]'}}
spec: {reference: {export: {name: demo}}, permissionClaims: [{group: "", resource: secrets, all: true, state: Accepted}]}`, `
spec: {reference: {export: {name: demo}}, permissionClaims: [{group: "", resource: secrets, identityHash: "", verbs: ["*"], selector: {matchLabels: {app: x}}, state: Accepted}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			old := object(t, example.v1alpha1, apisv1alpha1.SchemeGroupVersion.WithKind(example.kind))
			wantConverted(t, old, object(t, example.v1alpha2, apisv1alpha2.SchemeGroupVersion.WithKind(example.kind)))
		})
	}
	t.Run("names, if the selector changed since", func(t *testing.T) {
		current := object(t, `
metadata: {annotations: {apis.v1alpha2.kcp.io/v1alpha1-permission-claims: '[{"group":"","resource":"secrets","resourceSelector":[{"name":"a"}]}]'}}
spec: {reference: {export: {name: demo}}, permissionClaims: [{group: "", resource: secrets, identityHash: "", verbs: ["*"], selector: {matchLabels: {app: x}}, state: Accepted}]}`,
			apisv1alpha2.SchemeGroupVersion.WithKind("APIBinding"))
		wantConverted(t, current, object(t, `
metadata: {annotations: {apis.v1alpha2.kcp.io/acceptable-permission-claims: '[{"group":"","resource":"secrets","verbs":["*"],"identityHash":"","selector":{"matchLabels":{"app":"x"}},"state":"Accepted"}]'}}
spec: {reference: {export: {name: demo}}, permissionClaims: [{group: "", resource: secrets, state: Accepted}]}`, apisv1alpha1.SchemeGroupVersion.WithKind("APIBinding")))
	})
}

func TestAnObjectInTheRequestedVersionIsNotConverted(t *testing.T) {
	in := object(t, "spec: {unknown: true}", apisv1alpha2.SchemeGroupVersion.WithKind("APIExport"))
	out, err := Convert(in, apisv1alpha2.SchemeGroupVersion)
	if err != nil || out != in {
		t.Errorf("got %v, %v", out, err)
	}
}

func TestOtherConversionsFail(t *testing.T) {
	for _, in := range []schema.GroupVersionKind{
		apisv1alpha1.SchemeGroupVersion.WithKind("APIResourceSchema"), {Group: "example.io", Version: "v1", Kind: "APIExport"},
	} {
		if _, err := Convert(object(t, "{}", in), schema.GroupVersion{Group: in.Group, Version: "v1alpha2"}); err == nil {
			t.Errorf("%s was converted", in)
		}
	}
}

func wantConverted(t *testing.T, in, want *unstructured.Unstructured) {
	t.Helper()
	got, err := Convert(in, want.GroupVersionKind().GroupVersion())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.Object, got.Object); diff != "" {
		t.Errorf("%s to %s, -want +got:\n%s", in.GetAPIVersion(), want.GetAPIVersion(), diff)
	}
}

// object parses an object without its kind and name, and adds them.
func object(t *testing.T, text string, kind schema.GroupVersionKind) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	u.SetGroupVersionKind(kind)
	u.SetName("x")
	return u
}

func TestConditionsThatGoCannotDecodeAreKept(t *testing.T) {
	conditions := []any{map[string]any{"type": "Ready", "status": "True", "lastTransitionTime": "2020-01-01t00:00:00z"}}
	in := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": apisv1alpha2.SchemeGroupVersion.String(), "kind": "APIExport", "metadata": map[string]any{"name": "e"},
		"spec": map[string]any{}, "status": map[string]any{"identityHash": "i", "conditions": conditions},
	}}
	before := in.DeepCopy()
	out, err := Convert(in, apisv1alpha1.SchemeGroupVersion)
	if err != nil {
		t.Fatal(err)
	}
	got, _, _ := unstructured.NestedSlice(out.Object, "status", "conditions")
	identity, _, _ := unstructured.NestedString(out.Object, "status", "identityHash")
	if diff := cmp.Diff(conditions, got); diff != "" || identity != "i" {
		t.Errorf("identity %q, conditions %s", identity, diff)
	}
	if diff := cmp.Diff(before, in); diff != "" {
		t.Errorf("the object was changed: %s", diff)
	}
}
