package workspaces

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// informer keeps objects under their names in the cache (see qualify), and shows handlers the original names.
type informer struct{ toolscache.SharedIndexInformer }

func newInformer(
	lw toolscache.ListerWatcher,
	of runtime.Object,
	resync time.Duration,
	by toolscache.Indexers,
) toolscache.SharedIndexInformer {
	by[toolscache.NamespaceIndex] = func(o any) ([]string, error) {
		object, err := meta.Accessor(o)
		if err != nil {
			return nil, err
		}
		everyNamespace, _ := qualify(ClusterOf(object), " ", "")
		everyNamespace = everyNamespace[:len(everyNamespace)-1]
		if object.GetNamespace() == "" {
			return []string{everyNamespace}, nil
		}
		return []string{everyNamespace, object.GetNamespace()}, nil
	}
	from := toolscache.ToListerWatcherWithContext(lw)
	return informer{toolscache.NewSharedIndexInformer(&toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := from.ListWithContext(ctx, options)
			if err == nil {
				err = meta.EachListItem(list, rename)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			events, err := from.WatchWithContext(ctx, options)
			if err != nil {
				return nil, err
			}
			return watch.Filter(events, func(event watch.Event) (watch.Event, bool) {
				return event, event.Type == watch.Bookmark || event.Type == watch.Error || rename(event.Object) == nil
			}), nil
		},
	}, of, resync, by)}
}

// SetTransform implements toolscache.SharedIndexInformer. The transformation sees the original names.
func (i informer) SetTransform(change toolscache.TransformFunc) error {
	if change == nil {
		return nil
	}
	return i.SharedIndexInformer.SetTransform(func(object any) (any, error) {
		o, ok := object.(client.Object)
		if !ok {
			return change(object)
		}
		restore(o)
		changed, err := change(o)
		if err != nil {
			return nil, err
		}
		if o, ok := changed.(client.Object); ok {
			err = rename(o)
		}
		return changed, err
	})
}

// AddEventHandler implements toolscache.SharedIndexInformer.
func (i informer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandler(restoring{h})
}

// AddEventHandlerWithResyncPeriod implements toolscache.SharedIndexInformer.
func (i informer) AddEventHandlerWithResyncPeriod(
	h toolscache.ResourceEventHandler,
	every time.Duration,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandlerWithResyncPeriod(restoring{h}, every)
}

// AddEventHandlerWithOptions implements toolscache.SharedIndexInformer.
func (i informer) AddEventHandlerWithOptions(
	h toolscache.ResourceEventHandler,
	options toolscache.HandlerOptions,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandlerWithOptions(restoring{h}, options)
}

// restoring is a handler that receives objects of the cache with their original names.
type restoring struct {
	toolscache.ResourceEventHandler
}

func (h restoring) OnAdd(o any, initially bool) { h.ResourceEventHandler.OnAdd(own(o), initially) }

func (h restoring) OnUpdate(old, o any) { h.ResourceEventHandler.OnUpdate(own(old), own(o)) }

func (h restoring) OnDelete(o any) { h.ResourceEventHandler.OnDelete(own(o)) }

func own(o any) any {
	switch o := o.(type) {
	case client.Object:
		return restored(o)
	case toolscache.DeletedFinalStateUnknown:
		o.Obj = own(o.Obj)
		return o
	}
	return o
}
