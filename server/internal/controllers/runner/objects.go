package runner

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// ObjectKey identifies an object of any resource across all clusters.
type ObjectKey struct {
	Cluster         logicalcluster.Name
	Resource        schema.GroupVersionResource
	Namespace, Name string
}

// ObjectKeyOf returns the key of an object of a resource.
func ObjectKeyOf(resource schema.GroupVersionResource, obj metav1.Object) ObjectKey {
	return ObjectKey{Cluster: logicalcluster.Of(obj), Resource: resource, Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// LogicalCluster implements Item.
func (k ObjectKey) LogicalCluster() logicalcluster.Name { return k.Cluster }

// String returns "<resource>.<group> <cluster>|<namespace>/<name>", where the namespace is left out for a cluster-scoped object.
func (k ObjectKey) String() string {
	return k.Resource.GroupResource().String() + " " + informers.Key{Cluster: k.Cluster, Namespace: k.Namespace, Name: k.Name}.String()
}

// ObjectHandler handles the events of the objects of all resources. It must not block.
type ObjectHandler interface {
	// Changed is called for an object that exists, or has changed.
	Changed(resource schema.GroupVersionResource, obj metav1.Object)
	// Deleted is called for an object that was deleted.
	Deleted(resource schema.GroupVersionResource, obj metav1.Object)
	// Relisted is called after a watch was interrupted, or has ended. Deletions before that may have gone unnoticed.
	Relisted(resource schema.GroupVersionResource)
}

// ObjectEvents passes on the events that the garbage collector receives of the objects of all resources, with or without owners. No other
// controller watches all resources a second time.
type ObjectEvents struct{ handlers []ObjectHandler }

var _ ObjectHandler = (*ObjectEvents)(nil)

// AddHandler adds a handler. It must be called before the garbage collector runs.
func (e *ObjectEvents) AddHandler(h ObjectHandler) { e.handlers = append(e.handlers, h) }

// Changed implements ObjectHandler.
func (e *ObjectEvents) Changed(resource schema.GroupVersionResource, obj metav1.Object) {
	for _, h := range e.handlers {
		h.Changed(resource, obj)
	}
}

// Deleted implements ObjectHandler.
func (e *ObjectEvents) Deleted(resource schema.GroupVersionResource, obj metav1.Object) {
	for _, h := range e.handlers {
		h.Deleted(resource, obj)
	}
}

// Relisted implements ObjectHandler.
func (e *ObjectEvents) Relisted(resource schema.GroupVersionResource) {
	for _, h := range e.handlers {
		h.Relisted(resource)
	}
}
