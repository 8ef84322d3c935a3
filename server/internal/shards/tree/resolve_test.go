package tree

import (
	"context"
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// stored are the stored objects, by cluster and name.
type stored struct {
	objects map[string]runtime.Object
	reads   int
	err     error
}

func (s *stored) Get(ctx context.Context, name string, out runtime.Object) error {
	s.reads++
	if s.err != nil {
		return s.err
	}
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return err
	}
	switch found := s.objects[string(cluster)+"|"+name].(type) {
	case *corev1alpha1.LogicalCluster:
		found.DeepCopyInto(out.(*corev1alpha1.LogicalCluster))
	case *tenancyv1alpha1.Workspace:
		found.DeepCopyInto(out.(*tenancyv1alpha1.Workspace))
	default:
		return apierrors.NewNotFound(corev1alpha1.Resource("objects"), name)
	}
	return nil
}

var proxy = peers.Identity{Kind: peers.Proxy, Name: "p"}

// newTestPlaces returns the places of shard eu, which knows root, root:org and the LogicalCluster aaa of org, and stores also root:new with
// bbb, which root:late has too that it knows without a place. The workspace root:far is on shard us.
func newTestPlaces(t *testing.T) (*Places, *stored) {
	t.Helper()
	far := workspace("root", "far", "ccc")
	far.Annotations[tenancyv1alpha1.ShardAnnotation] = "us"
	mount := workspace("root", "mount", "")
	mount.Spec.Mount, mount.Spec.URL = &tenancyv1alpha1.Mount{}, "https://x"
	known := objecttest.New(t, logicalCluster("root", 1), logicalCluster("aaa", 2), workspace("root", "org", "aaa"), far, mount,
		workspace("root", "late", ""))
	s := &stored{objects: map[string]runtime.Object{
		"root|cluster": logicalCluster("root", 1), "aaa|cluster": logicalCluster("aaa", 2), "bbb|cluster": logicalCluster("bbb", 2),
		"root|org": workspace("root", "org", "aaa"), "root|new": workspace("root", "new", "bbb"),
		"root|late": workspace("root", "late", "bbb"),
	}}
	return NewPlaces(PlacesConfig{
		Shard: "eu", Incarnation: "a", Workspaces: known.Set.Workspaces, Clusters: known.Set.LogicalClusters, StoredWorkspaces: s, StoredClusters: s,
		Revision: func(context.Context) (uint64, error) { return 42, nil },
		Holder: func(cluster logicalcluster.Name) (string, uint64, bool) {
			shard, known := map[logicalcluster.Name]string{"root": "eu", "aaa": "eu", "ccc": "us"}[cluster]
			return shard, 5, known
		},
		Fenced: func(cluster logicalcluster.Name) (bool, string, uint64) {
			return cluster == "moving", map[logicalcluster.Name]string{"moved": "us"}[cluster], 7
		},
	}), s
}

// summary describes an answer: its edges, then the cluster or the next question.
func summary(a Answer) string {
	var parts []string
	for _, e := range a.Edges {
		parts = append(parts, e.Name)
	}
	switch {
	case a.Cluster != nil:
		parts = append(parts, "holds "+string(a.Cluster.Name))
	case a.Shard != "":
		parts = append(parts, "asks "+a.Shard+" "+a.Rest)
	}
	return strings.Join(parts, ", ")
}

func TestAPathIsResolvedAsFarAsThisShardHoldsIt(t *testing.T) {
	for path, c := range map[string]struct {
		want  string
		reads bool
	}{
		"root":              {"holds root", false},
		"root:org":          {"org, holds aaa", false},
		"root:new":          {"new, holds bbb", true},
		"root:late":         {"late, holds bbb", true},
		"bbb":               {"holds bbb", true},
		"root:far":          {"far, asks us ccc", false},
		"root:far:x:y":      {"far, asks us ccc:x:y", false},
		"root:mount":        {"mount", false},
		"root:mount:more":   {"mount", false},
		"root:absent":       {"", true},
		"root:org:absent":   {"org", true},
		"root:absent:below": {"", true},
		"ccc:x:y":           {"asks us ccc:x:y", true},
		"ccc":               {"asks us ccc", true},
		"zzz":               {"", true},
		"zzz:x":             {"", true},
	} {
		p, s := newTestPlaces(t)
		got, err := p.Resolve(context.Background(), proxy, Question{Path: path})
		if err != nil || summary(got) != c.want || (s.reads > 0) != c.reads || got.Incarnation != "a" || (got.Revision == 42) != c.reads {
			t.Errorf("%s: got %q at revision %d after %d reads, %v, want %q", path, summary(got), got.Revision, s.reads, err, c.want)
		}
	}
}

