package garbagecollector

import (
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
