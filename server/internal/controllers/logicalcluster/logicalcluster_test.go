package logicalcluster

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// steps of clusters: the first is taken by a client, the second by the server.
const (
	step    = corev1alpha1.LogicalClusterInitializer("root:x")
	builtIn = corev1alpha1.LogicalClusterInitializer("root:universal")
	last    = corev1alpha1.LogicalClusterTerminator("root:x")
)

// cluster returns a logical cluster in a phase, as change leaves it.
func cluster(phase corev1alpha1.LogicalClusterPhase, change func(*corev1alpha1.LogicalCluster)) *corev1alpha1.LogicalCluster {
	lc := objecttest.In("c", &corev1alpha1.LogicalCluster{
		ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.LogicalClusterName, Finalizers: []string{corev1alpha1.DeletionFinalizer}},
		Status:     corev1alpha1.LogicalClusterStatus{Phase: phase},
	})
	if change != nil {
		change(lc)
	}
	return lc
}

func deleted(lc *corev1alpha1.LogicalCluster) {
	now := metav1.Now()
	lc.DeletionTimestamp = &now
}

func TestThePhasesOfALogicalCluster(t *testing.T) {
	const (
		initializing = corev1alpha1.LogicalClusterPhaseInitializing
		ready        = corev1alpha1.LogicalClusterPhaseReady
		inactive     = corev1alpha1.LogicalClusterPhaseInactive
		terminating  = corev1alpha1.LogicalClusterPhaseTerminating
		deleting     = corev1alpha1.LogicalClusterPhaseDeleting
	)
	outOfService := func(lc *corev1alpha1.LogicalCluster) { lc.Annotations[corev1alpha1.InactiveAnnotation] = "true" }
	for name, tc := range map[string]struct {
		lc         *corev1alpha1.LogicalCluster
		want       corev1alpha1.LogicalClusterPhase
		held       bool // by terminators
		deleteable bool
	}{
		"new, without steps": {cluster("", nil), ready, false, false},
		"new, with a step": {
			cluster("", func(lc *corev1alpha1.LogicalCluster) {
				lc.Spec.Initializers = []corev1alpha1.LogicalClusterInitializer{step}
			}), initializing, false, false,
		},
		"new, with a step of the server": {
			cluster("", func(lc *corev1alpha1.LogicalCluster) {
				lc.Spec.Initializers = []corev1alpha1.LogicalClusterInitializer{builtIn}
			}), ready, false, false,
		},
		"new, with a last step": {
			cluster("", func(lc *corev1alpha1.LogicalCluster) {
				lc.Spec.Terminators = []corev1alpha1.LogicalClusterTerminator{last}
			}), ready, true, false,
		},
		"with a step that is left": {
			cluster(initializing, func(lc *corev1alpha1.LogicalCluster) {
				lc.Status.Initializers = []corev1alpha1.LogicalClusterInitializer{step}
			}), initializing, false, false,
		},
		"with no step left":       {cluster(initializing, nil), ready, false, false},
		"ready":                   {cluster(ready, nil), ready, false, false},
		"taken out of service":    {cluster(ready, outOfService), inactive, false, false},
		"out of service":          {cluster(inactive, outOfService), inactive, false, false},
		"taken back into service": {cluster(inactive, nil), ready, false, false},
		"taken out of service before it is ready": {cluster(initializing, func(lc *corev1alpha1.LogicalCluster) {
			outOfService(lc)
			lc.Status.Initializers = []corev1alpha1.LogicalClusterInitializer{step}
		}), initializing, false, false},
		"deleted":                      {cluster(ready, deleted), deleting, false, true},
		"deleted while out of service": {cluster(inactive, func(lc *corev1alpha1.LogicalCluster) { deleted(lc); outOfService(lc) }), deleting, false, true},
		"deleted while it has steps": {cluster(initializing, func(lc *corev1alpha1.LogicalCluster) {
			deleted(lc)
			lc.Status.Initializers = []corev1alpha1.LogicalClusterInitializer{step}
		}), deleting, false, true},
		"deleted, with a last step": {cluster(ready, func(lc *corev1alpha1.LogicalCluster) {
			deleted(lc)
			lc.Status.Terminators = []corev1alpha1.LogicalClusterTerminator{last}
			lc.Finalizers = append(lc.Finalizers, corev1alpha1.TerminatorsFinalizer)
		}), terminating, true, false},
		"deleted, with its last step taken": {cluster(terminating, func(lc *corev1alpha1.LogicalCluster) {
			deleted(lc)
			lc.Finalizers = append(lc.Finalizers, corev1alpha1.TerminatorsFinalizer)
		}), deleting, false, true},
		"deleted, with its content deleted already": {cluster(deleting, func(lc *corev1alpha1.LogicalCluster) { deleted(lc); lc.Finalizers = []string{"example.org/mine"} }), deleting, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := deletable(tc.lc); got != tc.deleteable {
				t.Errorf("its content must be deleted: %t", got)
			}
			advance(tc.lc, "https://kcp.test")
			if tc.lc.Status.Phase != tc.want || tc.lc.Labels[corev1alpha1.PhaseLabel] != string(tc.want) || tc.lc.Status.URL != "https://kcp.test/clusters/c" {
				t.Errorf("got %+v with labels %v, want %s", tc.lc.Status, tc.lc.Labels, tc.want)
			}
			if got := slices.Contains(tc.lc.Finalizers, corev1alpha1.TerminatorsFinalizer); got != tc.held {
				t.Errorf("held by terminators: %t, want %t", got, tc.held)
			}
			if slices.Contains(tc.lc.Status.Initializers, builtIn) {
				t.Error("the server waits for its own step")
			}
		})
	}
}

