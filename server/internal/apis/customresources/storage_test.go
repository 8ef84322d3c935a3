package customresources

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/logicalcluster"
)

func inCluster(name logicalcluster.Name) context.Context {
	return logicalcluster.WithName(request.WithNamespace(context.Background(), ""), name)
}

func definitions(t *testing.T) *customresourcedefinition.REST {
	t.Helper()
	_, definitions := definitionStorage(t)
	return definitions
}

func off(logicalcluster.Name) bool { return false }

func definitionStorage(t *testing.T) (map[string]rest.Storage, *customresourcedefinition.REST) {
	t.Helper()
	reserved := sets.New(schema.GroupResource{Resource: "secrets"}, schema.GroupResource{Group: "rbac.authorization.k8s.io", Resource: "roles"},
		schema.GroupResource{Group: "tenancy.kcp.io", Resource: "workspaces"})
	all, definitions, err := DefinitionStorage(backend.BuiltIn(restOptions(t)), reserved, DerivedDefinitions{On: off})
	if err != nil {
		t.Fatal(err)
	}
	return all, definitions
}

func unestablished(name, group, plural string) *apiextensions.CustomResourceDefinition {
	v1 := widgets(func(crd *apiextensionsv1.CustomResourceDefinition) {
		crd.Name, crd.Spec.Group, crd.Spec.Names.Plural = name, group, plural
	})
	v1.Status = apiextensionsv1.CustomResourceDefinitionStatus{}
	internal := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsapiserver.Scheme.Convert(v1, internal, nil); err != nil {
		panic(err)
	}
	return internal
}

func TestValidationOfDefinitions(t *testing.T) {
	storage := definitions(t)
	for _, c := range []struct{ name, group, plural, refused string }{
		{"widgets.example.org", "example.org", "widgets", ""},
		{"widgets.core", "", "widgets", ""},
		{"deployments.apps", "apps", "deployments", ""},
		{"widgets", "", "widgets", `metadata.name: Invalid value: "widgets": must be spec.names.plural+".core", because the group is empty`},
		{"widgets.", "", "widgets", "metadata.name"},
		{"gadgets.core", "", "widgets", "metadata.name"},
		{"widgets.apps", "batch", "widgets", `metadata.name: Invalid value: "widgets.apps": must be spec.names.plural+"."+spec.group`},
		{"widgets.core", "core", "widgets", `spec.group: Invalid value: "core": the core group is "", in a definition named <plural>.core`},
		{"widgets.Apps", "Apps", "widgets", `spec.group: Invalid value: "Apps"`},
		{"widgets.foo.k8s.io", "foo.k8s.io", "widgets", "api-approved.kubernetes.io"},
		{"secrets.core", "", "secrets", "secrets.core is built in"},
		{"roles.rbac.authorization.k8s.io", "rbac.authorization.k8s.io", "roles", "is built in"},
		{"workspaces.tenancy.kcp.io", "tenancy.kcp.io", "workspaces", "workspaces.tenancy.kcp.io is built in: the server serves it in every workspace; use another group or plural"},
		{"a.b.core", "", "a.b", "spec.names.plural"},
	} {
		ctx := inCluster(logicalcluster.Name(fmt.Sprintf("c%d", len(c.group))))
		_, err := storage.Create(ctx, unestablished(c.name, c.group, c.plural), rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
		switch {
		case c.refused == "" && err != nil:
			t.Errorf("%s of group %q: %v", c.name, c.group, err)
		case c.refused != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), c.refused)):
			t.Errorf("%s of group %q: got %v, want an error with %s", c.name, c.group, err, c.refused)
		case err != nil && strings.Contains(err.Error(), disguiseSuffix):
			t.Errorf("%s of group %q: the error shows the disguise: %v", c.name, c.group, err)
		}
	}
}

