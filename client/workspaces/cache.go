package workspaces

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// scoped is a cache with the objects of all workspaces. Readers get the objects of the workspace in their context.
type scoped struct{ cache.Cache }

func newCache(config *rest.Config, options cache.Options) (cache.Cache, error) {
	if len(options.DefaultNamespaces) > 0 {
		return nil, errors.New("a cache of many workspaces cannot be limited to some namespaces")
	}
	options.NewInformer = newInformer
	c, err := cache.New(config, options)
	return scoped{c}, err
}

// Get implements client.Reader.
func (c scoped) Get(ctx context.Context, key client.ObjectKey, out client.Object, options ...client.GetOption) error {
	cluster, err := Of(ctx)
	if err != nil {
		return err
	}
	qualified := client.ObjectKey{}
	qualified.Namespace, qualified.Name = qualify(cluster, key.Namespace, key.Name)
	err = c.Cache.Get(ctx, qualified, out, options...)
	if status := apierrors.APIStatus(nil); apierrors.IsNotFound(err) && errors.As(err, &status) && status.Status().Details != nil {
		return apierrors.NewNotFound(schema.GroupResource{Group: status.Status().Details.Group, Resource: status.Status().Details.Kind}, key.Name)
	}
	if err == nil {
		restore(out)
	}
	return err
}

// List implements client.Reader.
func (c scoped) List(ctx context.Context, out client.ObjectList, options ...client.ListOption) error {
	limited := client.ListOptions{}
	limited.ApplyOptions(options)
	if ctx.Value(contextKey{}) != all {
		cluster, err := Of(ctx)
		if err != nil {
			return err
		}
		namespace := cluster + separator + limited.Namespace
		if limited.FieldSelector != nil {
			limited.FieldSelector, err = limited.FieldSelector.Transform(func(field, value string) (string, string, error) {
				return field, cluster + separator + value, nil
			})
			if err != nil {
				return err
			}
			if limited.Namespace == "" {
				namespace = "" // the indexed values include the cluster
			}
		}
		limited.Namespace = namespace
	} else if limited.Namespace != "" {
		return errors.New("a list of all workspaces cannot be limited to a namespace")
	}
	if err := c.Cache.List(ctx, out, &limited); err != nil {
		return err
	}
	return meta.EachListItem(out, func(o runtime.Object) error {
		restore(o.(client.Object))
		return nil
	})
}

// IndexField implements client.FieldIndexer.
func (c scoped) IndexField(ctx context.Context, object client.Object, field string, extract client.IndexerFunc) error {
	return c.Cache.IndexField(ctx, object, field, func(o client.Object) []string {
		values := extract(restored(o))
		for _, value := range values {
			values = append(values, ClusterOf(o)+separator+value)
		}
		return values
	})
}
