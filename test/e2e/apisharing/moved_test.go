package apisharing

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// Consumers can read and delete their stored objects after any change of an export.
func TestObjectsStayReachableAfterChangesOfExport(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change  func(t *testing.T, p *kcptest.Cluster)
		message string
	}{
		"changing the scope": {
			func(t *testing.T, p *kcptest.Cluster) {
				p.Apply(t, strings.ReplaceAll(widgetSchema("v2", 100), "scope: Namespaced", "scope: Cluster")+"---"+export("v2"))
			},
			"has the scope Cluster",
		},
		"changing the identity": {
			func(t *testing.T, p *kcptest.Cluster) {
				ctx := kcptest.Context(t)
				if err := p.Objects(t, kcptest.APIExports).Delete(ctx, "widgets", metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				keys := p.Objects(t, schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).Namespace("kcp-system")
				if err := keys.Delete(ctx, "widgets", metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				exporting(t, p)
			},
			"of the APIExport, which has the identity",
		},
		"removing the storage version": {
			func(t *testing.T, p *kcptest.Cluster) {
				p.Apply(t, strings.Replace(widgetSchema("v2", 100), "name: v1", "name: v2", 1)+"---"+export("v2"))
			},
			"are stored in version v1, which APIResourceSchema v2.widgets.example.org does not have",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, consumer := provider(t), server.Cluster(t)
			ctx := kcptest.Context(t)
			bind(t, consumer, p)
			create(t, consumer, "one")
			test.change(t, p)
			bindings := consumer.Objects(t, kcptest.APIBindings)
			kcptest.Eventually(t, "the status of the binding says that it does not follow its export", func(ctx context.Context) error {
				b, err := bindings.Get(ctx, "widgets", metav1.GetOptions{})
				if err != nil {
					return err
				}
				if text := fmt.Sprint(b.Object["status"]); !strings.Contains(text, test.message) {
					return fmt.Errorf("got status %s", text)
				}
				return nil
			})
			if _, err := consumer.Objects(t, widgets).Namespace("default").Get(ctx, "one", metav1.GetOptions{}); err != nil {
				t.Errorf("reading the objects of the consumer: %v", err)
			}
			if err := bindings.Delete(ctx, "widgets", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			kcptest.Eventually(t, "the binding is deleted", func(ctx context.Context) error {
				if _, err := bindings.Get(ctx, "widgets", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
					return fmt.Errorf("it still exists: %v", err)
				}
				return nil
			})
		})
	}
}

// refusing is a policy of a provider that refuses every change of widgets.
const refusing = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: refuse}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: [{apiGroups: [example.org], apiVersions: ["*"], operations: [UPDATE, DELETE], resources: ["*"]}]
  validations: [{expression: "false"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: refuse}
spec: {policyName: refuse, validationActions: [Deny]}
`

// unreachable is a webhook of a provider for every change of widgets, on a missing host.
const unreachable = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: unreachable}
webhooks:
- name: unreachable.example.org
  admissionReviewVersions: [v1]
  sideEffects: None
  clientConfig: {url: "https://127.0.0.1:1/"}
  rules: [{apiGroups: [example.org], apiVersions: ["*"], operations: [UPDATE, DELETE], resources: ["*"]}]
`

// converted is a schema of widgets with two versions, with a conversion webhook on a missing host. The second version is served and
// stored.
var converted = strings.Replace(strings.Replace(widgetSchema("v2", 100), "served: true\n    storage: true", "served: false\n    storage: false", 1), "  versions:", `
  conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {url: "https://127.0.0.1:1/"}}}
  versions:
  - {name: v2, served: true, storage: true, schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}`, 1) + "---" + export("v2")

func TestProvidersCannotBlockDeletion(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"by a policy":           refusing,
		"by a webhook":          unreachable,
		"by a conversion":       converted,
		"by serving no version": strings.Replace(widgetSchema("v2", 100), "served: true", "served: false", 1) + "---" + export("v2"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, parent := provider(t), server.Cluster(t)
			unbinding, going := child(t, parent, "unbinding"), child(t, parent, "going")
			for _, consumer := range []*kcptest.Cluster{unbinding, going} {
				bind(t, consumer, p)
				create(t, consumer, "one")
			}
			p.Apply(t, change)
			for _, consumer := range []*kcptest.Cluster{unbinding, going} {
				kcptest.Eventually(t, "clients cannot delete bound objects", func(ctx context.Context) error {
					ctx, cancel := context.WithTimeout(ctx, 5*time.Second) // a failing conversion is retried for longer than the test waits
					defer cancel()
					for _, version := range []string{"v1", "v2"} {
						objects := consumer.Objects(t, widgets.GroupResource().WithVersion(version)).Namespace("default")
						if err := objects.Delete(ctx, "one", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}); err == nil {
							return fmt.Errorf("they can delete them in version %s", version)
						}
					}
					return nil
				})
			}
			endUnbinding(t, unbinding)
			endWorkspace(t, parent, "going")
		})
	}
}