func TestAnOldLogicalClusterWithoutItsWorkspaceIsDeleted(t *testing.T) {
	owner := &corev1alpha1.LogicalClusterOwner{Resource: "workspaces", Cluster: "root", Name: "team", UID: "1"}
	ws := func(uid string) *tenancyv1alpha1.Workspace {
		ws := objecttest.In("root", &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "team"}})
		ws.UID = "1"
		if uid != "" {
			ws.UID = "2"
		}
		return ws
	}
	for name, tc := range map[string]struct {
		owner  *corev1alpha1.LogicalClusterOwner
		age    time.Duration
		seen   *tenancyv1alpha1.Workspace
		stored *tenancyv1alpha1.Workspace
		want   bool
	}{
		"its workspace is seen":                  {owner, time.Hour, ws(""), ws(""), false},
		"its workspace is stored":                {owner, time.Hour, nil, ws(""), false},
		"its workspace is gone":                  {owner, time.Hour, nil, nil, true},
		"another workspace has the name":         {owner, time.Hour, nil, ws("other"), true},
		"its workspace may still be on the way":  {owner, time.Second, nil, nil, false},
		"it has no owner":                        {nil, time.Hour, nil, nil, false},
		"it belongs to something of another API": {&corev1alpha1.LogicalClusterOwner{Resource: "others", Cluster: "root", Name: "team"}, time.Hour, nil, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			lc := cluster(corev1alpha1.LogicalClusterPhaseReady, func(lc *corev1alpha1.LogicalCluster) {
				lc.Spec.Owner = tc.owner
				lc.CreationTimestamp = metav1.NewTime(time.Now().Add(-tc.age))
				advance(lc, "https://kcp.test")
			})
			o := objecttest.New(t, lc)
			if tc.seen != nil {
				o.Show(tc.seen)
			}
			if tc.stored != nil {
				o.Store(tc.stored)
			}
			clusters := o.Stored(o.Set.LogicalClusters.Informer)
			c := New(Inputs{Set: o.Set, Clusters: clusters, Workspaces: o.Stored(o.Set.Workspaces.Informer), ExternalURL: "https://kcp.test", Clock: clock.RealClock{}})
			if err := c.Reconcile(t.Context(), informers.Key{Cluster: "c", Name: corev1alpha1.LogicalClusterName}); err != nil {
				t.Fatal(err)
			}
			now := &corev1alpha1.LogicalCluster{}
			if err := clusters.Get(logicalcluster.WithName(t.Context(), "c"), corev1alpha1.LogicalClusterName, now); err != nil {
				t.Fatal(err)
			}
			if got := now.DeletionTimestamp != nil; got != tc.want {
				t.Errorf("deleted: %t, want %t", got, tc.want)
			}
		})
	}
}

func TestTheConditionListsTheRemainingObjects(t *testing.T) {
	if c := contentCondition(nil); c.Status != metav1.ConditionTrue || c.Reason != "" {
		t.Errorf("got %+v", c)
	}
	c := contentCondition([]string{"2 configmaps", "1 widgets.example.org"})
	if c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, "2 configmaps, 1 widgets.example.org") {
		t.Errorf("got %+v", c)
	}
}

func TestALogicalClusterIsKeptWhileItsWorkspaceCannotBeRead(t *testing.T) {
	lc := cluster(corev1alpha1.LogicalClusterPhaseReady, func(lc *corev1alpha1.LogicalCluster) {
		lc.Spec.Owner = &corev1alpha1.LogicalClusterOwner{Resource: "workspaces", Cluster: "root", Name: "team", UID: "1"}
		lc.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
	})
	o := objecttest.New(t, lc)
	o.Stored(o.Set.Workspaces.Informer).Fail("root", "team", errors.New("etcd is away"))
	clusters := o.Stored(o.Set.LogicalClusters.Informer)
	c := New(Inputs{
		Set: o.Set, Clusters: clusters, Workspaces: o.Stored(o.Set.Workspaces.Informer), ExternalURL: "https://kcp.test", Clock: clock.RealClock{},
	})
	if err := c.Reconcile(t.Context(), informers.Key{Cluster: "c", Name: lc.Name}); err == nil {
		t.Error("no error")
	}
	live := &corev1alpha1.LogicalCluster{}
	if err := clusters.Get(logicalcluster.WithName(t.Context(), "c"), lc.Name, live); err != nil || live.DeletionTimestamp != nil {
		t.Errorf("it is deleted: %v", err)
	}
}

