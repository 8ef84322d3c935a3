// Package resourcequota keeps the status of every ResourceQuota equal to what is stored: it counts when a quota or the
// definition of a counted resource changes, when a counted object is deleted, and now and then in any case. Creations are
// counted by admission.
package resourcequota

import (
	"context"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"github.com/kcplane/kcp/server/internal/admission"
	"github.com/kcplane/kcp/server/internal/apis/discovery"
	"github.com/kcplane/kcp/server/internal/controllers/namespace"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// recountInterval is how often every quota is counted although nothing is known to have changed.
const recountInterval = 5 * time.Minute

// settling is how long an object may take from its charge until it is stored, in all likelihood.
const settling = 250 * time.Millisecond

// Controller counts. Its keys are quotas.
type Controller struct {
	*runner.Controller
	set       *informers.Set
	kube      kubernetes.Interface
	metadata  metadata.Interface
	resources namespace.Resources
}

// New returns the controller. Clients reach the cluster in each call's context.
func New(set *informers.Set, kube kubernetes.Interface, meta metadata.Interface, resources namespace.Resources) *Controller {
	c := &Controller{set: set, kube: kube, metadata: meta, resources: resources}
	c.Controller = runner.New("resourcequota", 16, c.reconcile)
	set.ResourceQuotas.AddHandler(func(old, obj runtime.Object) {
		before, _ := old.(*corev1.ResourceQuota)
		quota, ok := obj.(*corev1.ResourceQuota)
		if !ok || (before != nil && equality.Semantic.DeepEqual(before.Spec, quota.Spec)) {
			return // charges by admission are no reason to count
		}
		if key, err := informers.KeyOf(quota); err == nil {
			c.Enqueue(key)
		}
	})
	c.WatchMapped(set.CustomResourceDefinitions.Informer, c.countingInstances)
	return c
}

// countingInstances returns the quotas of a definition's cluster that limit the number of its instances: until these are
// served there is nothing to count, and admission refuses what is not counted.
func (c *Controller) countingInstances(obj runtime.Object) []informers.Key {
	crd := obj.(*apiextensionsv1.CustomResourceDefinition)
	counted := schema.GroupResource{Group: crd.Spec.Group, Resource: crd.Spec.Names.Plural}
	quotas, err := c.set.ResourceQuotas.List(logicalcluster.Of(crd))
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

// Run works until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	var recounting sync.WaitGroup
	recounting.Go(func() { wait.UntilWithContext(ctx, c.enqueueAll, recountInterval) })
	c.Controller.Run(ctx)
	recounting.Wait()
}

func (c *Controller) enqueueAll(context.Context) {
	for _, key := range runner.Every(c.set.ResourceQuotas.Informer)(nil) {
		c.Enqueue(key)
	}
}

// Changed implements garbagecollector.Observer: quotas count objects, which changes do not.
func (c *Controller) Changed(schema.GroupVersionResource, metav1.Object) {}

// Relisted implements garbagecollector.Observer: what went unseen is counted with the next recount.
func (c *Controller) Relisted(schema.GroupVersionResource) {}

// Deleted implements garbagecollector.Observer: it counts again where an object is gone.
func (c *Controller) Deleted(_ schema.GroupVersionResource, obj metav1.Object) {
	cluster, ns := logicalcluster.Of(obj), obj.GetNamespace()
	enqueue := func(namespace string, clusterScoped bool) {
		quotas, err := c.set.ResourceQuotas.ListNamespace(cluster, namespace)
		if err != nil {
			return
		}
		for _, q := range quotas {
			if admission.IsClusterScoped(q) == clusterScoped {
				c.Enqueue(informers.Key{Cluster: cluster, Namespace: q.Namespace, Name: q.Name})
			}
		}
	}
	if ns != "" {
		enqueue(ns, false)
	}
	enqueue(admission.ClusterQuotaNamespace, true)
}

func (c *Controller) reconcile(ctx context.Context, key informers.Key) error {
	quota, err := c.kube.CoreV1().ResourceQuotas(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if err != nil || quota.DeletionTimestamp != nil {
		return runner.IgnoreNotFound(err)
	}
	used, err := c.count(ctx, quota)
	if err != nil {
		return err
	}
	if lower(used, quota.Status.Used) {
		// Objects are charged before they are stored. What was charged before the quota was read is stored by now, or
		// refused; what was charged after that makes the update below conflict.
		select {
		case <-time.After(settling):
		case <-ctx.Done():
			return ctx.Err()
		}
		if used, err = c.count(ctx, quota); err != nil {
			return err
		}
	}
	if len(quota.Status.Hard) == 0 {
		c.EnqueueAfter(key, time.Second) // for what was created, and not charged, before the status below is in force
	}
	status := corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: used}
	if equality.Semantic.DeepEqual(quota.Status, status) {
		return nil
	}
	changed := quota.DeepCopy()
	changed.Status = status
	_, err = c.kube.CoreV1().ResourceQuotas(key.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	return runner.IgnoreNotFound(err)
}

// lower tells whether an amount of a is less than in b.
func lower(a, b corev1.ResourceList) bool {
	for name, amount := range b {
		if now, ok := a[name]; ok && now.Cmp(amount) < 0 {
			return true
		}
	}
	return false
}

// count returns the usage of each limit of a quota that counts objects the cluster serves.
func (c *Controller) count(ctx context.Context, quota *corev1.ResourceQuota) (corev1.ResourceList, error) {
	served, err := c.resources(ctx)
	if err != nil {
		return nil, err
	}
	byResource := map[schema.GroupResource]discovery.Resource{}
	for _, r := range served {
		if r.Verbs.HasAll("list", "create") {
			byResource[r.GroupResource()] = r
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
			used[name] = resource.Quantity{} // a namespace holds none
			continue
		}
		list, err := c.metadata.Resource(counted.GroupVersionResource).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: 1})
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

// countedBy returns the resource that a limit is about: "count/<resource>.<group>", "count/<resource>" or "<resource>" of
// the core group.
func countedBy(limit corev1.ResourceName) schema.GroupResource {
	name, counts := strings.CutPrefix(string(limit), "count/")
	if !counts {
		return schema.GroupResource{Resource: name}
	}
	return schema.ParseGroupResource(name)
}
