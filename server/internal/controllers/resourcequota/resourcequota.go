// Package resourcequota keeps the usage in the status of every ResourceQuota equal to the number of stored objects. It counts when a quota
// or the definition of a counted resource changes, when a counted object is deleted, and at regular intervals. Admission counts creations.
package resourcequota

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	"github.com/kcplane/kcp/server/internal/admission"
	"github.com/kcplane/kcp/server/internal/apis/discovery"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// recountInterval is how often every quota is counted without a known change.
const recountInterval = 5 * time.Minute

// settling is longer than nearly all objects take from their charge until they are stored.
const settling = 250 * time.Millisecond

// Inputs of the controller. Clients and functions reach the cluster in each call's context.
type Inputs struct {
	Set      *informers.Set
	Kube     kubernetes.Interface
	Metadata metadata.Interface
	// Resources returns the resources that the cluster serves.
	Resources func(ctx context.Context) ([]discovery.Resource, error)
	// Objects are watched.
	Objects *runner.ObjectEvents
	Clock   clock.WithTicker
}

type reconciler struct {
	Inputs
	controller *runner.Controller
}

// New returns the controller. Its keys are quotas.
func New(in Inputs) *runner.Controller {
	r := &reconciler{Inputs: in}
	r.controller = runner.New("resourcequota", 16, r.reconcile)
	in.Set.ResourceQuotas.AddHandler(func(old, obj runtime.Object) {
		before, _ := old.(*corev1.ResourceQuota)
		quota, ok := obj.(*corev1.ResourceQuota)
		if !ok || (before != nil && equality.Semantic.DeepEqual(before.Spec, quota.Spec)) {
			return // charges by admission are no reason to count
		}
		if key, err := informers.KeyOf(quota); err == nil {
			r.controller.Enqueue(key)
		}
	})
	r.controller.WatchMapped(in.Set.CustomResourceDefinitions.Informer, r.countingInstances)
	in.Objects.AddHandler(r)
	r.controller.RunEvery(in.Clock, recountInterval, func() {
		for _, key := range runner.AllOf(in.Set.ResourceQuotas.Informer)(nil) {
			r.controller.Enqueue(key)
		}
	})
	return r.controller
}

// countingInstances returns the quotas of a definition's cluster that limit the number of its instances. They cannot be counted before they
// are served, and admission refuses objects that are not counted.
func (r *reconciler) countingInstances(obj runtime.Object) []informers.Key {
	crd := obj.(*apiextensionsv1.CustomResourceDefinition)
	counted := schema.GroupResource{Group: crd.Spec.Group, Resource: crd.Spec.Names.Plural}
	quotas, err := r.Set.ResourceQuotas.List(logicalcluster.Of(crd))
	if err != nil {
		return nil
	}
	var keys []informers.Key
	for _, q := range quotas {
		for limit := range q.Spec.Hard {
			if countedBy(limit) == counted {
				keys = append(keys, informers.Key{Cluster: logicalcluster.Of(q), Namespace: q.Namespace, Name: q.Name})
				break
			}
		}
	}
	return keys
}

// Changed implements runner.ObjectHandler. A change of an object does not change the number of objects.
func (r *reconciler) Changed(schema.GroupVersionResource, metav1.Object) {}

// Relisted implements runner.ObjectHandler. Deletions that went unnoticed are counted at the next interval.
func (r *reconciler) Relisted(schema.GroupVersionResource) {}

// Deleted implements runner.ObjectHandler. It enqueues the quotas that count the object.
func (r *reconciler) Deleted(_ schema.GroupVersionResource, obj metav1.Object) {
	cluster, ns := logicalcluster.Of(obj), obj.GetNamespace()
	enqueue := func(namespace string, clusterScoped bool) {
		quotas, err := r.Set.ResourceQuotas.ListNamespace(cluster, namespace)
		if err != nil {
			return
		}
		for _, q := range quotas {
			if admission.IsClusterScoped(q) == clusterScoped {
				r.controller.Enqueue(informers.Key{Cluster: cluster, Namespace: q.Namespace, Name: q.Name})
			}
		}
	}
	if ns != "" {
		enqueue(ns, false)
	}
	enqueue(admission.ClusterQuotaNamespace, true)
}

func (r *reconciler) reconcile(ctx context.Context, key informers.Key) error {
	quota, err := r.Kube.CoreV1().ResourceQuotas(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if err != nil || quota.DeletionTimestamp != nil {
		return runner.IgnoreNotFound(err)
	}
	used, err := r.count(ctx, quota)
	if err != nil {
		return err
	}
	if lower(used, quota.Status.Used) {
		// Objects are charged before they are stored. Objects that were charged before the quota was read are stored or refused after
		// this pause, and a later charge makes the update below conflict.
		select {
		case <-r.Clock.After(settling):
		case <-ctx.Done():
			return ctx.Err()
		}
		if used, err = r.count(ctx, quota); err != nil {
			return err
		}
	}
	if len(quota.Status.Hard) == 0 {
		r.controller.EnqueueAfter(key, time.Second) // for objects that were created, and not charged, before the status below is in force
	}
	status := corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: used}
	if equality.Semantic.DeepEqual(quota.Status, status) {
		return nil
	}
	changed := quota.DeepCopy()
	changed.Status = status
	_, err = r.Kube.CoreV1().ResourceQuotas(key.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	return runner.IgnoreNotFound(err)
}

// lower reports whether an amount in a is less than in b.
func lower(a, b corev1.ResourceList) bool {
	for name, amount := range b {
		if now, ok := a[name]; ok && now.Cmp(amount) < 0 {
			return true
		}
	}
	return false
}

// count returns the usage of each limit of a quota that counts objects of a served resource.
func (r *reconciler) count(ctx context.Context, quota *corev1.ResourceQuota) (corev1.ResourceList, error) {
	served, err := r.Resources(ctx)
	if err != nil {
		return nil, err
	}
	byResource := map[schema.GroupResource]discovery.Resource{}
	for _, s := range served {
		if s.Verbs.HasAll("list", "create") {
			byResource[s.GroupResource()] = s
		}
	}
	namespace := quota.Namespace
	if admission.IsClusterScoped(quota) {
		namespace = metav1.NamespaceAll
	}
	used := corev1.ResourceList{}
	for name := range quota.Spec.Hard {
		counted, ok := byResource[countedBy(name)]
		if !ok {
			continue
		}
		if namespace != metav1.NamespaceAll && !counted.Namespaced {
			used[name] = resource.Quantity{} // a namespace contains no cluster-scoped objects
			continue
		}
		list, err := r.Metadata.Resource(counted.GroupVersionResource).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return nil, err
		}
		n := int64(len(list.Items))
		if more := list.RemainingItemCount; more != nil {
			n += *more
		}
		used[name] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	return used, nil
}

// countedBy returns the resource that a limit counts. The limit is "count/<resource>.<group>", "count/<resource>" or, for the core group,
// "<resource>".
func countedBy(limit corev1.ResourceName) schema.GroupResource {
	name, counts := strings.CutPrefix(string(limit), "count/")
	if !counts {
		return schema.GroupResource{Resource: name}
	}
	return schema.ParseGroupResource(name)
}
