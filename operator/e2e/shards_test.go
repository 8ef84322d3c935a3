package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// defineShards adds the kind Shard, which belongs to another operator, to the API server for one test.
func defineShards(t *testing.T) {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "shards.operator.kcp.io"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "operator.kcp.io", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "shards", Singular: "shard", Kind: "Shard", ListKind: "ShardList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1alpha1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: new(true)}}}},
		},
	}
	options := envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{crd}}
	if _, err := envtest.InstallCRDs(host, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := envtest.UninstallCRDs(host, options); err != nil {
			t.Error(err)
		}
	})
}

// shardOf returns a Shard that refers to a root shard.
func shardOf(name string, spec map[string]any) *unstructured.Unstructured {
	s := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "operator.kcp.io/v1alpha1", "kind": "Shard", "spec": spec}}
	s.SetNamespace(operatortest.Namespace)
	s.SetName(name)
	return s
}

func to(root string) map[string]any {
	return map[string]any{"rootShard": map[string]any{"ref": map[string]any{"name": root}}}
}

// The definition of Shards may be installed later than the operator. D27: a Shard may refer to a missing RootShard.
func TestARootShardRemainsWhileShardsReferToIt(t *testing.T) {
	start(t, asOperator())
	admin := cluster(t, host)
	defineShards(t)
	rs, alone := shard("held"), shard("alone")
	first, second := shardOf("first", to("held")), shardOf("second", to("held"))
	second.SetFinalizers([]string{"example.com/no-answer"})
	admin.MustCreate(t, rs, alone, first, second, shardOf("nowhere", map[string]any{"rootShard": map[string]any{}}),
		shardOf("broken", map[string]any{"rootShard": "held"}), shardOf("elsewhere", to("other")))
	kcptest.Eventually(t, "its Shards are known", func(context.Context) error {
		operatortest.Read(t, admin, "held", rs)
		if got := fmt.Sprint(rs.Status.Shards, len(rs.Finalizers)); got != "[{first} {second}] 1" {
			return errors.New(got)
		}
		return nil
	})
	// The operator is deleted with its own namespace.
	own, ofOwn := shard("own"), shardOf("of-own", to("own"))
	own.Namespace = "kcp-operator"
	ofOwn.SetNamespace(own.Namespace)
	admin.MustCreate(t, own, ofOwn)
	kcptest.Eventually(t, "its Shard is known, and does not keep it", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(own), own); err != nil {
			return err
		}
		if got := fmt.Sprint(own.Status.Shards, own.Finalizers); got != "[{of-own}] []" {
			return errors.New(got)
		}
		return nil
	})
	if err := admin.Delete(t.Context(), operatortest.Read(t, admin, "alone", alone)); err != nil {
		t.Fatal(err)
	}
	if err := kcptest.Gone(admin.Get(t.Context(), operatortest.Key("alone"), alone)); err != nil {
		t.Errorf("no Shard refers to this one: %v", err)
	}
	if err := admin.Delete(t.Context(), rs); err != nil {
		t.Fatal(err)
	}
	waits := func(message string) {
		t.Helper()
		kcptest.Eventually(t, "it waits, and says so", func(context.Context) error {
			operatortest.Read(t, admin, "held", rs)
			if err := says(rs.Status.Conditions, "Stalled", metav1.ConditionTrue, "ShardsRemain"); err != nil {
				return err
			}
			if c := meta.FindStatusCondition(rs.Status.Conditions, "Ready"); !strings.HasSuffix(c.Message, message) || rs.Status.Phase != v1alpha1.PhaseDeleting {
				return fmt.Errorf("phase %s: %s", rs.Status.Phase, c.Message)
			}
			return nil
		})
	}
	waits("delete first, second")
	kcptest.Eventually(t, "an event says so", func(ctx context.Context) error {
		list := &eventsv1.EventList{}
		if err := admin.List(ctx, list, client.InNamespace(operatortest.Namespace)); err != nil {
			return err
		}
		for _, event := range list.Items {
			if event.Regarding.Name == "held" && event.Reason == "ShardsRemain" && strings.HasSuffix(event.Note, "delete first, second") {
				return nil
			}
		}
		return errors.New("none does")
	})
	if err := admin.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	waits("delete second")
	// When a namespace is deleted, the deletion of the Shard may in turn wait for kcp.
	if err := admin.Delete(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "it is gone", func(ctx context.Context) error {
		return kcptest.Gone(admin.Get(ctx, operatortest.Key("held"), rs))
	})
	if err := admin.Patch(t.Context(), second, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Fatal(err)
	}
}
