package migration

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/internal/tenancy/scheduling"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// newPreparer returns the Preparer of shard west, where root and parent are above the cluster of the example.
func newPreparer(t *testing.T, s *shard) (*Preparer, *objecttest.Objects) {
	t.Helper()
	objects := objecttest.New(t)
	return &Preparer{
		Shard: s.name, Version: "v1.4.0", Copies: s.copies, Clusters: s.cluster, Set: objects.Set,
		Ancestors: func(cluster logicalcluster.Name) ([]logicalcluster.Name, bool) {
			return []logicalcluster.Name{"root", "parent"}, cluster == moving
		},
		Accepts: func(context.Context, Migration) error { return nil },
	}, objects
}

// annotations returns those of a LogicalCluster, also behind a fence, without that of its name.
func (s *shard) annotations(t *testing.T, cluster logicalcluster.Name) map[string]string {
	t.Helper()
	lc, err := logicalClusterOf(t.Context(), s.copies, cluster)
	if err != nil || lc == nil {
		t.Fatal(lc, err)
	}
	delete(lc.Annotations, logicalcluster.AnnotationKey)
	return lc.Annotations
}

// question is what the destination asks before it knows the origin.
func question() Preparation {
	m := example
	m.Origin, m.Epoch = "", 0
	return Preparation{Migration: m, Version: "v1.4.2"}
}

func TestAClusterIsPreparedForTheDestinationOfAnAcceptedMigration(t *testing.T) {
	place := map[string]string{tenancyv1alpha1.AncestorsAnnotation: "root,parent", tenancyv1alpha1.OwnerShardAnnotation: "west"}
	described := maps.Clone(place)
	described[tenancyv1alpha1.SignersAnnotation] = "keys"
	describe := func(lc *corev1alpha1.LogicalCluster) error {
		lc.Annotations[tenancyv1alpha1.SignersAnnotation] = "keys"
		return nil
	}
	denied := func(err error) func(*Preparer) {
		return func(p *Preparer) { p.Accepts = func(context.Context, Migration) error { return err } }
	}
	isForbidden := apierrors.IsForbidden
	for _, c := range []struct {
		what    string
		prepare func(*Preparer)
		caller  peers.Identity
		ask     func(*Preparation)
		want    func(error) bool
		found   bool
		stored  map[string]string
	}{
		{"the destination", func(*Preparer) {}, east, func(*Preparation) {}, isAccepted, true, place},
		{"what else others must know", func(p *Preparer) { p.Describe = describe }, east, func(*Preparation) {}, isAccepted, true, described},
		{"another shard", func(*Preparer) {}, peers.Identity{Kind: peers.Shard, Name: "north"}, func(*Preparation) {}, isForbidden, false, nil},
		{"this shard itself", func(*Preparer) {}, peers.Identity{Kind: peers.Shard, Name: "west"},
			func(in *Preparation) { in.Migration.Destination = "west" }, isForbidden, false, nil},
		{"a migration that is not accepted", denied(apierrors.NewForbidden(migrationResource, "move", errStorage)), east, func(*Preparation) {},
			isForbidden, false, nil},
		{"a migration that is canceled", denied(errCancel), east, func(*Preparation) {}, IsCanceled, false, nil},
		{"a cluster that is not here", denied(errStorage), east, func(in *Preparation) { in.Migration.Cluster = "other" }, isAccepted, false,
			nil},
		{"an unknown place in the tree", func(p *Preparer) {
			p.Ancestors = func(logicalcluster.Name) ([]logicalcluster.Name, bool) { return []logicalcluster.Name{"root"}, false }
		}, east, func(*Preparation) {}, apierrors.IsServiceUnavailable, false, nil},
		{"a place below nothing", func(p *Preparer) {
			p.Ancestors = func(logicalcluster.Name) ([]logicalcluster.Name, bool) { return nil, true }
		}, east, func(*Preparation) {}, apierrors.IsServiceUnavailable, false, nil},
		{"a description that fails", func(p *Preparer) {
			p.Describe = func(*corev1alpha1.LogicalCluster) error { return errStorage }
		}, east, func(*Preparation) {}, func(err error) bool { return errors.Is(err, errStorage) }, false, nil},
		{"an older destination", func(*Preparer) {}, east, func(in *Preparation) { in.Version = "v1.3.9" }, isAccepted, true, nil},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := newShard(t, "west")
			s.create(t, logicalCluster(moving))
			p, objects := newPreparer(t, s)
			child := logicalCluster("child")
			s.create(t, child)
			objects.Show(child)
			s.workspace(t, "child", "west", "child", 1)
			c.prepare(p)
			in := question()
			c.ask(&in)
			got, err := p.prepare(t.Context(), c.caller, in)
			if !c.want(err) || (got.LogicalCluster != nil) != c.found || (got.Refused != "") != (in.Version == "v1.3.9") {
				t.Errorf("got %+v, %v", got, err)
			}
			if stored := s.annotations(t, moving); !maps.Equal(stored, c.stored) {
				t.Errorf("the annotations are %v, want %v", stored, c.stored)
			}
			if placed := len(s.annotations(t, "child")) > 0; placed != (c.stored != nil) {
				t.Errorf("its children have their place: %t", placed)
			}
			if c.found && c.stored != nil && got.LogicalCluster.Annotations[tenancyv1alpha1.AncestorsAnnotation] == "" {
				t.Errorf("the destination receives the annotations %v", got.LogicalCluster.Annotations)
			}
		})
	}
}

