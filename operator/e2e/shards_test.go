package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// shardOf returns a Shard that refers to a root shard.
func shardOf(name, root string) *v1alpha1.Shard {
	s := &v1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: name}}
	s.Spec.RootShard.Reference = &v1alpha1.LocalReference{Name: root}
	s.Spec.Etcd.Endpoints = []v1alpha1.EtcdEndpoint{v1alpha1.EtcdEndpoint("https://etcd-" + name + ":2379")}
	return s
}

// D32: the root shard is called root in kcp, and its EtcdCluster has the name of the RootShard.
func TestNamesOfTheRootShardAreRefusedForShards(t *testing.T) {
	start(t, asOperator())
	admin := cluster(t, host)
	for name, want := range map[string]string{"root": "root is the name of the root shard in kcp", "kcp": "would both own an EtcdCluster of this name"} {
		if err := admin.Create(t.Context(), shardOf(name, "kcp")); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("a Shard %s of the RootShard kcp: got %v", name, err)
		}
	}
	if err := admin.Create(t.Context(), shardOf("east", "kcp")); err != nil {
		t.Error(err)
	}
}

// D27: a Shard may refer to a missing RootShard.
func TestARootShardRemainsWhileShardsReferToIt(t *testing.T) {
	start(t, asOperator())
	admin := cluster(t, host)
	rs, alone := shard("held"), shard("alone")
	first, second := shardOf("first", "held"), shardOf("second", "held")
	second.SetFinalizers([]string{"example.com/no-answer"})
	admin.MustCreate(t, rs, alone, first, second, shardOf("elsewhere", "other"))
	kcptest.Eventually(t, "its Shards are known", func(context.Context) error {
		operatortest.Read(t, admin, "held", rs)
		if got := fmt.Sprint(rs.Status.Shards, len(rs.Finalizers)); got != "[{first} {second}] 1" {
			return errors.New(got)
		}
		return nil
	})
	// The operator is deleted with its own namespace.
	own, ofOwn := shard("own"), shardOf("of-own", "own")
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