// endUnbinding deletes the binding of a consumer, and waits until it is gone.
func endUnbinding(t *testing.T, consumer *kcptest.Cluster) {
	t.Helper()
	bindings := consumer.Objects(t, kcptest.APIBindings)
	if err := bindings.Delete(kcptest.Context(t), "widgets", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.WaitUntilGone(t, bindings, "widgets")
}

// endWorkspace deletes a workspace, and waits until it is gone.
func endWorkspace(t *testing.T, parent *kcptest.Cluster, name string) {
	t.Helper()
	workspaces := parent.Objects(t, kcptest.Workspaces)
	if err := workspaces.Delete(kcptest.Context(t), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.WaitUntilGone(t, workspaces, name)
}

// Servers that followed an export to another identity or scope left objects that the binding does not describe any more.
func TestObjectsOfFormerIdentityOrScopeAreDeletedWithBinding(t *testing.T) {
	t.Parallel()
	for name, scope := range map[string]string{"under another identity": "Namespaced", "with another scope": "Cluster"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, parent := provider(t), server.Cluster(t)
			ctx := kcptest.Context(t)
			unbinding, going, other := child(t, parent, "unbinding"), child(t, parent, "going"), server.Cluster(t)
			for _, consumer := range []*kcptest.Cluster{unbinding, going} {
				bind(t, consumer, p)
				create(t, consumer, "one")
			}
			from := p
			if scope == "Namespaced" {
				from = server.Cluster(t)
			}
			from.Apply(t, strings.ReplaceAll(widgetSchema("v2", 100), "scope: Namespaced", "scope: "+scope)+"---"+export("v2"))
			waitForIdentity(t, from, "widgets")
			bind(t, other, from)
			moved, err := other.Objects(t, kcptest.APIBindings).Get(ctx, "widgets", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			resources, _, _ := unstructured.NestedSlice(moved.Object, "status", "boundResources")
			for _, consumer := range []*kcptest.Cluster{unbinding, going} {
				patch, err := json.Marshal(map[string]any{"status": map[string]any{"boundResources": resources}})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := consumer.Objects(t, kcptest.APIBindings).Patch(ctx, "widgets", types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
					t.Fatal(err)
				}
				kcptest.Eventually(t, "the objects cannot be reached", func(ctx context.Context) error {
					if _, err := consumer.Objects(t, widgets).Namespace("default").Get(ctx, "one", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
						return fmt.Errorf("reading an object: %v", err)
					}
					return nil
				})
			}
			endUnbinding(t, unbinding)
			endWorkspace(t, parent, "going")
			if scope == "Cluster" {
				p.Apply(t, export("v1"))
			}
			bind(t, unbinding, p)
			list, err := unbinding.Objects(t, widgets).List(ctx, metav1.ListOptions{})
			if err != nil || len(list.Items) > 0 {
				t.Errorf("after binding again: got %v, %v", list, err)
			}
		})
	}
}

// ownWidgets is a CustomResourceDefinition of widgets in the consumer.
const ownWidgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.org}
spec:
  group: example.org
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

