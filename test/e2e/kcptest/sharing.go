package kcptest

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
)

// The resources with which APIs are shared.
var (
	APIBindings = apisv1alpha2.SchemeGroupVersion.WithResource("apibindings")
	APIExports  = apisv1alpha2.SchemeGroupVersion.WithResource("apiexports")
)

// Objects returns a client of Masters for a resource of the cluster.
func (c *Cluster) Objects(t testing.TB, resource schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	t.Helper()
	return c.Dynamic(t, Masters).Resource(resource)
}

// At returns the configuration of a client of user for a path of the server, such as a virtual workspace.
func (s *Server) At(user User, path string) *rest.Config {
	config := s.Config(user)
	config.Host = s.baseOf(path) + path
	return config
}

// DynamicAt returns a client of user for every type at a path of the server.
func (s *Server) DynamicAt(t testing.TB, user User, path string) dynamic.Interface {
	t.Helper()
	return must[dynamic.Interface](t)(dynamic.NewForConfig(s.At(user, path)))
}

// WidgetsExport is an export of widgets, with their schema, which allows sizes from 1 to 100.
const WidgetsExport = `
apiVersion: apis.kcp.io/v1alpha1
kind: APIResourceSchema
metadata: {name: v1.widgets.example.org}
spec:
  group: example.org
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      type: object
      properties:
        spec: {type: object, properties: {size: {type: integer, minimum: 1, maximum: 100}}}
---
apiVersion: apis.kcp.io/v1alpha2
kind: APIExport
metadata: {name: widgets}
spec:
  resources:
  - {group: example.org, name: widgets, schema: v1.widgets.example.org, storage: {crd: {}}}
`

// Parse reads one object from YAML.
func Parse(t testing.TB, manifest string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict([]byte(manifest), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

// StatusField returns a field in the status of an object, or "" if it is not set.
func StatusField(ctx context.Context, client dynamic.ResourceInterface, name string, field ...string) (string, error) {
	obj, err := client.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	value, _, err := unstructured.NestedFieldNoCopy(obj.Object, append([]string{"status"}, field...)...)
	if value == nil {
		value = ""
	}
	return fmt.Sprint(value), err
}

// WaitForStatus waits until a field in the status of an object has the value want, or any value if want is empty, and returns it.
func WaitForStatus(t testing.TB, client dynamic.ResourceInterface, name, want string, field ...string) string {
	t.Helper()
	var got string
	Eventually(t, fmt.Sprintf("status%v of %s is %q", field, name, want), func(ctx context.Context) (err error) {
		if got, err = StatusField(ctx, client, name, field...); err == nil && (got == "" || (want != "" && got != want)) {
			err = fmt.Errorf("got %q", got)
		}
		return err
	})
	return got
}

// WaitUntilGone waits until no object with that name exists.
func WaitUntilGone(t testing.TB, client dynamic.ResourceInterface, name string) {
	t.Helper()
	Eventually(t, name+" is gone", func(ctx context.Context) error {
		_, err := client.Get(ctx, name, metav1.GetOptions{})
		return Gone(err)
	})
}

// WaitForCondition waits until a condition of an object has a status and a reason.
func WaitForCondition(t testing.TB, client dynamic.ResourceInterface, name, kind, want, reason string) {
	t.Helper()
	Eventually(t, fmt.Sprintf("%s of %s is %s %s", kind, name, want, reason), func(ctx context.Context) error {
		obj, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		all, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
		for _, c := range all {
			c := c.(map[string]any)
			if got, _ := c["reason"].(string); c["type"] == kind && c["status"] == want && got == reason {
				return nil
			}
		}
		return fmt.Errorf("conditions are %v", all)
	})
}

// BindingTo returns an APIBinding to an export of a provider, with the name of the export.
func BindingTo(provider *Cluster, export string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": apisv1alpha2.SchemeGroupVersion.String(), "kind": "APIBinding", "metadata": map[string]any{"name": export},
		"spec": map[string]any{"reference": map[string]any{"export": map[string]any{"path": provider.Name, "name": export}}},
	}}
}

// Bind makes the cluster a consumer of an export of a provider, and waits until it is bound.
func (c *Cluster) Bind(t testing.TB, provider *Cluster, export string) {
	t.Helper()
	client := c.Objects(t, APIBindings)
	if _, err := client.Create(Context(t), BindingTo(provider, export), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	WaitForStatus(t, client, export, string(apisv1alpha2.APIBindingPhaseBound), "phase")
}
