package installation_test

import (
	"context"
	"errors"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	migrationv1alpha1 "github.com/kcplane/kcp/api/migration/v1alpha1"
	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/kcpaccess"
	"github.com/kcplane/kcp/operator/internal/operatortest"
)

// registry has the Shard objects of a kcp, by name.
type registry struct {
	shards map[string]kcpaccess.Registered
	err    error
	// stays is why logical clusters do not move, by name.
	stays                           map[string]string
	migrations                      map[string]migrationv1alpha1.LogicalClusterMigration
	holdingsErr, moveErr, cancelErr error
	// held is the number of logical clusters of a shard when it registers, and moved has the completed moves.
	held  map[string]int64
	moved []string
	// full reports whether the shard east accepts no more logical clusters.
	full bool
}

var shardResource = schema.GroupResource{Group: "core.kcp.io", Resource: "shards"}

func (r *registry) Shard(_ context.Context, c kcpaccess.Credentials, name string) (kcpaccess.Registered, error) {
	found, ok := r.shards[name]
	switch {
	case r.err != nil:
		return found, r.err
	case c.URL != "https://kcp-kcp.team.svc.cluster.local:6443" || len(c.Certificate) == 0:
		return found, errors.New("these are not the credentials for the root shard")
	case !ok:
		return found, apierrors.NewNotFound(shardResource, name)
	}
	return found, nil
}

func (r *registry) Cordon(ctx context.Context, c kcpaccess.Credentials, name string, cordoned bool) error {
	found, err := r.Shard(ctx, c, name)
	if err == nil {
		found.Cordoned = cordoned
		r.shards[name] = found
	}
	return err
}

func (r *registry) Remove(ctx context.Context, c kcpaccess.Credentials, name string, lose bool) error {
	found, err := r.Shard(ctx, c, name)
	if err == nil && found.LogicalClusters > 0 && !lose {
		return apierrors.NewForbidden(shardResource, name, errors.New("the shard holds 12 logical clusters"))
	}
	if err == nil {
		delete(r.shards, name)
	}
	return err
}

// registered returns a world with the Shard west, which kcp has with 12 logical clusters.
func registered(t *testing.T) (*world, *registry, *v1alpha1.Shard) {
	t.Helper()
	kcp := &registry{shards: map[string]kcpaccess.Registered{
		"west": {BaseURL: "https://west-shard-kcp.team.svc.cluster.local:6443", LogicalClusters: 12, Responds: true}}}
	west := further("west")
	w := newWorld(root("kcp"), west)
	w.registry = kcp
	w.settle(t)
	set := operatortest.Read(t, w.Cluster, "west", west)
	set.Status.Image = image
	w.MustUpdateStatus(t, set)
	w.reconcile(t)
	return w, kcp, west
}