func TestDefinitionDoesNotBlockDeletionOfWorkspace(t *testing.T) {
	t.Parallel()
	parent := server.Cluster(t)
	going := child(t, parent, "going")
	going.Apply(t, ownWidgets)
	going.WaitForDefinition(t, "widgets.example.org")
	create(t, going, "one")
	going.Apply(t, strings.Replace(strings.Replace(ownWidgets, "storage: true", "storage: false", 1), "  versions:", `
  conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {url: "https://127.0.0.1:1/"}}}
  versions:
  - {name: v2, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}`, 1))
	kcptest.Eventually(t, "the widget cannot be converted", func(ctx context.Context) error {
		if _, err := going.Objects(t, widgets.GroupResource().WithVersion("v2")).Namespace("default").Get(ctx, "one", metav1.GetOptions{}); !apierrors.IsInternalError(err) {
			return fmt.Errorf("reading it: %v", err)
		}
		return nil
	})
	endWorkspace(t, parent, "going")
}

func TestObjectsOfUnservedVersionsAreDeletedWithDefinition(t *testing.T) {
	t.Parallel()
	c := server.Cluster(t)
	define := func(definition string) {
		c.Apply(t, definition)
		c.WaitForDefinition(t, "widgets.example.org")
	}
	define(ownWidgets)
	create(t, c, "one")
	c.Apply(t, strings.Replace(ownWidgets, "served: true", "served: false", 1))
	c.Kubectl(t, "delete", "crd", "widgets.example.org")
	define(strings.Replace(ownWidgets, "scope: Namespaced", "scope: Cluster", 1))
	list, err := c.Objects(t, widgets).List(kcptest.Context(t), metav1.ListOptions{})
	if err != nil || len(list.Items) > 0 {
		t.Errorf("the next definition has objects %v, %v", list, err)
	}
}

func TestRulesOfProviderDoNotBlockBindingOfAnotherExport(t *testing.T) {
	t.Parallel()
	p, consumer := provider(t), server.Cluster(t)
	identity := identityOf(t, kcptest.Context(t), p)
	c := claimant(t, identity)
	bind(t, consumer, p)
	create(t, consumer, "one")
	bindGadgets(t, consumer, c, identity, "Accepted")
	seesWidgets(t, c, "*", "one")
	p.Apply(t, refusing)
	kcptest.Eventually(t, "widgets cannot be deleted", func(ctx context.Context) error {
		if consumer.Objects(t, widgets).Namespace("default").Delete(ctx, "one", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}) == nil {
			return fmt.Errorf("they can be deleted")
		}
		return nil
	})
	bindings := consumer.Objects(t, kcptest.APIBindings)
	if err := bindings.Delete(kcptest.Context(t), "gadgets", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.WaitUntilGone(t, bindings, "gadgets")
	seesWidgets(t, c, "*")
}

func TestBindingReportsFinalizersThatCannotBeRemoved(t *testing.T) {
	t.Parallel()
	p, consumer := provider(t), server.Cluster(t)
	ctx := kcptest.Context(t)
	bind(t, consumer, p)
	create(t, consumer, "one")
	inside := consumer.Objects(t, widgets).Namespace("default")
	if _, err := inside.Patch(ctx, "one", types.MergePatchType, []byte(`{"metadata":{"finalizers":["example.org/held"]}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	p.Apply(t, strings.Replace(widgetSchema("v2", 100), "      properties:", "      required: [owner]\n      properties:\n        owner: {type: string}", 1)+"---"+export("v2"))
	kcptest.Eventually(t, "the widget has become invalid", func(ctx context.Context) error {
		_, err := inside.Patch(ctx, "one", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		if !apierrors.IsInvalid(err) {
			return fmt.Errorf("removing its finalizers: %v", err)
		}
		return nil
	})
	bindings := consumer.Objects(t, kcptest.APIBindings)
	if err := bindings.Delete(ctx, "widgets", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "the status of the binding says why it still exists", func(ctx context.Context) error {
		b, err := bindings.Get(ctx, "widgets", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if text := fmt.Sprint(b.Object["status"]); !strings.Contains(text, "1 widgets.example.org (the API refuses to remove them; they do not count from") {
			return fmt.Errorf("got status %s", text)
		}
		return nil
	})
	if _, err := inside.Patch(ctx, "one", types.MergePatchType, []byte(`{"owner":"alice","metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.WaitUntilGone(t, bindings, "widgets")
}