func TestAClusterBehindAFenceIsNotPrepared(t *testing.T) {
	s := newShard(t, "west")
	s.create(t, logicalCluster(moving))
	fence(t, s)
	p, _ := newPreparer(t, s)
	if got, err := p.prepare(t.Context(), east, question()); !apierrors.IsServiceUnavailable(err) || got.LogicalCluster != nil {
		t.Errorf("got %+v, %v", got, err)
	}
}

// fence fences the cluster of the example at its origin.
func fence(t *testing.T, s *shard) {
	t.Helper()
	since, err := s.store.SwapFence(t.Context(), moving, nil, example.Fence(storage.FenceLeaving, s.name))
	for known := false; err == nil && !known; {
		known, err = s.store.FencesKnown(t.Context(), since)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A destination that restarts needs the LogicalCluster until it has copied it, whatever happened since it began.
func TestADestinationThatRestartsFindsTheClusterAgain(t *testing.T) {
	for _, c := range []struct {
		what  string
		since func(*testing.T, *shard, *Preparer, *Preparation)
	}{
		{"it is fenced", func(t *testing.T, s *shard, _ *Preparer, _ *Preparation) { fence(t, s) }},
		{"the migration is canceled", func(_ *testing.T, _ *shard, p *Preparer, _ *Preparation) {
			p.Accepts = func(context.Context, Migration) error { return errCancel }
		}},
		{"the destination has an older version", func(_ *testing.T, _ *shard, _ *Preparer, in *Preparation) { in.Version = "v1.3.9" }},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := newShard(t, "west")
			s.create(t, logicalCluster(moving))
			p, _ := newPreparer(t, s)
			in := question()
			in.Migration = example
			c.since(t, s, p, &in)
			got, err := p.prepare(t.Context(), east, in)
			if err != nil || got.LogicalCluster == nil || got.LogicalCluster.Spec.Owner.UID != ours.UID || got.Refused != "" {
				t.Errorf("got %+v, %v", got, err)
			}
			p.Accepts = func(context.Context, Migration) error { return errStorage }
			if _, err := p.prepare(t.Context(), east, in); !errors.Is(err, errStorage) {
				t.Errorf("without an accepted migration: %v", err)
			}
		})
	}
}

func TestWhichClustersDoNotMove(t *testing.T) {
	now := metav1.Now()
	for _, c := range []struct {
		what, destination string
		change            func(*corev1alpha1.LogicalCluster)
		want              string
	}{
		{"a workspace", "v1.4.0", func(*corev1alpha1.LogicalCluster) {}, ""},
		{"a home", "v1.4.0", func(lc *corev1alpha1.LogicalCluster) { lc.Spec.Owner = nil }, "no Workspace"},
		{"a cluster with another owner", "v1.4.0", func(lc *corev1alpha1.LogicalCluster) { lc.Spec.Owner.Resource = "users" }, "no Workspace"},
		{"a cluster that is being deleted", "v1.4.0", func(lc *corev1alpha1.LogicalCluster) { lc.DeletionTimestamp = &now }, "is being deleted"},
		{"an older destination", "v1.3.0", func(*corev1alpha1.LogicalCluster) {}, "version v1.3.0, which is older than v1.4.0"},
	} {
		lc := logicalCluster(moving)
		c.change(lc)
		got := (&Preparer{Version: "v1.4.0"}).refuse(lc, c.destination)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.what, got, c.want)
		}
	}
}

