package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
	"github.com/kcplane/kcp/fleet/internal/loop"
)

const (
	// manager is the field manager of the agent.
	manager = "kcp-fleet"
	// workloadLabel is the label of an object on the cluster with the name of its workload.
	workloadLabel = "fleet.kcp.io/workload"
	// ownerAnnotation proves that the agent created an object: the agent changes and deletes nothing without it.
	ownerAnnotation = "fleet.kcp.io/owner"
	// generationAnnotation is the generation of the object in the workspace that was applied last.
	generationAnnotation = "fleet.kcp.io/generation"
	// resourcesAnnotation of a namespace lists the resources of which the agent has created objects in it.
	resourcesAnnotation = "fleet.kcp.io/resources"
	// byWorkload is the index of objects by the name of their workload.
	byWorkload = "workload"
	// byAssignment is the index of workloads by the name of their assignment.
	byAssignment = "assignment"
	workers      = 4
)

var (
	workloadResource   = v1alpha1.SchemeGroupVersion.WithResource("workloads")
	assignmentResource = v1alpha1.SchemeGroupVersion.WithResource("assignments")
	clusterResource    = v1alpha1.SchemeGroupVersion.WithResource("clusters")
	namespaceResource  = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

// workloadIndex finds the objects that the agent has created.
var workloadIndex = cache.Indexers{byWorkload: func(o any) ([]string, error) {
	u, err := meta.Accessor(o)
	if err != nil {
		return nil, err
	}
	return []string{u.GetLabels()[workloadLabel]}, nil
}}

// item is something to reconcile: a workload, or an assignment.
type item struct {
	assignment bool
	name       string
}

func (i item) String() string {
	if i.assignment {
		return "assignment " + i.name
	}
	return "workload " + i.name
}

// syncer makes the cluster equal to what the fleet assigns to it.
type syncer struct {
	*Agent
	fleet dynamic.Interface
	// fleetConfig opens the tunnel; nil means none.
	fleetConfig *rest.Config

	queue workqueue.TypedRateLimitingInterface[item]

	workloads, assignments, clusters, namespaces cache.SharedIndexInformer
	// localFactory has informers of what the agent has created on the cluster.
	localFactory dynamicinformer.DynamicSharedInformerFactory

	guards  guards
	applied applied
	secrets secrets
	// patience is how long the first objects of a resource wait until the resource is watched.
	patience time.Duration

	mu      sync.Mutex // guards watched
	watched map[schema.GroupVersionResource]watched
}

// watched is a resource of the cluster that the agent watches.
type watched struct {
	informer cache.SharedIndexInformer
	since    time.Time
}

func newSyncer(a *Agent, fleet dynamic.Interface) *syncer {
	s := &syncer{
		Agent: a, fleet: fleet, queue: loop.NewQueue[item](), watched: map[schema.GroupVersionResource]watched{}, patience: 2 * time.Second,
	}
	s.localFactory = dynamicinformer.NewFilteredDynamicSharedInformerFactory(a.localAny, 0, metav1.NamespaceAll,
		func(o *metav1.ListOptions) { o.LabelSelector = v1alpha1.ClusterLabel + "=" + a.options.Cluster })
	return s
}

func stripManagedFields(o any) (any, error) {
	if accessor, err := meta.Accessor(o); err == nil {
		accessor.SetManagedFields(nil)
	}
	return o, nil
}

// run works until ctx ends.
func (s *syncer) run(ctx context.Context) error {
	factory := dynamicinformer.NewDynamicSharedInformerFactory(s.fleet, 0)
	synced, err := s.follow(factory)
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	s.localFactory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return ctx.Err()
	}
	s.watchFormer(ctx)
	var group sync.WaitGroup
	for range workers {
		group.Go(func() { _ = loop.Work(ctx, s.queue, s.reconcile) })
	}
	group.Go(func() { s.keepReporting(ctx, s.fleet) })
	group.Go(func() { s.keepListingSecrets(ctx) })
	if s.fleetConfig != nil {
		group.Go(func() { s.serveTunnel(ctx) })
		group.Go(func() { s.keepComparing(ctx) })
	}
	<-ctx.Done()
	s.queue.ShutDown()
	group.Wait()
	factory.Shutdown()
	s.localFactory.Shutdown()
	return nil
}