func TestAQuestionAfterAMarkerReadsTheStorage(t *testing.T) {
	p, s := newTestPlaces(t)
	delete(s.objects, "root|org")
	got, err := p.Resolve(context.Background(), proxy, Question{Path: "root:org", Stored: true})
	if err != nil || summary(got) != "" || got.Revision != 42 {
		t.Errorf("a deleted workspace that is in memory: got %q, %v", summary(got), err)
	}
}

func TestInvalidQuestionsAndFailuresAreErrorsAndNotAbsence(t *testing.T) {
	p, s := newTestPlaces(t)
	for _, path := range []string{"", "*", "../x", strings.Repeat("a", 600)} {
		if _, err := p.Resolve(context.Background(), proxy, Question{Path: path}); !apierrors.IsBadRequest(err) {
			t.Errorf("%.20q: got %v", path, err)
		}
	}
	s.err = errors.New("no etcd")
	for _, path := range []string{"zzz", "root:absent", "zzz:x"} {
		if _, err := p.Resolve(context.Background(), proxy, Question{Path: path}); !errors.Is(err, s.err) {
			t.Errorf("%s: got %v", path, err)
		}
	}
	p.config.Revision = func(context.Context) (uint64, error) { return 0, errors.New("no etcd") }
	if _, err := p.Resolve(context.Background(), proxy, Question{Path: "zzz"}); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("without a revision: got %v", err)
	}
}

func TestThePeersThatReadTooMuchGet429(t *testing.T) {
	p, s := newTestPlaces(t)
	refused := 0
	for range 2 * readBurst {
		if _, err := p.Resolve(context.Background(), proxy, Question{Path: "zzz"}); apierrors.IsTooManyRequests(err) {
			refused++
		}
	}
	if refused == 0 || s.reads > 2*readBurst-refused {
		t.Errorf("%d questions were refused, storage was read %d times", refused, s.reads)
	}
	if _, err := p.Check(context.Background(), proxy, Expectation{Cluster: "zzz"}); !apierrors.IsTooManyRequests(err) {
		t.Errorf("an expectation beyond the limit: got %v, want no marker", err)
	}
	if _, err := p.Resolve(context.Background(), proxy, Question{Path: "root:org"}); err != nil {
		t.Errorf("what is in memory: got %v", err)
	}
	other := peers.Identity{Kind: peers.Proxy, Name: "other"}
	if _, err := p.Resolve(context.Background(), other, Question{Path: "zzz"}); err != nil {
		t.Errorf("another proxy: got %v", err)
	}
}

func TestAnExpectationIsCheckedAgainstMemoryAndThenStorage(t *testing.T) {
	otherUID := someUID
	otherUID[0]++
	for name, c := range map[string]struct {
		expect Expectation
		want   string // empty if the shard serves the request
		reads  bool
	}{
		"as it is":                        {Expectation{"aaa", someUID, 2}, "", false},
		"without details":                 {Expectation{Cluster: "aaa"}, "", false},
		"only stored":                     {Expectation{"bbb", someUID, 2}, "", true},
		"another UID":                     {Expectation{"aaa", otherUID, 2}, "eu;a;deleted;;0", true},
		"an older epoch":                  {Expectation{"aaa", someUID, 1}, "eu;a;moved;eu;2", true},
		"an epoch that is not stored yet": {Expectation{"aaa", someUID, 3}, "eu;a;never;;0", true},
		"on another shard":                {Expectation{"ccc", someUID, 1}, "eu;a;moved;us;5", true},
		"unknown":                         {Expectation{"zzz", someUID, 1}, "eu;a;never;;0", true},
	} {
		p, s := newTestPlaces(t)
		m, err := p.Check(context.Background(), proxy, c.expect)
		got := ""
		if m != nil {
			got = m.String()
		}
		if err != nil || got != c.want || (s.reads > 0) != c.reads {
			t.Errorf("%s: got %q after %d reads, %v, want %q", name, got, s.reads, err, c.want)
		}
	}
	p, s := newTestPlaces(t)
	s.err = errors.New("no etcd")
	if m, err := p.Check(context.Background(), proxy, Expectation{Cluster: "zzz"}); m != nil || !errors.Is(err, s.err) {
		t.Errorf("without storage: got %v, %v, want no marker", m, err)
	}
}
