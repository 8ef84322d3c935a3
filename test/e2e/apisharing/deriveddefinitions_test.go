package apisharing

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

const derivedFrom = "apis.kcp.io/derived-from-binding"

func TestDerivedDefinitionsOfBoundAPIs(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	p := provider(t)
	setClaims(t, p, `[{"group":"apiextensions.k8s.io","resource":"customresourcedefinitions","verbs":["*"]}]`)
	p.Apply(t, `
apiVersion: tenancy.kcp.io/v1alpha1
kind: WorkspaceType
metadata: {name: shown, annotations: {tenancy.kcp.io/derived-definitions: "true"}}
spec:
  extend: {with: [{name: universal, path: root}]}
---
apiVersion: tenancy.kcp.io/v1alpha1
kind: WorkspaceType
metadata: {name: extending}
spec:
  extend: {with: [{name: shown}]}
`)
	off := p.CreateWorkspace(t, kcptest.Masters, kcptest.Workspace("off", "root", "universal"))
	on := p.CreateWorkspace(t, kcptest.Masters, kcptest.Workspace("on", p.Name, "extending"))
	for _, workspace := range []*kcptest.Cluster{off, on} {
		bind(t, workspace, p)
	}
	const name = "widgets.example.org"
	_, err := off.Definitions(t, kcptest.Masters).ApiextensionsV1().CustomResourceDefinitions().Get(ctx, name, metav1.GetOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonNotFound)

	instance := create(t, on, "one")
	crds := on.Definitions(t, kcptest.Masters).ApiextensionsV1().CustomResourceDefinitions()
	derived, err := crds.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if derived.Annotations[derivedFrom] != "widgets" || derived.Spec.Names.ShortNames[0] != "wdg" || derived.Status.StoredVersions[0] != "v1" {
		t.Errorf("got %v", derived)
	}
	on.Kubectl(t, "wait", "--for=condition=Established", "--timeout=10s", "crd/"+name)
	list, err := crds.List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].UID != derived.UID {
		t.Errorf("listed %v, %v", list, err)
	}
	watched, err := crds.Watch(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()})
	if err != nil {
		t.Fatal(err)
	}
	defer watched.Stop()
	next := func() *apiextensionsv1.CustomResourceDefinition {
		t.Helper()
		select {
		case event := <-watched.ResultChan():
			crd, ok := event.Object.(*apiextensionsv1.CustomResourceDefinition)
			if !ok {
				t.Fatalf("got %v", event)
			}
			return crd
		case <-time.After(time.Minute):
			t.Fatal("no event within a minute")
			return nil
		}
	}
	if crd := next(); crd.UID != derived.UID {
		t.Errorf("the watch starts with %v", crd)
	}

	_, updated := crds.Update(ctx, derived, metav1.UpdateOptions{})
	_, status := crds.UpdateStatus(ctx, derived, metav1.UpdateOptions{})
	_, patched := crds.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
	deleted := crds.Delete(ctx, name, metav1.DeleteOptions{})
	for verb, err := range map[string]error{"update": updated, "status": status, "patch": patched, "delete": deleted} {
		kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
		if err != nil && !strings.Contains(err.Error(), "it is read-only: the server derives the definition of a bound API from its APIBinding") {
			t.Errorf("%s: %v", verb, err)
		}
	}
	if err := crds.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Error(err)
	}

	// A claim only covers stored definitions.
	claim := []byte(`{"spec":{"permissionClaims":[{"group":"apiextensions.k8s.io","resource":"customresourcedefinitions","verbs":["*"],"state":"Accepted","selector":{"matchAll":true}}]}}`)
	if _, err := on.Objects(t, kcptest.APIBindings).Patch(ctx, "widgets", types.MergePatchType, claim, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	claimed := view(t, kcptest.Masters, p, p.GetWorkspace(t, "on").Spec.Cluster).Resource(apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"))
	kcptest.Eventually(t, "the provider sees no derived definition", func(ctx context.Context) error {
		list, err := claimed.List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("got %v", list.Items[0].GetName())
		}
		return err
	})
	_, err = claimed.Get(ctx, name, metav1.GetOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonNotFound)

	kcptest.WantReason(t, claimed.Delete(ctx, name, metav1.DeleteOptions{}), metav1.StatusReasonNotFound)

	// A stored definition with the name takes precedence, and is not served.
	stored, err := crds.Create(ctx, definition("example.org", "widgets", "Widget"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wantNames(t, on, name, false)
	if list, err := crds.List(ctx, metav1.ListOptions{}); err != nil || len(list.Items) != 1 || list.Items[0].UID != stored.UID {
		t.Errorf("listed %v, %v", list, err)
	}
	if crd := next(); crd.UID != stored.UID {
		t.Errorf("the watch continues with %v", crd)
	}
	if err := crds.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "the derived definition is visible again", func(ctx context.Context) error {
		crd, err := crds.Get(ctx, name, metav1.GetOptions{})
		if err == nil && crd.UID != derived.UID {
			err = fmt.Errorf("got %v", crd.ObjectMeta)
		}
		return err
	})
	found, err := on.Objects(t, widgets).Namespace("default").Get(ctx, "one", metav1.GetOptions{})
	if err != nil || found.GetUID() != instance.GetUID() || found.GetDeletionTimestamp() != nil {
		t.Errorf("after the deletion of the definition, the bound object is missing: %v, %v", found, err)
	}

	// Deletion does not wait for definitions that are not stored.
	workspaces := p.Objects(t, kcptest.Workspaces)
	if err := workspaces.Delete(ctx, "on", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "the workspace is deleted", func(ctx context.Context) error {
		_, err := workspaces.Get(ctx, "on", metav1.GetOptions{})
		return kcptest.Gone(err)
	})
}
