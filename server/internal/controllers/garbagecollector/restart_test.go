package garbagecollector

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	kubefake "k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// A server stops while an owner is being deleted. The next one must not release the owner before it knows the dependents: orphans would be
// deleted, and a foreground deletion would end too early.
func TestOwnersWaitUntilTheGraphIsCompleteAfterARestart(t *testing.T) {
	secrets, configMaps := corev1.SchemeGroupVersion.WithResource("secrets"), corev1.SchemeGroupVersion.WithResource("configmaps")
	for _, finalizer := range []string{metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents} {
		t.Run(finalizer, func(t *testing.T) {
			scheme := runtime.NewScheme()
			if err := metav1.AddMetaToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			parent := partial("ConfigMap", "default", "owner", "1")
			parent.Finalizers, parent.DeletionTimestamp = []string{finalizer}, &metav1.Time{Time: time.Unix(1, 0)}
			dependent := partial("Secret", "default", "dependent", "2",
				metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "1", BlockOwnerDeletion: new(true)})
			dependent.Annotations = map[string]string{logicalcluster.AnnotationKey: "c"}
			client := metadatafake.NewSimpleMetadataClient(scheme, parent, dependent)
			mapper := meta.NewDefaultRESTMapper(nil)
			mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
			c := newCollector(Inputs{
				Metadata: client, Kube: kubefake.NewClientset(), Resources: served{mapper}, Objects: &runner.ObjectEvents{},
				Clock:    testingclock.NewFakeClock(time.Unix(2, 0)),
				Existing: func(schema.GroupVersionResource) (*informers.Informer, bool) { return nil, false },
			})
			c.initial.begin(sets.New(secrets, configMaps))
			ctx := logicalcluster.WithName(t.Context(), "c")
			reconcile := func() (finalizers []string, owners int) {
				t.Helper()
				if err := c.reconcile(ctx, object{Cluster: "c", Resource: configMaps, Namespace: "default", Name: "owner"}); err != nil {
					t.Fatal(err)
				}
				o, err := client.Resource(configMaps).Namespace("default").Get(ctx, "owner", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				d, err := client.Resource(secrets).Namespace("default").Get(ctx, "dependent", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				return o.Finalizers, len(d.OwnerReferences)
			}
			c.initial.done(configMaps)
			if finalizers, _ := reconcile(); !slices.Contains(finalizers, finalizer) {
				t.Errorf("before Secrets are listed, the owner is released")
			}
			if err := (&monitorStore{collector: c, resource: secrets}).Replace([]any{dependent}, ""); err != nil {
				t.Fatal(err)
			}
			finalizers, owners := reconcile()
			orphaned := finalizer == metav1.FinalizerOrphanDependents
			if slices.Contains(finalizers, finalizer) == orphaned || (owners == 0) != orphaned {
				t.Errorf("afterwards the owner has the finalizers %v, and the dependent %d owners", finalizers, owners)
			}
		})
	}
}

func TestResourcesThatAreServedLaterDoNotHoldUpDeletions(t *testing.T) {
	now := testingclock.NewFakePassiveClock(time.Unix(1, 0))
	i := initialLists{clock: now}
	if i.complete() {
		t.Error("complete before the resources are known")
	}
	i.begin(sets.New(corev1.SchemeGroupVersion.WithResource("secrets")))
	i.done(corev1.SchemeGroupVersion.WithResource("secrets"))
	i.begin(sets.New(corev1.SchemeGroupVersion.WithResource("configmaps")))
	if !i.complete() {
		t.Error("incomplete because of a resource that is served later")
	}
}

func TestAResourceThatCannotBeListedDoesNotHoldUpDeletionsForever(t *testing.T) {
	now := testingclock.NewFakePassiveClock(time.Unix(1, 0))
	i := initialLists{clock: now}
	i.begin(sets.New(corev1.SchemeGroupVersion.WithResource("secrets")))
	if now.SetTime(time.Unix(30, 0)); i.complete() {
		t.Error("complete before the timeout")
	}
	if now.SetTime(time.Unix(31, 0)); !i.complete() {
		t.Error("incomplete after the timeout")
	}
}

// Without that, the deletion of an owner would not see its only dependent of a resource.
func TestOwnersWaitUntilAResourceIsListedWhoseFirstObjectHasAppeared(t *testing.T) {
	secrets := corev1.SchemeGroupVersion.WithResource("secrets")
	now := testingclock.NewFakePassiveClock(time.Unix(1, 0))
	i := initialLists{clock: now}
	i.begin(sets.New(secrets))
	i.done(secrets) // it is absent
	if !i.complete() {
		t.Error("incomplete because of an absent resource")
	}
	if i.appeared(secrets); i.complete() {
		t.Error("complete before the resource is listed")
	}
	if i.done(secrets); !i.complete() {
		t.Error("incomplete after the resource is listed")
	}
	i.appeared(secrets)
	if now.SetTime(time.Unix(3, 0)); !i.complete() {
		t.Error("a resource that cannot be listed holds up deletions")
	}
}

func TestAResourceIsMonitoredWhenItsFirstObjectAppears(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	secrets := corev1.SchemeGroupVersion.WithResource("secrets")
	absent, stored := make(chan struct{}, 2), make(chan error)
	clock := testingclock.NewFakeClock(time.Unix(1, 0))
	dependent := partial("Secret", "default", "dependent", "2",
		metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "1"})
	dependent.Annotations = map[string]string{logicalcluster.AnnotationKey: "c"}
	client := metadatafake.NewSimpleMetadataClient(scheme, dependent)
	c := newCollector(Inputs{
		Metadata: client, Objects: &runner.ObjectEvents{}, Clock: clock,
		Existing: func(schema.GroupVersionResource) (*informers.Informer, bool) { return nil, false },
		Appears: func(ctx context.Context, _ schema.GroupResource, wait func()) error {
			wait()
			absent <- struct{}{}
			select {
			case err := <-stored:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		},
	})
	c.initial.begin(sets.New(secrets))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.monitor(ctx, secrets)
	}()
	<-absent
	if !c.initial.complete() {
		t.Error("an absent resource holds up deletions")
	}
	stored <- errors.New("etcd does not respond")
	for !clock.HasWaiters() {
		time.Sleep(time.Millisecond)
	}
	if requests := client.Actions(); len(requests) > 0 {
		t.Errorf("an absent resource is requested: %v", requests)
	}
	clock.Step(appearRetry)
	<-absent
	stored <- nil
	for deadline := time.Now().Add(10 * time.Second); len(c.graph.dependentsOf(owner{"c", "1"})) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the first object is not in the graph")
		}
	}
	stop()
	<-ended
}
