package operatortest

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// CountGenerations makes writes of the operator increment the generation of a StatefulSet whose spec they change, like an API server.
// Then a StatefulSet is not rolled out until Roll is called.
func (c *Cluster) CountGenerations() {
	c.Client = interceptor.NewClient(c.Client.(client.WithWatch), interceptor.Funcs{
		Apply: func(ctx context.Context, w client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			applied := o.(interface {
				GetKind() string
				GetName() string
				GetNamespace() string
			})
			if applied.GetKind() != "StatefulSet" {
				return w.Apply(ctx, o, opts...)
			}
			key := client.ObjectKey{Namespace: applied.GetNamespace(), Name: applied.GetName()}
			return counted(ctx, w, key, func() error { return w.Apply(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, w client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if _, ok := o.(*appsv1.StatefulSet); !ok {
				return w.Patch(ctx, o, patch, opts...)
			}
			return counted(ctx, w, client.ObjectKeyFromObject(o), func() error { return w.Patch(ctx, o, patch, opts...) })
		},
	})
}

// counted executes a write of a StatefulSet.
func counted(ctx context.Context, w client.WithWatch, key client.ObjectKey, write func() error) error {
	before, after := &appsv1.StatefulSet{}, &appsv1.StatefulSet{}
	if err := w.Get(ctx, key, before); client.IgnoreNotFound(err) != nil {
		return err
	}
	if err := write(); err != nil {
		return err
	}
	if err := w.Get(ctx, key, after); err != nil {
		return err
	}
	if equality.Semantic.DeepEqual(before.Spec, after.Spec) {
		return nil
	}
	after.Generation++
	return w.Update(ctx, after)
}