// follow enqueues what changes at the fleet, and the namespaces that change on the cluster.
func (s *syncer) follow(factory dynamicinformer.DynamicSharedInformerFactory) (synced []cache.InformerSynced, err error) {
	s.workloads, s.assignments = factory.ForResource(workloadResource).Informer(), factory.ForResource(assignmentResource).Informer()
	s.clusters = factory.ForResource(clusterResource).Informer()
	s.namespaces = s.localFactory.ForResource(namespaceResource).Informer()
	if err := s.workloads.AddIndexers(cache.Indexers{byAssignment: func(o any) ([]string, error) {
		u, err := meta.Accessor(o)
		if err != nil {
			return nil, err
		}
		return []string{assignmentOf(u.GetName())}, nil
	}}); err != nil {
		return nil, err
	}
	if err := s.namespaces.AddIndexers(workloadIndex); err != nil {
		return nil, err
	}
	handlers := map[cache.SharedIndexInformer]cache.ResourceEventHandler{
		s.workloads: loop.Handler(func(u *unstructured.Unstructured, _ bool) {
			s.queue.Add(item{false, u.GetName()})
			s.queue.Add(item{true, assignmentOf(u.GetName())})
		}),
		s.assignments: onNewGeneration(s.assignmentChanged, func(name string) { s.queue.Add(item{true, name}) }),
		s.namespaces: loop.Handler(func(u *unstructured.Unstructured, deleted bool) {
			if deleted {
				s.guards.forget(u.GetUID())
				s.secrets.forget(u.GetName())
			}
			s.queue.Add(item{true, assignmentOf(u.GetLabels()[workloadLabel])})
		}),
		s.clusters: onNewGeneration(func(string) {
			for _, name := range s.assignments.GetStore().ListKeys() {
				s.queue.Add(item{true, name}) // the guard rails may have changed
			}
		}, func(string) {}),
	}
	for informer, handler := range handlers {
		_ = informer.SetTransform(stripManagedFields)
		registration, err := informer.AddEventHandler(handler)
		if err != nil {
			return nil, err
		}
		synced = append(synced, registration.HasSynced)
	}
	return synced, nil
}

// onNewGeneration returns a handler that calls changed with the name of an object that appears, disappears or has another spec, and status
// with that of one whose status has changed.
func onNewGeneration(changed, status func(name string)) cache.ResourceEventHandler {
	all := loop.Handler(func(u *unstructured.Unstructured, _ bool) { changed(u.GetName()) })
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { all.OnAdd(o, false) }, DeleteFunc: all.OnDelete,
		UpdateFunc: func(former, o any) {
			before, ok := former.(*unstructured.Unstructured)
			after, isObject := o.(*unstructured.Unstructured)
			if ok && isObject && before.GetUID() == after.GetUID() && before.GetGeneration() == after.GetGeneration() {
				status(after.GetName())
				return
			}
			all.OnUpdate(former, o)
		},
	}
}

// assignmentOf returns the name of the assignment in the name of a workload.
func assignmentOf(workload string) string {
	name, _, _ := strings.Cut(workload, ".")
	return name
}

// assignmentChanged enqueues an assignment with its workloads.
func (s *syncer) assignmentChanged(name string) {
	s.queue.Add(item{true, name})
	for _, workload := range s.sortedNames(name) {
		s.queue.Add(item{false, workload})
	}
}

// watchFormer watches the resources that former processes of the agent created, to find what must be deleted.
func (s *syncer) watchFormer(ctx context.Context) {
	former := map[schema.GroupVersionResource]bool{}
	for _, o := range s.namespaces.GetStore().List() {
		namespace, ok := o.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		s.queue.Add(item{true, assignmentOf(namespace.GetLabels()[workloadLabel])})
		for _, text := range resourcesOf(namespace) {
			if resource, _ := schema.ParseResourceArg(text); resource != nil && *resource != secretResource {
				former[*resource] = true
			}
		}
	}
	s.listSecrets(ctx)
	var synced []cache.InformerSynced
	for resource := range former {
		if w, err := s.start(ctx, resource); err == nil {
			synced = append(synced, w.informer.HasSynced)
		}
	}
	limited, cancel := context.WithTimeout(ctx, 5*s.patience)
	defer cancel()
	if !cache.WaitForCacheSync(limited.Done(), synced...) {
		klog.Background().Info("Continuing without some resources that the agent has created objects of", "resources", fmt.Sprint(former))
	}
}

func resourcesOf(namespace *unstructured.Unstructured) []string {
	return strings.FieldsFunc(namespace.GetAnnotations()[resourcesAnnotation], func(r rune) bool { return r == ',' })
}

