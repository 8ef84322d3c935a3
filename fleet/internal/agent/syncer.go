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
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

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
	workers    = 4
)

var (
	workloadResource   = v1alpha1.SchemeGroupVersion.WithResource("workloads")
	assignmentResource = v1alpha1.SchemeGroupVersion.WithResource("assignments")
	clusterResource    = v1alpha1.SchemeGroupVersion.WithResource("clusters")
	namespaceResource  = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

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
	queue workqueue.TypedRateLimitingInterface[item]

	workloads, assignments, clusters, namespaces cache.SharedIndexInformer
	// localFactory has informers of what the agent has created on the cluster.
	localFactory dynamicinformer.DynamicSharedInformerFactory

	mu      sync.Mutex // guards watched
	watched map[schema.GroupVersionResource]cache.SharedIndexInformer
}

func newSyncer(a *Agent, fleet dynamic.Interface) *syncer {
	s := &syncer{Agent: a, fleet: fleet, watched: map[schema.GroupVersionResource]cache.SharedIndexInformer{}, queue: loop.NewQueue[item]()}
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
	s.workloads, s.assignments = factory.ForResource(workloadResource).Informer(), factory.ForResource(assignmentResource).Informer()
	s.clusters = factory.ForResource(clusterResource).Informer()
	s.namespaces = s.localFactory.ForResource(namespaceResource).Informer()
	handlers := map[cache.SharedIndexInformer]func(*unstructured.Unstructured, bool){
		s.workloads: func(u *unstructured.Unstructured, _ bool) {
			s.queue.Add(item{false, u.GetName()})
			s.queue.Add(item{true, assignmentOf(u.GetName())})
		},
		s.assignments: func(u *unstructured.Unstructured, _ bool) { s.assignmentChanged(u.GetName()) },
		s.namespaces: func(u *unstructured.Unstructured, _ bool) {
			s.queue.Add(item{true, assignmentOf(u.GetLabels()[workloadLabel])})
		},
		s.clusters: func(*unstructured.Unstructured, bool) {
			for _, name := range s.assignments.GetStore().ListKeys() {
				s.queue.Add(item{true, name}) // the guard rails may have changed
			}
		},
	}
	synced := make([]cache.InformerSynced, 0, len(handlers))
	for informer, changed := range handlers {
		_ = informer.SetTransform(stripManagedFields)
		registration, err := informer.AddEventHandler(loop.Handler(changed))
		if err != nil {
			return err
		}
		synced = append(synced, registration.HasSynced)
	}
	factory.Start(ctx.Done())
	s.localFactory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return ctx.Err()
	}
	if err := s.watchFormer(ctx); err != nil {
		return err
	}
	var group sync.WaitGroup
	for range workers {
		group.Go(func() { _ = loop.Work(ctx, s.queue, s.reconcile) })
	}
	<-ctx.Done()
	s.queue.ShutDown()
	group.Wait()
	factory.Shutdown()
	s.localFactory.Shutdown()
	return nil
}

// assignmentOf returns the name of the assignment in the name of a workload.
func assignmentOf(workload string) string {
	name, _, _ := strings.Cut(workload, ".")
	return name
}

// assignmentChanged enqueues an assignment with its workloads.
func (s *syncer) assignmentChanged(name string) {
	s.queue.Add(item{true, name})
	for _, key := range s.workloads.GetStore().ListKeys() {
		if assignmentOf(key) == name {
			s.queue.Add(item{false, key})
		}
	}
}

// watchFormer watches the resources that former processes of the agent created, to find what must be deleted.
func (s *syncer) watchFormer(ctx context.Context) error {
	for _, o := range s.namespaces.GetStore().List() {
		namespace, ok := o.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		s.queue.Add(item{true, assignmentOf(namespace.GetLabels()[workloadLabel])})
		for _, text := range resourcesOf(namespace) {
			if resource, _ := schema.ParseResourceArg(text); resource != nil {
				if _, err := s.watch(ctx, *resource); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func resourcesOf(namespace *unstructured.Unstructured) []string {
	return strings.FieldsFunc(namespace.GetAnnotations()[resourcesAnnotation], func(r rune) bool { return r == ',' })
}

// watch returns the informer of a resource on the cluster, after it has synced.
func (s *syncer) watch(ctx context.Context, resource schema.GroupVersionResource) (cache.SharedIndexInformer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	informer := s.watched[resource]
	if informer == nil {
		informer = s.localFactory.ForResource(resource).Informer()
		_ = informer.SetTransform(stripManagedFields)
		err := informer.AddIndexers(cache.Indexers{byWorkload: func(o any) ([]string, error) {
			u, err := meta.Accessor(o)
			if err != nil {
				return nil, err
			}
			return []string{u.GetLabels()[workloadLabel]}, nil
		}})
		if err != nil {
			return nil, err
		}
		if _, err := informer.AddEventHandler(loop.Handler(func(u *unstructured.Unstructured, _ bool) {
			s.queue.Add(item{false, u.GetLabels()[workloadLabel]})
			s.queue.Add(item{true, assignmentOf(u.GetLabels()[workloadLabel])})
		})); err != nil {
			return nil, err
		}
		s.watched[resource] = informer
		s.localFactory.Start(ctx.Done())
	}
	limited, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if !cache.WaitForCacheSync(limited.Done(), informer.HasSynced) {
		return nil, fmt.Errorf("the cluster does not serve %s, or the agent may not watch it", resource.String())
	}
	return informer, nil
}

// existing returns the objects on the cluster that the agent created for a workload, by resource.
func (s *syncer) existing(workload string) map[schema.GroupVersionResource][]*unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[schema.GroupVersionResource][]*unstructured.Unstructured{}
	for resource, informer := range s.watched {
		objects, err := informer.GetIndexer().ByIndex(byWorkload, workload)
		if err != nil {
			continue
		}
		for _, o := range objects {
			if u, ok := o.(*unstructured.Unstructured); ok {
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
func (s *syncer) sortedNames(assignment string) (names []string) {
	for _, key := range s.workloads.GetStore().ListKeys() {
		if assignmentOf(key) == assignment {
			names = append(names, key)
		}
	}
	slices.Sort(names)
	return names
}
