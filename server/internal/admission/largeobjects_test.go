package admission

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

func TestAClusterHasABoundedWeightOfLargeObjects(t *testing.T) {
	roles := rbacv1.SchemeGroupVersion.WithResource("clusterroles")
	w := &weights{followed: map[schema.GroupResource]bool{roles.GroupResource(): true}, objects: map[weighed]int{}, clusters: map[logicalcluster.Name]clusterWeight{}}
	plugin := largeObjects{weights: w}
	role := func(size int) *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{Rules: []rbacv1.PolicyRule{{Verbs: []string{strings.Repeat("v", size)}}}}
	}
	write := func(who user.DefaultInfo, cluster logicalcluster.Name, obj, old runtime.Object) error {
		operation := admission.Create
		if old != nil {
			operation = admission.Update
		}
		ctx := request.WithUser(logicalcluster.WithName(t.Context(), cluster), &who)
		return plugin.Validate(ctx, admission.NewAttributesRecord(obj, old, rbacv1.SchemeGroupVersion.WithKind("ClusterRole"), "", "x", roles, "", operation, nil, false, &who), nil)
	}
	alice := user.DefaultInfo{Name: "alice"}
	key := func(cluster logicalcluster.Name, name string) weighed {
		return weighed{roles.GroupResource(), informers.Key{Cluster: cluster, Name: name}}
	}
	w.set(key("full", "a"), maxOthers-1)
	if err := write(alice, "full", role(1<<20), nil); err != nil {
		t.Errorf("below the limit: %v", err)
	}
	w.set(key("full", "b"), largeObject)
	w.set(key("full", "small"), largeObject-1)
	for name, c := range map[string]struct {
		who      user.DefaultInfo
		cluster  logicalcluster.Name
		obj, old runtime.Object
		refused  bool
	}{
		"a large object is refused":                      {alice, "full", role(1 << 20), nil, true},
		"an update that enlarges an object is refused":   {alice, "full", role(1 << 20), role(1 << 19), true},
		"an update that reduces an object is admitted":   {alice, "full", role(1 << 19), role(1 << 20), false},
		"a small object is admitted":                     {alice, "full", role(100), nil, false},
		"a large object in another cluster is admitted":  {alice, "other", role(1 << 20), nil, false},
		"a large object of an administrator is admitted": {user.DefaultInfo{Name: "admin", Groups: []string{authorization.AdminGroup}}, "full", role(1 << 20), nil, false},
		"a large object in root is admitted":             {alice, logicalcluster.Root, role(1 << 20), nil, false},
	} {
		err := write(c.who, c.cluster, c.obj, c.old)
		if c.refused != (err != nil) || (err != nil && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "the limit is 64 MiB"))) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"a", "b", "small"} {
		w.set(key("full", name), 0)
	}
	if len(w.objects) > 0 || len(w.clusters) > 0 || w.all != 0 {
		t.Errorf("%v is left of deleted objects", w.objects)
	}
}

func TestTheClustersOfATenantHaveOneWeightOfLargeObjects(t *testing.T) {
	crds := apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
	w := &weights{followed: map[schema.GroupResource]bool{crds.GroupResource(): true}, objects: map[weighed]int{}, clusters: map[logicalcluster.Name]clusterWeight{}}
	const total = 1 << 30
	plugin := largeObjects{rules{Config{MaxLargeObjects: total, Payer: func(cluster logicalcluster.Name) string {
		return strings.TrimRight(string(cluster), "0123456789")
	}}}, w}
	properties := map[string]apiextensionsv1.JSONSchemaProps{}
	for i := range 50 { // 2 KiB, which take 150 when they are served
		properties[fmt.Sprint("p", i)] = apiextensionsv1.JSONSchemaProps{Type: "string"}
	}
	crd := &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
		Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Properties: properties}},
	}}}}
	alice := user.DefaultInfo{Name: "alice"}
	write := func(cluster logicalcluster.Name) error {
		ctx := request.WithUser(logicalcluster.WithName(t.Context(), cluster), &alice)
		return plugin.Validate(ctx, admission.NewAttributesRecord(crd, nil, apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"), "", "x", crds, "", admission.Create, nil, false, &alice), nil)
	}
	fill := func(tenant string, from, n int) {
		for i := range n {
			w.set(weighed{crds.GroupResource(), informers.Key{Cluster: logicalcluster.Name(fmt.Sprint(tenant, from+i)), Name: "x"}}, 100<<20)
		}
	}
	want := func(what string, cluster logicalcluster.Name, message string) {
		t.Helper()
		if err := write(cluster); (err != nil) != (message != "") || (err != nil && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), message))) {
			t.Errorf("%s: %v", what, err)
		}
	}
	fill("many", 0, 5)
	want("half of the memory is in use", "many99", "")
	fill("many", 5, 1)
	want("a tenant exceeds its share", "many99", "share of the memory of the server")
	want("another tenant has its share", "other0", "")
	fill("other", 0, 3)
	want("another tenant exceeds what the first one has left", "other99", "share of the memory of the server")
	want("a tenant without large objects has its share", "third0", "")
	fill("fourth", 0, 2)
	want("the memory is exhausted", "third0", "share of the memory of the server")
	w.set(weighed{crds.GroupResource(), informers.Key{Cluster: "many0", Name: "y"}}, maxDefinitions)
	want("a cluster has reached its limit", "many0", "the limit is 192 MiB")
}

func TestWhatObjectsWeigh(t *testing.T) {
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "x"}}
	properties := map[string]apiextensionsv1.JSONSchemaProps{}
	for _, name := range strings.Split("abcdefghijklmnopqrst", "") {
		properties[name] = apiextensionsv1.JSONSchemaProps{Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{Type: "string"}}}
	}
	crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{Schema: &apiextensionsv1.CustomResourceValidation{
		OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: properties},
	}}}
	if got, want := weightOf(crd), crd.Size()+41*schemaWeight; got != want {
		t.Errorf("a definition weighs %d, want %d", got, want)
	}
	schema := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	a := schema.Properties["a"]
	a.Enum, a.XValidations = make([]apiextensionsv1.JSON, 10), apiextensionsv1.ValidationRules{{Rule: "true"}}
	a.AnyOf, a.Not = []apiextensionsv1.JSONSchemaProps{{Type: "string"}, {Type: "object"}}, &apiextensionsv1.JSONSchemaProps{Type: "array"}
	schema.Properties["a"] = a
	if got, want := weightOf(crd), crd.Size()+44*schemaWeight+10*valueWeight+expressionWeight; got != want {
		t.Errorf("a definition with an enumeration and an expression weighs %d, want %d", got, want)
	}
	raw, err := json.Marshal(schema)
	if err != nil {
		t.Fatal(err)
	}
	imported := &apisv1alpha1.APIResourceSchema{Spec: apisv1alpha1.APIResourceSchemaSpec{Versions: []apisv1alpha1.APIResourceVersion{{Schema: runtime.RawExtension{Raw: raw}}}}}
	if got, want := weightOf(imported), weightOfSchema(schema); got < want || got > want*3/2 {
		t.Errorf("a schema in JSON weighs %d, want about %d", got, want)
	}
	role := &rbacv1.ClusterRole{Rules: []rbacv1.PolicyRule{{Verbs: []string{strings.Repeat("v", 1000)}}}}
	if got, want := weightOf(role), role.Size()+ruleWeight; got != want {
		t.Errorf("a role of a rule weighs %d, want %d", got, want)
	}
}
