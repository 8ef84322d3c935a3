package installation_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	migrationv1alpha1 "github.com/kcplane/kcp/api/migration/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/kcpaccess"
	"github.com/kcplane/kcp/operator/internal/operatortest"
)

// Shards returns the shards, and a shard that accepts logical clusters.
func (r *registry) Shards(context.Context, kcpaccess.Credentials) ([]corev1alpha1.Shard, error) {
	east := corev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: "east"}}
	east.Status.Conditions = []corev1alpha1.Condition{{Type: corev1alpha1.ShardReady, Status: metav1.ConditionTrue}}
	if one := resource.MustParse("1"); r.full {
		east.Status.Capacity = corev1.ResourceList{corev1alpha1.ResourceLogicalClusters: one}
		east.Status.Used = east.Status.Capacity
	}
	return []corev1alpha1.Shard{east}, nil
}

// Holdings has one logical cluster on each page.
func (r *registry) Holdings(_ context.Context, _ kcpaccess.Credentials, name, after string) (corev1alpha1.ShardLogicalClusters, error) {
	n := r.shards[name].LogicalClusters
	page := corev1alpha1.ShardLogicalClusters{Total: n}
	for i := range n {
		if cluster := fmt.Sprintf("c%02d", i); cluster > after {
			page.Items = []corev1alpha1.ShardLogicalCluster{{Name: cluster, Path: "root:" + cluster, Stays: r.stays[cluster]}}
			if i < n-1 {
				page.Continue = cluster
			}
			break
		}
	}
	return page, r.holdingsErr
}

func (r *registry) Migrations(context.Context, kcpaccess.Credentials) ([]migrationv1alpha1.LogicalClusterMigration, error) {
	return slices.Collect(maps.Values(r.migrations)), nil
}

func (r *registry) Move(_ context.Context, _ kcpaccess.Credentials, name string, labels map[string]string, cluster, destination string) error {
	if r.migrations == nil {
		r.migrations = map[string]migrationv1alpha1.LogicalClusterMigration{}
	}
	if _, begun := r.migrations[name]; begun {
		return r.moveErr
	}
	m := migrationv1alpha1.LogicalClusterMigration{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	m.Spec = migrationv1alpha1.LogicalClusterMigrationSpec{LogicalCluster: cluster, DestinationShard: destination}
	r.migrations[name] = m
	return r.moveErr
}

func (r *registry) Cancel(_ context.Context, _ kcpaccess.Credentials, name string) error {
	delete(r.migrations, name)
	return r.cancelErr
}

func TestDrainMovesLogicalClustersUntilItIsStopped(t *testing.T) {
	w, kcp, west := registered(t)
	drain := func(on bool) {
		t.Helper()
		operatortest.Read(t, w.Cluster, "west", west)
		west.Spec.Drain = on
		w.MustUpdate(t, west)
		w.reconcile(t)
	}
	kcp.stays = map[string]string{"c00": "the logical cluster has no Workspace"}
	drain(true)
	w.expect(t, west, "Drained", metav1.ConditionFalse, "Moving", "12 of 12 logical clusters remain")
	if len(kcp.migrations) > 0 || west.Status.Drain.Total != 12 {
		t.Errorf("moves begin before the number at the start is stored: %v", kcp.migrations)
	}
	w.reconcile(t)
	w.expect(t, west, "Drained", metav1.ConditionFalse, "Moving", "12 of 12 logical clusters remain, 1 are moving")
	w.expect(t, west, "Ready", metav1.ConditionTrue, "", "")
	m := kcp.migrations["drain-west-c01"]
	if !kcp.shards["west"].Cordoned || len(kcp.migrations) != 1 || m.Spec.DestinationShard != "east" || west.Status.Drain.Total != 12 {
		t.Errorf("kcp has %+v and the migrations %v", kcp.shards["west"], kcp.migrations)
	}
	by := m
	by.Name, by.Labels = "by-hand", nil
	kcp.migrations["by-hand"] = by

	kcp.cancelErr = errors.New("connection refused")
	drain(false)
	w.expect(t, west, "Drained", metav1.ConditionFalse, "StopFailed", "connection refused")
	kcp.cancelErr = nil
	w.reconcile(t)
	operatortest.Read(t, w.Cluster, "west", west)
	if meta.FindStatusCondition(west.Status.Conditions, "Drained") != nil || west.Status.Drain != nil || kcp.shards["west"].Cordoned {
		t.Errorf("status without drain: %+v", west.Status)
	}
	if _, kept := kcp.migrations["by-hand"]; !kept || len(kcp.migrations) != 1 {
		t.Errorf("the migrations are %v", kcp.migrations)
	}
	w.WritesNothing(t, func() { w.reconcile(t) })
}

func TestADrainReportsWhyItDoesNotContinue(t *testing.T) {
	w, kcp, west := registered(t)
	operatortest.Read(t, w.Cluster, "west", west)
	west.Spec.Drain = true
	w.MustUpdate(t, west)
	kcp.holdingsErr = errors.New("connection refused")
	w.reconcile(t)
	w.expect(t, west, "Drained", metav1.ConditionFalse, "RootShardUnreachable", "connection refused")
	kcp.holdingsErr = apierrors.NewNotFound(shardResource, "west")
	w.reconcile(t)
	w.expect(t, west, "Drained", metav1.ConditionFalse, "Unsupported", "kubectl kcp move")
	kcp.holdingsErr, kcp.moveErr = nil, errors.New("the quota is exceeded")
	w.reconcile(t)
	w.reconcile(t)
	w.expect(t, west, "Drained", metav1.ConditionFalse, "Moving", "the quota is exceeded")
	kcp.shards["west"] = kcpaccess.Registered{BaseURL: kcp.shards["west"].BaseURL, Responds: true, Cordoned: true}
	w.reconcile(t)
	w.expect(t, west, "Drained", metav1.ConditionTrue, "Empty", "")
	w.delete(t, west)
	w.end(t)
	if w.remains(t, "west") {
		t.Error("the empty shard is not deleted")
	}
}