func TestAVersionIsOlderByItsMinorVersion(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"v1.4.0", "v1.4.9", false}, {"v1.4.9", "v1.4.0", false}, {"v1.3.9", "v1.4.0", true}, {"v1.4.0", "v1.3.9", false},
		{"v1.9.0", "v1.10.0", true}, {"v1.10.0", "v1.9.0", false}, {"v1.9.0", "v2.0.0", true}, {"v2.0.0", "v1.9.0", false},
		{"v1.3.0-rc.1+dirty", "v1.4.0", true}, {"unknown", "v1.4.0", false}, {"v1.3.0", "unknown", false}, {"", "", false},
	} {
		if got := isOlder(c.a, c.b); got != c.want {
			t.Errorf("%q is older than %q: %t", c.a, c.b, got)
		}
	}
}

// workspace stores a child of the cluster of the example.
func (s *shard) workspace(t *testing.T, name, shard string, cluster logicalcluster.Name, filling int) {
	t.Helper()
	ws := objecttest.In(string(moving), &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	ws.SetGroupVersionKind(tenancyv1alpha1.SchemeGroupVersion.WithKind("Workspace"))
	ws.Annotations["filling"] = strings.Repeat("x", filling)
	scheduling.SetPlacement(ws, shard, cluster)
	if err := s.workspaces.Create(in(moving), name, ws); err != nil {
		t.Fatal(err)
	}
}

func TestThePlaceOfChildrenOnThisShardIsRecorded(t *testing.T) {
	place := map[string]string{tenancyv1alpha1.AncestorsAnnotation: "root,parent,moving", tenancyv1alpha1.OwnerShardAnnotation: "west"}
	known := map[string]string{tenancyv1alpha1.AncestorsAnnotation: "root,parent,moving", tenancyv1alpha1.OwnerShardAnnotation: "north"}
	told := map[string]string{tenancyv1alpha1.AncestorsAnnotation: "as,told,before"}
	s := newShard(t, "west")
	p, objects := newPreparer(t, s)
	wants := map[logicalcluster.Name]map[string]string{}
	for _, c := range []struct {
		cluster logicalcluster.Name
		shard   string
		before  map[string]string
		change  func(*corev1alpha1.LogicalCluster)
		want    map[string]string
	}{
		{cluster: "here", shard: "west", want: place},
		{cluster: "elsewhere", shard: "north"},
		{cluster: "told", shard: "west", before: told, want: told},
		{cluster: "unowned", shard: "west", change: func(lc *corev1alpha1.LogicalCluster) { lc.Spec.Owner = nil }},
		{cluster: "stepchild", shard: "west", before: map[string]string{tenancyv1alpha1.OwnerShardAnnotation: "north"}, want: known},
		{cluster: "the-last", shard: "west", want: place},
	} {
		lc := logicalCluster(c.cluster)
		maps.Copy(lc.Annotations, c.before)
		if c.change != nil {
			c.change(lc)
		}
		s.create(t, lc)
		objects.Show(lc)
		s.workspace(t, string(c.cluster), c.shard, c.cluster, 1)
		wants[c.cluster] = c.want
	}
	deleted := logicalCluster("deleted") // informers have it still
	objects.Show(deleted)
	s.workspace(t, "deleted", "west", "deleted", 1)
	s.workspace(t, "unscheduled", "", "", 1)
	client := servers["west"].Client()
	defer client.Close()
	if _, err := client.Put(t.Context(), "/"+t.Name()+storage.CollectionOfCustom(workspaces)+"/moving/broken", "{"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"large-1", "large-2"} { // the last child is on another page
		s.workspace(t, name, "north", "large", 1<<20)
	}
	if _, next, err := s.copies.Page(in(moving), 0, storage.CollectionOfCustom(workspaces), ""); err != nil || next == "" {
		t.Fatalf("all children are on one page: %v", err)
	}

	if err := p.DescribeChildren(t.Context(), moving); err != nil {
		t.Fatal(err)
	}
	for cluster, want := range wants {
		if got := s.annotations(t, cluster); !maps.Equal(got, want) {
			t.Errorf("%s has the annotations %v, want %v", cluster, got, want)
		}
	}
	if err := p.DescribeChildren(t.Context(), "other"); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("children of a cluster whose place is unknown: %v", err)
	}
}

func TestAChildWhosePlaceIsNotRecordedStopsTheMigration(t *testing.T) {
	s := newShard(t, "west")
	p, objects := newPreparer(t, s)
	objects.Show(logicalCluster("child"))
	objects.Stored(objects.Set.LogicalClusters.Informer).Fail("child", corev1alpha1.LogicalClusterName, errStorage)
	p.Clusters = objects.Stored(objects.Set.LogicalClusters.Informer)
	s.workspace(t, "child", "west", "child", 1)
	if err := p.DescribeChildren(t.Context(), moving); !errors.Is(err, errStorage) {
		t.Errorf("got %v", err)
	}
}
