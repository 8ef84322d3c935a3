package operatortest

import (
	"context"
	"reflect"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// Behind returns a client that always reads this version of an object, like an outdated cache.
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
