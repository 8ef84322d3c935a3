package references

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/internal/tenancy/pathindex"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// others are the other shards: they have the workspace root:far with an object in it.
type others struct {
	err   error
	asked []string
	// arrives is called with the answer that the object exists.
	arrives func()
}

func (o *others) Locate(_ context.Context, path string) (logicalcluster.Name, bool, error) {
	o.asked = append(o.asked, path)
	return "far", path == "root:far" || path == "org:far", o.err
}

func (o *others) Has(_ context.Context, cluster logicalcluster.Name, _ schema.GroupResource, name string) (bool, error) {
	o.asked = append(o.asked, string(cluster)+"/"+name)
	o.arrives()
	return cluster == "far" && name == "it", o.err
}

func logicalCluster(cluster, path string) *corev1alpha1.LogicalCluster {
	return objecttest.In(cluster, &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{
		Name: corev1alpha1.LogicalClusterName, Annotations: map[string]string{corev1alpha1.PathAnnotation: path},
	}})
}

// newReferences returns the references of a shard that has the workspaces root:org and root:org:team, but not root.
func newReferences(t *testing.T, shards Shards) *References {
	set := objecttest.New(t, logicalCluster("org", "root:org"), logicalCluster("team", "root:org:team"),
		objecttest.In("org", &tenancyv1alpha1.Workspace{
			ObjectMeta: metav1.ObjectMeta{Name: "team"}, Spec: tenancyv1alpha1.WorkspaceSpec{Cluster: "team"},
			Status: tenancyv1alpha1.WorkspaceStatus{Phase: corev1alpha1.LogicalClusterPhaseReady},
		})).Set
	r := New(set, pathindex.New(set))
	r.patience = 20 * time.Millisecond
	if shards != nil {
		r.Share(shards)
	}
	return r
}

func TestTheShardsResolveAPathThatIsNotInMemory(t *testing.T) {
	late := Unavailable("late")
	for name, c := range map[string]struct {
		path   string
		alone  bool
		err    error
		want   logicalcluster.Name
		asked  string
		failed bool
	}{
		"no path":                     {want: "org"},
		"of this shard":               {path: "root:org:team", want: "team"},
		"of another shard":            {path: "root:far", want: "far", asked: "root:far"},
		"below the own workspace":     {path: "root:org:far", want: "far", asked: "org:far"},
		"absent":                      {path: "root:none", asked: "root:none"},
		"without other shards":        {path: "root:far", alone: true},
		"the shards do not respond":   {path: "root:far", err: late, asked: "root:far", failed: true},
		"in memory, without response": {path: "root:org", err: late, want: "org"},
	} {
		o := &others{err: c.err}
		r := newReferences(t, o)
		if c.alone {
			r = newReferences(t, nil)
		}
		got, ok, err := r.Cluster(t.Context(), "org", c.path)
		if (err != nil) != c.failed || (!c.failed && (got != c.want && ok || ok != (c.want != ""))) {
			t.Errorf("%s: got %q, %v, %v", name, got, ok, err)
		}
		if (len(o.asked) == 1) != (c.asked != "") || (len(o.asked) == 1 && o.asked[0] != c.asked) {
			t.Errorf("%s: the questions to the shards are %v, want %q", name, o.asked, c.asked)
		}
	}
}

func TestAnObjectOfAnotherShardIsAwaited(t *testing.T) {
	for name, c := range map[string]struct {
		in      logicalcluster.Name
		object  string
		known   bool
		arrives bool
		err     error
		alone   bool
		asked   bool
		exists  bool
		retry   bool
	}{
		"in memory":              {in: "far", object: "it", known: true, exists: true},
		"it arrives":             {in: "far", object: "it", arrives: true, asked: true, exists: true},
		"it does not arrive":     {in: "far", object: "it", asked: true, exists: true, retry: true},
		"absent there":           {in: "far", object: "other", asked: true},
		"absent here":            {in: "org", object: "it"},
		"without other shards":   {in: "far", object: "it", alone: true},
		"no answer":              {in: "far", object: "it", err: Unavailable("late"), asked: true, retry: true},
		"no answer, in memory":   {in: "far", object: "it", err: Unavailable("late"), known: true, exists: true},
		"absent here, no answer": {in: "org", object: "it", err: Unavailable("late")},
	} {
		known := c.known
		o := &others{err: c.err}
		o.arrives = func() { known = known || c.arrives }
		r := newReferences(t, o)
		if c.alone {
			r = newReferences(t, nil)
		}
		resource := schema.GroupResource{Group: "example.org", Resource: "things"}
		err := r.Await(t.Context(), c.in, resource, c.object, func() bool { return known })
		if (err != nil) != c.retry || (c.retry && !IsRetriable(err)) || (len(o.asked) == 1) != c.asked {
			t.Errorf("%s: got %v after %d questions", name, err, len(o.asked))
		}
		known = c.known
		exists, err := r.Exists(t.Context(), c.in, resource, c.object, func() bool { return known })
		if failed := c.err != nil && c.asked; (err != nil) != failed || (!failed && exists != c.exists) {
			t.Errorf("%s: exists is %v, %v", name, exists, err)
		}
	}
}
