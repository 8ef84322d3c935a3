package operatortest

import (
	"context"
	"reflect"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// Behind returns a client that goes on reading an object as it is here, as a cache does that has not caught up with what was written since.
func (c *Cluster) Behind(object client.Object) client.Client {
	return interceptor.NewClient(c.Client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
			if key == client.ObjectKeyFromObject(object) && reflect.TypeOf(into) == reflect.TypeOf(object) {
				reflect.ValueOf(into).Elem().Set(reflect.ValueOf(object.DeepCopyObject()).Elem())
				return nil
			}
			return w.Get(ctx, key, into, opts...)
		},
	})
}