// The informer may still show the one before.
func TestALogicalClusterThatWasCreatedAgainIsNeitherChangedNorDeleted(t *testing.T) {
	for name, change := range map[string]func(*corev1alpha1.LogicalCluster){
		"while its phase changes": func(lc *corev1alpha1.LogicalCluster) { lc.Status.Phase = "" },
		"without finalizers": func(lc *corev1alpha1.LogicalCluster) {
			deleted(lc)
			lc.Finalizers = nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			former := cluster(corev1alpha1.LogicalClusterPhaseReady, change)
			former.UID = "former"
			o := objecttest.New(t, former)
			next := former.DeepCopy()
			next.UID = "next"
			o.Store(next)
			clusters := o.Stored(o.Set.LogicalClusters.Informer)
			c := New(Inputs{
				Set: o.Set, Clusters: clusters, Workspaces: o.Stored(o.Set.Workspaces.Informer), ExternalURL: "https://kcp.test",
				Clock: clock.RealClock{},
			})
			if err := c.Reconcile(t.Context(), informers.Key{Cluster: "c", Name: former.Name}); !apierrors.IsConflict(err) {
				t.Errorf("got %v, want a conflict", err)
			}
			live := &corev1alpha1.LogicalCluster{}
			err := clusters.Get(logicalcluster.WithName(t.Context(), "c"), next.Name, live)
			if err != nil || live.Status.Phase != next.Status.Phase {
				t.Errorf("got phase %q, %v", live.Status.Phase, err)
			}
		})
	}
}

// The shard of the Workspace has the cluster deleted. That another shard does not find the Workspace says nothing.
func TestALogicalClusterOfAnotherShardIsKept(t *testing.T) {
	for name, tc := range map[string]struct {
		parent bool // is on this shard
		left   bool
		kept   bool
	}{
		"its parent is on another shard":       {false, false, true},
		"its parent is moved to another shard": {true, true, true},
		"its parent is on this shard":          {true, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			lc := cluster(corev1alpha1.LogicalClusterPhaseReady, func(lc *corev1alpha1.LogicalCluster) {
				lc.Spec.Owner = &corev1alpha1.LogicalClusterOwner{Resource: "workspaces", Cluster: "root", Name: "team", UID: "1"}
				lc.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
			})
			o := objecttest.New(t, lc)
			if tc.parent {
				parent := objecttest.In("root", &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.LogicalClusterName}})
				o.Store(parent)
				o.Show(parent)
			}
			clusters := o.Stored(o.Set.LogicalClusters.Informer)
			c := New(Inputs{
				Set: o.Set, Clusters: clusters, Workspaces: o.Stored(o.Set.Workspaces.Informer), ExternalURL: "https://kcp.test", Clock: clock.RealClock{},
				Left: func(context.Context, logicalcluster.Name) (bool, error) { return tc.left, nil },
			})
			key := informers.Key{Cluster: logicalcluster.Of(lc), Name: lc.Name}
			if err := c.Reconcile(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			live := &corev1alpha1.LogicalCluster{}
			if err := clusters.Get(logicalcluster.WithName(t.Context(), key.Cluster), key.Name, live); err != nil {
				t.Fatal(err)
			}
			if kept := live.DeletionTimestamp == nil; kept != tc.kept {
				t.Errorf("it is kept: %t, want %t", kept, tc.kept)
			}
		})
	}
}

// A home is the same logical cluster when it is created again, and the informer may still show the former one.
func TestTheContentOfALogicalClusterThatWasCreatedAgainIsKept(t *testing.T) {
	former := cluster(corev1alpha1.LogicalClusterPhaseDeleting, func(lc *corev1alpha1.LogicalCluster) {
		lc.UID = "former"
		deleted(lc)
	})
	for name, next := range map[string]types.UID{"another one": "next", "none": ""} {
		t.Run(name, func(t *testing.T) {
			c := &content{t: t, objects: slices.Clone(defaults)}
			if next != "" {
				c.holder = &storage.StoredObject{Resource: resource.GroupResource(), Object: &metav1.ObjectMeta{Name: former.Name, UID: next}}
			}
			if client, err := c.reconciled(former); err != nil || len(client.Actions()) != 0 || len(c.rounds) != 0 {
				t.Errorf("requests to the API: %v, transactions: %v: %v", client.Actions(), c.rounds, err)
			}
		})
	}
}
