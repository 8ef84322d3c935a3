package migration

import (
	"context"
	"errors"
	"slices"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kcplane/kcp/server/internal/storage"
)

// forgetful is an origin that loses or changes an entry of some responses.
type forgetful struct {
	Remote
	pages, changes func([]storage.Entry) []storage.Entry
}

func (f *forgetful) Page(ctx context.Context, in Read) (Answer, error) {
	out, err := f.Remote.Page(ctx, in)
	out.Entries = f.pages(out.Entries)
	return out, err
}

func (f *forgetful) Changes(ctx context.Context, in Read) (Answer, error) {
	out, err := f.Remote.Changes(ctx, in)
	out.Entries = f.changes(out.Entries)
	return out, err
}

// keep returns entries as they are.
func keep(entries []storage.Entry) []storage.Entry { return entries }

// lose removes the first entry.
func lose(entries []storage.Entry) []storage.Entry { return entries[min(1, len(entries)):] }

// at executes the steps of a migration before a step.
func (r *rival) at(t *testing.T, step Step) Observed {
	t.Helper()
	for range 100 {
		next, observed, err := r.mover.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if next == step {
			return observed
		}
		if err := r.mover.Do(t.Context(), next, observed); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatalf("the migration does not reach %s", step)
	return Observed{}
}

func TestACopyThatDiffersIsNotCommitted(t *testing.T) {
	change := func(entries []storage.Entry) []storage.Entry {
		changed := slices.Clone(entries)
		for i := range changed {
			changed[i].Value = append(slices.Clone(changed[i].Value), ' ')
		}
		return changed
	}
	twice := func(entries []storage.Entry) []storage.Entry {
		for _, entry := range entries {
			entry.Key += "-other"
			return append(slices.Clone(entries), entry)
		}
		return entries
	}
	for what, lost := range map[string]func([]storage.Entry) []storage.Entry{
		"an object is missing": lose, "objects are different": change, "there is one more object": twice,
	} {
		t.Run(what, func(t *testing.T) {
			c := newContest(t, "east")
			r := c.rivals[0]
			origin := &forgetful{r.mover.Origin, lost, keep}
			r.mover.Origin = origin
			observed := r.at(t, StepCopy)
			if err := r.mover.Do(t.Context(), StepCopy, observed); !errors.Is(err, errDifferent) {
				t.Errorf("copied wrong pages: %v", err)
			}
			if next, _, err := r.mover.Next(t.Context()); next != StepCopy || err != nil {
				t.Errorf("after wrong pages comes %s, %v", next, err)
			}
			origin.pages = keep
			r.at(t, StepLeave)
			for object := range 3 {
				if err := c.shards["west"].write(moving, "late-object", object); err != nil {
					t.Fatal(err)
				}
			}
			observed = r.at(t, StepFinish)
			origin.changes = lost
			if err := r.mover.Do(t.Context(), StepFinish, observed); !errors.Is(err, errDifferent) {
				t.Errorf("copied wrong changes: %v", err)
			}
			if next, _, err := r.mover.Next(t.Context()); next != StepCopy || err != nil {
				t.Errorf("after wrong changes comes %s, %v", next, err)
			}
			origin.changes = keep
			r.until(t, "")
			if r.end != StepDone {
				t.Errorf("the migration ends with %s", r.end)
			}
		})
	}
}

func TestAForeignChangeOfACopyIsFound(t *testing.T) {
	key := func(t *testing.T, name string) string {
		return "/" + t.Name() + "/apis.kcp.io/apiexportendpointslices/customresources/" + string(moving) + "/" + name
	}
	for what, change := range map[string]func(t *testing.T) clientv3.Op{
		"it is deleted":  func(t *testing.T) clientv3.Op { return clientv3.OpDelete(key(t, "object-3")) },
		"it is replaced": func(t *testing.T) clientv3.Op { return clientv3.OpPut(key(t, "object-3"), `{"kind":"other"}`) },
		"it is added":    func(t *testing.T) clientv3.Op { return clientv3.OpPut(key(t, "other"), `{"kind":"other"}`) },
	} {
		for _, step := range []Step{StepLeave, StepFinish} {
			t.Run(what+" before "+string(step), func(t *testing.T) {
				c := newContest(t, "east")
				r := c.rivals[0]
				r.at(t, step)
				client := servers["east"].Client()
				defer client.Close()
				done, err := client.Do(t.Context(), change(t))
				if err != nil {
					t.Fatal(err)
				}
				if deleted := done.Del(); deleted != nil && deleted.Deleted != 1 {
					t.Fatalf("%d keys are deleted", deleted.Deleted)
				}
				observed := r.at(t, StepFinish)
				if err := r.mover.Do(t.Context(), StepFinish, observed); !errors.Is(err, errDifferent) {
					t.Errorf("compared with %v", err)
				}
			})
		}
	}
}
