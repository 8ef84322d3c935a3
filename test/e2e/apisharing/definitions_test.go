package apisharing

import (
	"context"
	"fmt"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

func definition(group, plural, kind string) *apiextensionsv1.CustomResourceDefinition {
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group}}
	if group == "" {
		crd.Name = plural + ".core"
	}
	crd.Annotations = map[string]string{"api-approved.kubernetes.io": "unapproved, for a test"}
	crd.Spec = apiextensionsv1.CustomResourceDefinitionSpec{
		Group: group, Scope: apiextensionsv1.NamespaceScoped,
		Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: strings.ToLower(kind), Kind: kind, ListKind: kind + "List"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}}}},
	}
	return crd
}

// grantDefinitions gives Alice all permissions for CustomResourceDefinitions, and no others.
func grantDefinitions(t *testing.T, c *kcptest.Cluster) {
	t.Helper()
	c.Kubectl(t, "create", "clusterrole", "definer", "--verb=*", "--resource=customresourcedefinitions.apiextensions.k8s.io,customresourcedefinitions.apiextensions.k8s.io/status")
	c.Kubectl(t, "create", "clusterrolebinding", "definer", "--clusterrole=definer", "--user="+kcptest.Alice.Name)
	c.Grant(t, kcptest.Alice, "view")
}

func TestDefinitionsOfBuiltInResourcesAreRefused(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	ours := server.Cluster(t)
	grantDefinitions(t, ours)
	kept := child(t, ours, "kept")
	create := func(crd *apiextensionsv1.CustomResourceDefinition) error {
		_, err := ours.Definitions(t, kcptest.Alice).ApiextensionsV1().CustomResourceDefinitions().Create(ctx, crd, metav1.CreateOptions{})
		return err
	}
	for _, built := range []struct{ group, plural, kind string }{
		{"tenancy.kcp.io", "workspaces", "Workspace"}, {"tenancy.kcp.io", "workspacetypes", "WorkspaceType"}, {"topology.kcp.io", "partitions", "Partition"},
		{"core.kcp.io", "shards", "Shard"}, {"apis.kcp.io", "apibindings", "APIBinding"}, {"", "secrets", "Secret"},
		{"apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition"}, {"rbac.authorization.k8s.io", "roles", "Role"},
	} {
		if err := create(definition(built.group, built.plural, built.kind)); err == nil || !strings.Contains(err.Error(), "is built in") {
			t.Errorf("%s: got %v", built.plural, err)
		}
	}
	// A definition cannot use a kind of the server with another plural either, because owner references contain kinds.
	for _, built := range []struct{ group, plural, kind string }{{"tenancy.kcp.io", "workspacez", "Workspace"}, {"", "configmapz", "ConfigMap"}} {
		crd := definition(built.group, built.plural, built.kind)
		if err := create(crd); err != nil {
			t.Fatal(err)
		}
		wantNames(t, ours, crd.Name, false)
	}
	if ws := ours.GetWorkspace(t, "kept"); ws.DeletionTimestamp != nil || ws.Spec.Cluster != kept.Name {
		t.Error("the workspace was deleted or replaced")
	}
}

// wantNames waits until the names of a definition are accepted and it is served, or until they are refused.
func wantNames(t *testing.T, c *kcptest.Cluster, name string, accepted bool) {
	t.Helper()
	kcptest.Eventually(t, fmt.Sprintf("the names of %s: %t", name, accepted), func(ctx context.Context) error {
		crd, err := c.Definitions(t, kcptest.Masters).ApiextensionsV1().CustomResourceDefinitions().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		decided := 0
		for _, condition := range crd.Status.Conditions {
			of := condition.Type == apiextensionsv1.NamesAccepted || condition.Type == apiextensionsv1.Established
			if of && (condition.Status == apiextensionsv1.ConditionTrue) == accepted {
				decided++
			}
		}
		if decided != 2 {
			return fmt.Errorf("got conditions %v", crd.Status.Conditions)
		}
		return nil
	})
}

func TestDefinitionOfBoundResourceIsNotServed(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	p, consumer := provider(t), server.Cluster(t)
	bind(t, consumer, p)
	bound := create(t, consumer, "one")
	grantDefinitions(t, consumer)
	mine := consumer.Definitions(t, kcptest.Alice).ApiextensionsV1().CustomResourceDefinitions()
	lives := func(when string) {
		t.Helper()
		found, err := consumer.Objects(t, widgets).Namespace("default").Get(ctx, "one", metav1.GetOptions{})
		if err != nil || found.GetUID() != bound.GetUID() || found.GetDeletionTimestamp() != nil {
			t.Errorf("%s, the bound object is missing: %v, %v", when, found, err)
		}
	}
	if _, err := mine.Create(ctx, definition("example.org", "widgets", "Widget"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	wantNames(t, consumer, "widgets.example.org", false)
	lives("with a definition")
	forged := []byte(`{"status":{"acceptedNames":{"plural":"widgets","kind":"Widget"},"conditions":[{"type":"Established","status":"True","reason":"x","message":"x","lastTransitionTime":"2020-01-01T00:00:00Z"}]}}`)
	crd, err := mine.Patch(ctx, "widgets.example.org", types.MergePatchType, forged, metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
	if crd.Status.AcceptedNames.Plural != "" {
		t.Errorf("the status has the accepted name %q", crd.Status.AcceptedNames.Plural)
	}
	wantNames(t, consumer, "widgets.example.org", false)
	lives("with a forged status")
	if err := mine.Delete(ctx, "widgets.example.org", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "the definition is deleted", func(ctx context.Context) error {
		_, err := mine.Get(ctx, "widgets.example.org", metav1.GetOptions{})
		return kcptest.Gone(err)
	})
	lives("after the definition")

	// When the binding is deleted, the definition gets the name.
	if _, err := mine.Create(ctx, definition("example.org", "widgets", "Widget"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	wantNames(t, consumer, "widgets.example.org", false)
	consumer.Kubectl(t, "delete", "apibinding", "widgets")
	wantNames(t, consumer, "widgets.example.org", true)
	if list, err := consumer.Objects(t, widgets).List(ctx, metav1.ListOptions{}); err != nil || len(list.Items) > 0 {
		t.Errorf("the resource of the definition has objects %v, %v", list, err)
	}
}
