package operatortest

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// ErrEnded is the error of all requests of an operator that has ended.
var ErrEnded = errors.New("the operator has ended")

// Mortal returns the client of an operator that ends at each write: the first operator before an object is written, and the second one
// just after it. The third one continues. The map counts the started writes of all of them.
func (c *Cluster) Mortal(begun map[string]int) client.Client {
	ended := false
	write := func(how, what string, do func() error) error {
		if ended {
			return ErrEnded
		}
		what = how + " " + what
		turn := begun[what] % 3
		begun[what]++
		if turn > 0 {
			if err := do(); err != nil {
				return err
			}
		}
		if ended = turn < 2; ended {
			return ErrEnded
		}
		return nil
	}
	named := func(o client.Object) string { return fmt.Sprintf("%T %s", o, o.GetName()) }
	return interceptor.NewClient(c.Client.(client.WithWatch), interceptor.Funcs{
		Create: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return write("create", named(o), func() error { return w.Create(ctx, o, opts...) })
		},
		Apply: func(ctx context.Context, w client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			applied := o.(interface {
				GetKind() string
				GetName() string
			})
			return write("apply", applied.GetKind()+" "+applied.GetName(), func() error { return w.Apply(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, w client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return write("patch", named(o), func() error { return w.Patch(ctx, o, patch, opts...) })
		},
		Delete: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return write("delete", named(o), func() error { return w.Delete(ctx, o, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, w client.Client, sub string, o client.Object, patch client.Patch,
			opts ...client.SubResourcePatchOption) error {
			return write("patch", named(o)+" "+sub, func() error { return w.SubResource(sub).Patch(ctx, o, patch, opts...) })
		},
	})
}
