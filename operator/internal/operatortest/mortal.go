package operatortest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// ErrEnded is the error of all writes of an operator that has ended.
var ErrEnded = errors.New("the operator has ended")

// Deaths records the writes at which operators end: the first one before an object is written, and the second one just after it. The third
// one continues.
type Deaths struct {
	// Begun counts the started writes of all operators.
	Begun map[string]int
	// Differ are the writes that an operator has begun, and the next one has written with another content.
	Differ []string
	begun  map[string]string // content of the writes that were not executed
}

// NewDeaths returns an empty record.
func NewDeaths() *Deaths { return &Deaths{Begun: map[string]int{}, begun: map[string]string{}} }

// Mortal is an operator that ends at a write. It may write nothing after that.
type Mortal struct {
	deaths *Deaths
	ended  string
}

// Next returns another operator.
func (d *Deaths) Next() *Mortal { return &Mortal{deaths: d} }

// Ended returns the write at which the operator has ended, or an empty string.
func (m *Mortal) Ended() string { return m.ended }

// volatile are the parts of a write that are different each time.
var volatile = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|"resourceVersion":"\d+"`)

// Write executes a write with do, unless the operator ends before it.
func (m *Mortal) Write(what, content string, do func() error) error {
	if m.ended != "" {
		return ErrEnded
	}
	d := m.deaths
	content = volatile.ReplaceAllString(content, "")
	turn := d.Begun[what] % 3
	d.Begun[what]++
	switch {
	case turn == 0:
		d.begun[what] = content
	case turn == 1 && d.begun[what] != content:
		d.Differ = append(d.Differ, fmt.Sprintf("%s: an operator begins\n%s\nand the next one writes\n%s", what, d.begun[what], content))
	}
	if turn > 0 {
		if err := do(); err != nil {
			return err
		}
	}
	if turn < 2 {
		m.ended = what
		return ErrEnded
	}
	return nil
}

// Client returns the client of the operator for a cluster.
func (m *Mortal) Client(c *Cluster) client.Client {
	named := func(how string, o client.Object) string { return fmt.Sprintf("%s %T %s", how, o, o.GetName()) }
	patched := func(o client.Object, patch client.Patch) string {
		data, err := patch.Data(o)
		return fmt.Sprintf("%s %v", data, err)
	}
	return interceptor.NewClient(c.Client.(client.WithWatch), interceptor.Funcs{
		Create: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return m.Write(named("create", o), encoded(o), func() error { return w.Create(ctx, o, opts...) })
		},
		Apply: func(ctx context.Context, w client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			applied := o.(interface {
				GetKind() string
				GetName() string
			})
			return m.Write("apply "+applied.GetKind()+" "+applied.GetName(), encoded(o), func() error { return w.Apply(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, w client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return m.Write(named("patch", o), patched(o, patch), func() error { return w.Patch(ctx, o, patch, opts...) })
		},
		Delete: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return m.Write(named("delete", o), "", func() error { return w.Delete(ctx, o, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, w client.Client, sub string, o client.Object, patch client.Patch,
			opts ...client.SubResourcePatchOption) error {
			return m.Write(named("patch", o)+" "+sub, patched(o, patch),
				func() error { return w.SubResource(sub).Patch(ctx, o, patch, opts...) })
		},
	})
}

func encoded(o any) string {
	data, err := json.Marshal(o)
	return fmt.Sprintf("%s %v", data, err)
}