// start starts to watch a resource on the cluster.
func (s *syncer) start(ctx context.Context, resource schema.GroupVersionResource) (watched, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w, ok := s.watched[resource]; ok {
		return w, nil
	}
	informer := s.localFactory.ForResource(resource).Informer()
	_ = informer.SetTransform(stripManagedFields)
	if err := informer.AddIndexers(workloadIndex); err != nil {
		return watched{}, err
	}
	if _, err := informer.AddEventHandler(loop.Handler(func(u *unstructured.Unstructured, _ bool) {
		s.queue.Add(item{false, u.GetLabels()[workloadLabel]})
		s.queue.Add(item{true, assignmentOf(u.GetLabels()[workloadLabel])})
	})); err != nil {
		return watched{}, err
	}
	w := watched{informer, time.Now()}
	s.watched[resource] = w
	s.localFactory.Start(ctx.Done())
	return w, nil
}

// watch watches a resource on the cluster. It fails if the objects of the resource are not known: then the cluster does not serve it, and
// other objects do not wait for this.
func (s *syncer) watch(ctx context.Context, resource schema.GroupVersionResource) error {
	w, err := s.start(ctx, resource)
	if err != nil {
		return err
	}
	limited, cancel := context.WithDeadline(ctx, w.since.Add(s.patience))
	defer cancel()
	if !w.informer.HasSynced() && !cache.WaitForCacheSync(limited.Done(), w.informer.HasSynced) {
		return fmt.Errorf("the cluster does not serve %s, or the agent may not watch it", resource.GroupResource())
	}
	return nil
}

// mayBeOf reports whether the agent may have created an object for a workload. The label alone is no proof: controllers copy the labels of
// templates, which users choose, to objects. The agent creates nothing that has a controller, and creates all objects of a workload in the
// namespace of its assignment.
func (s *syncer) mayBeOf(u *unstructured.Unstructured, workload string) bool {
	if metav1.GetControllerOf(u) != nil {
		return false
	}
	assignment := assignmentOf(workload)
	if _, a, err := stored[v1alpha1.Assignment](s.assignments, assignment); err == nil && a != nil {
		return u.GetNamespace() == namespaceName(a)
	}
	namespace, exists, err := s.namespaces.GetStore().GetByKey(u.GetNamespace())
	if err != nil || !exists {
		return true // nothing is deleted without the annotation of the agent
	}
	of, err := meta.Accessor(namespace)
	return err == nil && of.GetAnnotations()[ownerAnnotation] == s.owner(assignment)
}

// existing returns the objects on the cluster that the agent created for a workload, by resource.
func (s *syncer) existing(workload string) map[schema.GroupVersionResource][]*unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[schema.GroupVersionResource][]*unstructured.Unstructured{}
	if secret := s.secrets.at(workload); secret != nil {
		found[secretResource] = []*unstructured.Unstructured{secret}
	}
	for resource, w := range s.watched {
		objects, err := w.informer.GetIndexer().ByIndex(byWorkload, workload)
		if err != nil {
			continue
		}
		for _, o := range objects {
			if u, ok := o.(*unstructured.Unstructured); ok && s.mayBeOf(u, workload) {
				found[resource] = append(found[resource], u)
			}
		}
	}
	return found
}

func (s *syncer) reconcile(ctx context.Context, next item) (time.Duration, error) {
	if next.assignment {
		return 0, s.reconcileAssignment(ctx, next.name)
	}
	return 0, s.reconcileWorkload(ctx, next.name)
}

// confirmedGone asks the fleet whether it really has no such object. A cache, or an error, is no reason to delete anything.
func (s *syncer) confirmedGone(ctx context.Context, resource schema.GroupVersionResource, name string) (bool, error) {
	_, err := s.fleet.Resource(resource).Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		return false, nil
	}
	status, ok := err.(apierrors.APIStatus) //nolint:errorlint // clients return this type itself
	if apierrors.IsNotFound(err) && ok && status.Status().Details != nil && status.Status().Details.Name == name {
		return true, nil
	}
	return false, fmt.Errorf("asking the fleet whether %s %s exists: %w", resource.Resource, name, err)
}

// stored returns an object of an informer of the fleet, or nil.
func stored[T any](informer cache.SharedIndexInformer, name string) (*unstructured.Unstructured, *T, error) {
	o, exists, err := informer.GetStore().GetByKey(name)
	u, ok := o.(*unstructured.Unstructured)
	if err != nil || !exists || !ok {
		return nil, nil, err
	}
	typed := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, typed); err != nil {
		return nil, nil, err
	}
	return u, typed, nil
}

// sortedNames returns the names of workloads of an assignment.
func (s *syncer) sortedNames(assignment string) []string {
	names, err := s.workloads.GetIndexer().IndexKeys(byAssignment, assignment)
	if err != nil {
		return nil // the index exists
	}
	slices.Sort(names)
	return names
}