func TestTheGroupOfADefinitionCannotChange(t *testing.T) {
	storage := definitions(t)
	ctx := inCluster("a")
	if _, err := storage.Create(ctx, unestablished("widgets.core", "", "widgets"), rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	change := func(change func(*apiextensions.CustomResourceDefinition)) error {
		obj, err := storage.Get(ctx, "widgets.core", &metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		crd := obj.(*apiextensions.CustomResourceDefinition)
		change(crd)
		_, _, err = storage.Update(ctx, crd.Name, rest.DefaultUpdatedObjectInfo(crd), rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
		return err
	}
	if err := change(func(crd *apiextensions.CustomResourceDefinition) { crd.Spec.Names.Categories = []string{"all"} }); err != nil {
		t.Errorf("an update: %v", err)
	}
	for _, group := range []string{"core", "apps", "example.org"} {
		if err := change(func(crd *apiextensions.CustomResourceDefinition) { crd.Spec.Group = group }); !apierrors.IsInvalid(err) {
			t.Errorf("to group %q: got %v, want invalid", group, err)
		}
	}
}

func TestClientsCannotWriteTheServersStatusOfADefinition(t *testing.T) {
	all, storage := definitionStorage(t)
	ctx := inCluster("a")
	if _, err := storage.Create(ctx, unestablished("widgets.example.org", "example.org", "widgets"), rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	write := func(ctx context.Context, accepted string, versions []string, conditions ...apiextensions.CustomResourceDefinitionConditionType) *apiextensions.CustomResourceDefinition {
		t.Helper()
		obj, err := storage.Get(ctx, "widgets.example.org", &metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		crd := obj.(*apiextensions.CustomResourceDefinition)
		crd.Status.AcceptedNames.Plural, crd.Status.StoredVersions, crd.Status.Conditions = accepted, versions, nil
		for _, c := range conditions {
			crd.Status.Conditions = append(crd.Status.Conditions, apiextensions.CustomResourceDefinitionCondition{Type: c, Status: apiextensions.ConditionTrue})
		}
		obj, _, err = all["customresourcedefinitions/status"].(rest.Updater).
			Update(ctx, crd.Name, rest.DefaultUpdatedObjectInfo(crd), rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return obj.(*apiextensions.CustomResourceDefinition)
	}
	want := func(crd *apiextensions.CustomResourceDefinition, accepted string, conditions ...apiextensions.CustomResourceDefinitionConditionType) {
		t.Helper()
		var got []apiextensions.CustomResourceDefinitionConditionType
		for _, c := range crd.Status.Conditions {
			got = append(got, c.Type)
		}
		if !slices.Equal(got, conditions) || crd.Status.AcceptedNames.Plural != accepted {
			t.Errorf("got the conditions %v and the name %q, want %v and %q", got, crd.Status.AcceptedNames.Plural, conditions, accepted)
		}
	}
	forged := write(ctx, "widgets", []string{"v1", "v2"}, apiextensions.Established, apiextensions.NamesAccepted, "Checked")
	want(forged, "", "Checked")
	if !slices.Equal(forged.Status.StoredVersions, []string{"v1", "v2"}) {
		t.Errorf("the stored versions are %v: who has migrated objects cannot say so", forged.Status.StoredVersions)
	}
	want(write(authorization.AsServer(ctx), "widgets", []string{"v1"}, apiextensions.Established), "widgets", apiextensions.Established)
	want(write(ctx, "secrets", []string{"v1"}, "Checked", apiextensions.Terminating), "widgets", apiextensions.Established, "Checked")
}

// What is accepted must be found again under the key that requests for its resources compute.
func FuzzAnAcceptedDefinitionIsFoundByItsResource(f *testing.F) {
	for _, seed := range []struct{ name, group, plural string }{
		{"widgets.example.org", "example.org", "widgets"}, {"widgets.core", "", "widgets"}, {"w.core", "core", "w"}, {"a.b", "b", "a"}, {"a.b.undotted", "b.undotted", "a"},
	} {
		f.Add(seed.name, seed.group, seed.plural)
	}
	create := createStrategy{customresourcedefinition.NewStrategy(apiextensionsapiserver.Scheme), nil}
	f.Fuzz(func(t *testing.T, name, group, plural string) {
		crd := unestablished(name, group, plural)
		create.PrepareForCreate(context.Background(), crd)
		if errs := create.Validate(context.Background(), crd); len(errs) == 0 && name != ResourceName(plural, group) {
			t.Errorf("%q of group %q is accepted for the resource %q", name, group, plural)
		}
	})
}
