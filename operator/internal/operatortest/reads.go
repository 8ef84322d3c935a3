package operatortest

import (
	"context"
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// reads caches objects of a cluster in memory, because the fake client encodes and decodes an object as JSON for each read. Each write
// removes the objects of its name from the cache.
type reads struct {
	mu      sync.Mutex
	objects map[client.ObjectKey]map[reflect.Type]client.Object
}

// withReads returns a client with a cache of the objects that it reads.
func withReads(c client.WithWatch) client.WithWatch {
	r := &reads{objects: map[client.ObjectKey]map[reflect.Type]client.Object{}}
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: r.get,
		Create: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			defer r.forget(o)
			return w.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			defer r.forget(o)
			return w.Update(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, w client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			defer r.forget(o)
			return w.Patch(ctx, o, patch, opts...)
		},
		Apply: func(ctx context.Context, w client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			defer r.forget(nil)
			return w.Apply(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			defer r.forget(o)
			return w.Delete(ctx, o, opts...)
		},
		DeleteAllOf: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.DeleteAllOfOption) error {
			defer r.forget(nil)
			return w.DeleteAllOf(ctx, o, opts...)
		},
		SubResourceCreate: func(ctx context.Context, w client.Client, sub string, o, into client.Object,
			opts ...client.SubResourceCreateOption) error {
			defer r.forget(nil)
			return w.SubResource(sub).Create(ctx, o, into, opts...)
		},
		SubResourceUpdate: func(ctx context.Context, w client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			defer r.forget(o)
			return w.SubResource(sub).Update(ctx, o, opts...)
		},
		SubResourcePatch: func(ctx context.Context, w client.Client, sub string, o client.Object, patch client.Patch,
			opts ...client.SubResourcePatchOption) error {
			defer r.forget(o)
			return w.SubResource(sub).Patch(ctx, o, patch, opts...)
		},
		SubResourceApply: func(ctx context.Context, w client.Client, sub string, o runtime.ApplyConfiguration,
			opts ...client.SubResourceApplyOption) error {
			defer r.forget(nil)
			return w.SubResource(sub).Apply(ctx, o, opts...)
		},
	})
}

func (r *reads) get(ctx context.Context, w client.WithWatch, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	if _, untyped := into.(runtime.Unstructured); untyped {
		return w.Get(ctx, key, into, opts...)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	of := reflect.TypeOf(into)
	if object := r.objects[key][of]; object != nil {
		reflect.ValueOf(into).Elem().Set(reflect.ValueOf(object.DeepCopyObject()).Elem())
		return nil
	}
	if err := w.Get(ctx, key, into, opts...); err != nil {
		return err
	}
	if r.objects[key] == nil {
		r.objects[key] = map[reflect.Type]client.Object{}
	}
	r.objects[key][of] = into.DeepCopyObject().(client.Object)
	return nil
}

// forget removes the objects of a name from the cache; nil removes all objects.
func (r *reads) forget(written client.Object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if written == nil {
		clear(r.objects)
		return
	}
	delete(r.objects, client.ObjectKeyFromObject(written))
}