func (w *world) delete(t *testing.T, object client.Object) {
	t.Helper()
	if err := w.Delete(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	w.reconcile(t)
}

// end ends the pods of the Shard west, which must be requested, and reconciles.
func (w *world) end(t *testing.T) {
	t.Helper()
	w.expect(t, further("west"), "Registered", metav1.ConditionFalse, "Stopping", "its pods end")
	if set := operatortest.Read(t, w.Cluster, "west-shard-kcp", &appsv1.StatefulSet{}); *set.Spec.Replicas != 0 {
		t.Errorf("%d pods are wanted", *set.Spec.Replicas)
	}
	w.Roll(t, "west-shard-kcp")
	w.reconcile(t)
}

// remains reports whether a Shard exists.
func (w *world) remains(t *testing.T, name string) bool {
	t.Helper()
	err := w.Get(t.Context(), operatortest.Key(name), &v1alpha1.Shard{})
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return err == nil
}

func TestAShardIsReadyWhenKCPHasIt(t *testing.T) {
	w, kcp, west := registered(t)
	w.expect(t, west, "Ready", metav1.ConditionTrue, "", "")
	if n := west.Status.LogicalClusters; n == nil || *n != 12 {
		t.Errorf("it holds %v logical clusters", n)
	}
	w.WritesNothing(t, func() { w.reconcile(t) })
	for _, test := range []struct {
		found           kcpaccess.Registered
		err             error
		reason, message string
	}{
		{kcpaccess.Registered{BaseURL: "https://elsewhere"}, nil, "OtherURL", "kcp has https://elsewhere"},
		{kcpaccess.Registered{BaseURL: kcp.shards["west"].BaseURL, Message: "no route"}, nil, "NotResponding", "no route"},
		{kcpaccess.Registered{}, errors.New("connection refused"), "RootShardUnreachable", "connection refused"},
	} {
		kcp.shards["west"], kcp.err = test.found, test.err
		w.reconcile(t)
		w.expect(t, west, "Registered", metav1.ConditionFalse, test.reason, test.message)
		w.expect(t, west, "Ready", metav1.ConditionFalse, test.reason, test.message)
	}
	delete(kcp.shards, "west")
	kcp.err = nil
	w.reconcile(t)
	w.expect(t, west, "Registered", metav1.ConditionFalse, "NotRegistered", "waiting for the shard to register")
}

func TestAShardWithLogicalClustersIsNotDeleted(t *testing.T) {
	w, kcp, west := registered(t)
	w.delete(t, west)
	w.expect(t, west, "Stalled", metav1.ConditionTrue, "HoldsLogicalClusters", "the shard holds 12 logical clusters")
	if west.Status.Phase != v1alpha1.PhaseDeleting || !kcp.shards["west"].Cordoned {
		t.Errorf("it has the phase %s, and kcp has %+v", west.Status.Phase, kcp.shards["west"])
	}
	// Its pods are maintained until then.
	pods := operatortest.Read(t, w.Cluster, "west-shard-kcp", &appsv1.StatefulSet{})
	if err := w.Delete(t.Context(), pods); err != nil {
		t.Fatal(err)
	}
	w.reconcile(t)
	operatortest.Read(t, w.Cluster, "west-shard-kcp", pods)
	kcp.shards["west"] = kcpaccess.Registered{BaseURL: kcp.shards["west"].BaseURL, Responds: true}
	w.reconcile(t)
	w.end(t)
	if _, left := kcp.shards["west"]; left || w.remains(t, "west") {
		t.Errorf("the empty shard is not deleted; kcp has %v", kcp.shards)
	}
}

func TestAnAnnotationDeletesAShardWithItsLogicalClusters(t *testing.T) {
	for name, down := range map[string]error{"kcp answers": nil, "kcp does not answer": errors.New("connection refused")} {
		t.Run(name, func(t *testing.T) {
			w, kcp, west := registered(t)
			kcp.err = down
			w.delete(t, west)
			if !w.remains(t, "west") {
				t.Fatal("it is deleted without the annotation")
			}
			operatortest.Read(t, w.Cluster, "west", west)
			west.Annotations = map[string]string{"core.kcp.io/delete-with-placements": "true"}
			w.MustUpdate(t, west)
			if w.reconcile(t); down == nil {
				w.end(t)
			}
			if w.remains(t, "west") {
				t.Error("it is not deleted")
			}
		})
	}
}

// D20: a pod of a deleted shard that restarts registers the shard again.
func TestAShardThatRegistersAgainWhileItIsDeletedIsRemovedFromKCP(t *testing.T) {
	w, kcp, west := registered(t)
	empty := kcpaccess.Registered{BaseURL: kcp.shards["west"].BaseURL, Responds: true}
	kcp.shards["west"] = empty
	w.start(t, "west-shard-kcp")
	w.delete(t, west)
	if _, has := kcp.shards["west"]; has || !w.remains(t, "west") {
		t.Fatalf("kcp has %v; it remains: %t", kcp.shards, w.remains(t, "west"))
	}
	kcp.shards["west"] = empty
	w.Roll(t, "west-shard-kcp")
	if w.reconcile(t); !w.remains(t, "west") {
		t.Fatal("it is deleted while it has a pod")
	}
	kcp.shards["west"] = empty
	pod := operatortest.Read(t, w.Cluster, "west-shard-kcp-0", &corev1.Pod{})
	if err := w.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	w.end(t)
	if _, has := kcp.shards["west"]; has || w.remains(t, "west") {
		t.Errorf("kcp has %v; it remains: %t", kcp.shards, w.remains(t, "west"))
	}
}

// A shard that registers again may get logical clusters. They are not lost with it.
func TestAShardThatGetsLogicalClustersWhileItStopsRunsAgain(t *testing.T) {
	w, kcp, west := registered(t)
	full := kcp.shards["west"]
	kcp.shards["west"] = kcpaccess.Registered{BaseURL: full.BaseURL, Responds: true}
	w.delete(t, west)
	w.expect(t, west, "Ready", metav1.ConditionFalse, "Stopping", "")
	w.WritesNothing(t, func() { w.reconcile(t) })
	kcp.shards["west"] = full
	w.end(t)
	w.expect(t, west, "Stalled", metav1.ConditionTrue, "HoldsLogicalClusters", "")
	if set := operatortest.Read(t, w.Cluster, "west-shard-kcp", &appsv1.StatefulSet{}); *set.Spec.Replicas != 2 {
		t.Errorf("it has %d pods", *set.Spec.Replicas)
	}
}

// A namespace is deleted with everything in it, also if kcp never answers.
func TestAShardIsDeletedWithItsRootShard(t *testing.T) {
	w, kcp, west := registered(t)
	kcp.err = errors.New("connection refused")
	w.delete(t, west)
	w.expect(t, west, "Ready", metav1.ConditionFalse, "RootShardUnreachable", "waits for RootShard kcp")
	w.delete(t, operatortest.Read(t, w.Cluster, "kcp", &v1alpha1.RootShard{}))
	w.reconcile(t)
	if w.remains(t, "west") {
		t.Error("it remains without its RootShard")
	}
}

func TestAShardThatHasNeverRunIsDeletedAtOnce(t *testing.T) {
	west := further("west")
	w := newWorld(root("kcp"), west)
	w.registry = &registry{err: errors.New("connection refused")}
	w.reconcile(t)
	if operatortest.Read(t, w.Cluster, "west", west); len(west.Finalizers) != 1 {
		t.Errorf("finalizers %v", west.Finalizers)
	}
	if meta.IsStatusConditionTrue(west.Status.Conditions, "Registered") || west.Status.Phase == v1alpha1.PhaseRunning {
		t.Errorf("status: %+v", west.Status)
	}
	w.delete(t, west)
	if w.remains(t, "west") {
		t.Error("it remains")
	}
}
