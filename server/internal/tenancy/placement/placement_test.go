package placement

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/logicalcluster"
)

func TestOfReadsTheRecordOfAWorkspace(t *testing.T) {
	for name, test := range map[string]struct {
		annotations map[string]string
		cluster     string
		want        Record
		valid       bool
	}{
		"without an epoch": {
			map[string]string{tenancyv1alpha1.ShardAnnotation: "east"}, "c", Record{Shard: "east", Epoch: 1, Cluster: "c"}, true,
		},
		"moved": {
			map[string]string{
				tenancyv1alpha1.ShardAnnotation: "east", tenancyv1alpha1.EpochAnnotation: "7", tenancyv1alpha1.ClusterUIDAnnotation: "u",
			}, "c", Record{Shard: "east", Epoch: 7, Cluster: "c", UID: "u"}, true,
		},
		"before the cluster exists": {
			map[string]string{tenancyv1alpha1.ShardAnnotation: "east", tenancyv1alpha1.ClusterAnnotation: "c"}, "",
			Record{Shard: "east", Epoch: 1, Cluster: "c"}, true,
		},
		"unscheduled": {nil, "", Record{Epoch: 1}, false},
		"with an invalid epoch": {
			map[string]string{tenancyv1alpha1.ShardAnnotation: "east", tenancyv1alpha1.EpochAnnotation: "-1"}, "c",
			Record{Shard: "east", Cluster: "c"}, false,
		},
		"with epoch zero": {
			map[string]string{tenancyv1alpha1.ShardAnnotation: "east", tenancyv1alpha1.EpochAnnotation: "0"}, "c",
			Record{Shard: "east", Cluster: "c"}, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			ws := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Annotations: test.annotations}}
			ws.Spec.Cluster = test.cluster
			if got := Of(ws); got != test.want || got.Valid() != test.valid {
				t.Errorf("got %+v, valid %v, want %+v, %v", got, got.Valid(), test.want, test.valid)
			}
		})
	}
}

// lc is a LogicalCluster that the workspace <parent>/<name> owns; a home if the parent is empty.
func lc(cluster, parent, name string, epoch int) *corev1alpha1.LogicalCluster {
	obj := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{
		Name: "cluster", UID: types.UID("uid of " + cluster), Annotations: map[string]string{logicalcluster.AnnotationKey: cluster},
	}}
	if parent != "" {
		obj.Spec.Owner = &corev1alpha1.LogicalClusterOwner{Cluster: parent, Name: name, UID: types.UID(parent + "/" + name)}
	}
	if epoch > 1 {
		obj.Annotations[tenancyv1alpha1.EpochAnnotation] = fmt.Sprint(epoch)
	}
	return obj
}

// ws is the Workspace <parent>/<name> with the record (cluster, shard, epoch).
func ws(parent, name, cluster, shard string, epoch int) *tenancyv1alpha1.Workspace {
	obj := &tenancyv1alpha1.Workspace{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(parent + "/" + name), Annotations: map[string]string{
				logicalcluster.AnnotationKey: parent, tenancyv1alpha1.ShardAnnotation: shard, tenancyv1alpha1.EpochAnnotation: fmt.Sprint(epoch),
			},
		},
		Spec: tenancyv1alpha1.WorkspaceSpec{Cluster: cluster},
	}
	return obj
}

func recorded(obj *tenancyv1alpha1.Workspace, uid string) *tenancyv1alpha1.Workspace {
	obj.Annotations[tenancyv1alpha1.ClusterUIDAnnotation] = uid
	return obj
}

// The tests run on the shard "own". Keys of offers are shards.
func TestTheHolderIsFoundFromTheRecordsOfTheAncestors(t *testing.T) {
	type offers map[string][]objecttest.Object
	org := []objecttest.Object{ws("root", "org", "org", "east", 1)}
	for name, test := range map[string]struct {
		local  []objecttest.Object
		offers offers
		of     logicalcluster.Name
		want   string // shard@epoch, empty if it is unknown
	}{
		"root is pinned": {of: "root", want: "root@1"},
		"root is pinned, whatever another shard offers": {
			offers: offers{"evil": {lc("root", "x", "x", 9), ws("x", "x", "root", "evil", 9)}}, of: "root", want: "root@1",
		},
		"an organization": {
			offers: offers{"root": org, "east": {lc("org", "root", "org", 1)}}, of: "org", want: "east@1",
		},
		"over three shards": {
			offers: offers{
				"root": org, "east": {lc("org", "root", "org", 1), ws("org", "team", "team", "west", 3)}, "west": {lc("team", "org", "team", 3)},
			}, of: "team", want: "west@3",
		},
		"over this shard": {
			local: []objecttest.Object{lc("org", "root", "org", 1), ws("org", "team", "team", "west", 1)},
			offers: offers{
				"root": {ws("root", "org", "org", "own", 1)}, "west": {lc("team", "org", "team", 1)},
			}, of: "team", want: "west@1",
		},
		"of this shard": {
			local:  []objecttest.Object{lc("org", "root", "org", 1)},
			offers: offers{"root": {ws("root", "org", "org", "own", 1)}}, of: "org", want: "own@1",
		},
		"a home":                   {offers: offers{"root": {lc("home", "", "", 1)}}, of: "home", want: "root@1"},
		"a home of another shard":  {offers: offers{"east": {lc("home", "", "", 1)}}, of: "home"},
		"a cluster without claims": {offers: offers{"root": org}, of: "org"},
		"without the edge":         {offers: offers{"east": {lc("org", "root", "org", 1)}}, of: "org"},
		"an edge of a shard that does not hold the parent": {
			offers: offers{"east": {lc("org", "root", "org", 1), ws("root", "org", "org", "east", 1)}}, of: "org",
		},
		"a missing ancestor": {
			offers: offers{"root": org, "east": {ws("org", "team", "team", "west", 1)}, "west": {lc("team", "org", "team", 1)}}, of: "team",
		},
		"a workspace that was created again": {
			offers: offers{"root": {func() objecttest.Object { w := ws("root", "org", "org", "east", 1); w.UID = "new"; return w }()},
				"east": {lc("org", "root", "org", 1)}}, of: "org",
		},
		"a record of another cluster": {
			offers: offers{"root": {ws("root", "org", "other", "east", 1)}, "east": {lc("org", "root", "org", 1)}}, of: "org",
		},
		"a record without a shard": {
			offers: offers{"root": {ws("root", "org", "org", "", 1)}, "east": {lc("org", "root", "org", 1)}}, of: "org",
		},
		"a cluster that was created again": {
			offers: offers{"root": {recorded(ws("root", "org", "org", "east", 1), "the first")}, "east": {lc("org", "root", "org", 1)}}, of: "org",
		},
		"the recorded cluster": {
			offers: offers{"root": {recorded(ws("root", "org", "org", "east", 1), "uid of org")}, "east": {lc("org", "root", "org", 1)}},
			of:     "org", want: "east@1",
		},
		"an older LogicalCluster than the record": {
			offers: offers{"root": {ws("root", "org", "org", "east", 2)}, "east": {lc("org", "root", "org", 1)}}, of: "org",
		},
		"moved, and still offered by the origin": {
			offers: offers{
				"root": {ws("root", "org", "org", "west", 2)}, "east": {lc("org", "root", "org", 1)}, "west": {lc("org", "root", "org", 2)},
			}, of: "org", want: "west@2",
		},
		"moved away from this shard": {
			local:  []objecttest.Object{lc("org", "root", "org", 1)},
			offers: offers{"root": {ws("root", "org", "org", "west", 2)}, "west": {lc("org", "root", "org", 2)}}, of: "org", want: "west@2",
		},
		"moved away from this shard, with an older LogicalCluster": {
			local:  []objecttest.Object{lc("org", "root", "org", 1)},
			offers: offers{"root": {ws("root", "org", "org", "west", 2)}, "west": {lc("org", "root", "org", 1)}}, of: "org",
		},
		"a loop": {
			offers: offers{"evil": {
				lc("a", "b", "a", 1), lc("b", "a", "b", 1), ws("b", "a", "a", "evil", 1), ws("a", "b", "b", "evil", 1),
			}}, of: "a",
		},
		"its own parent": {
			offers: offers{"evil": {lc("a", "a", "a", 1), ws("a", "a", "a", "evil", 1)}}, of: "a",
		},
		"two records at equal epochs": {
			offers: offers{
				"root": {ws("root", "org", "org", "east", 1), ws("root", "evil", "evil", "evil", 1)},
				"east": {lc("org", "root", "org", 1)},
				"evil": {lc("evil", "root", "evil", 1), ws("evil", "x", "org", "evil", 1), lc("org", "evil", "x", 1)},
			}, of: "org",
		},
		"two records, one of a higher epoch": {
			offers: offers{
				"root": {ws("root", "org", "org", "east", 1), ws("root", "evil", "evil", "evil", 1)},
				"east": {lc("org", "root", "org", 1)},
				"evil": {lc("evil", "root", "evil", 1), ws("evil", "x", "org", "evil", 9), lc("org", "evil", "x", 9)},
			}, of: "org",
		},
		"a claim on a cluster of this shard": {
			local: []objecttest.Object{lc("org", "root", "org", 1)},
			offers: offers{
				"root": {ws("root", "org", "org", "own", 1), ws("root", "evil", "evil", "evil", 1)},
				"evil": {lc("evil", "root", "evil", 1), ws("evil", "x", "org", "evil", 9), lc("org", "evil", "x", 9)},
			}, of: "org", want: "own@1",
		},
		"a claim on a home": {
			offers: offers{
				"root": {lc("home", "", "", 1), ws("root", "evil", "evil", "evil", 1)},
				"evil": {lc("evil", "root", "evil", 1), ws("evil", "x", "home", "evil", 9), lc("home", "evil", "x", 9)},
			}, of: "home", want: "root@1",
		},
		"a claim without a record": {
			offers: offers{"root": org, "east": {lc("org", "root", "org", 1)}, "evil": {lc("org", "root", "other", 1)}}, of: "org", want: "east@1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			objects := objecttest.New(t, test.local...)
			holders := New(objects.Set, "own")
			objects.Share(holders.Placement)
			for shard, offered := range test.offers {
				for _, obj := range offered {
					objects.Offer(shard, obj)
				}
			}
			got := ""
			if shard, epoch, known := holders.Holder(test.of); known {
				got = fmt.Sprintf("%s@%d", shard, epoch)
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestAVeryDeepTreeHasNoHolder(t *testing.T) {
	objects := objecttest.New(t)
	holders := New(objects.Set, "own")
	objects.Share(holders.Placement)
	parent := "root"
	objects.Offer("root", ws("root", "w", "c0", "evil", 1))
	for i := range 2 * maxDepth {
		cluster := fmt.Sprintf("c%d", i)
		if i > 0 {
			objects.Offer("evil", ws(parent, "w", cluster, "evil", 1))
		}
		objects.Offer("evil", lc(cluster, parent, "w", 1))
		parent = cluster
	}
	if shard, _, known := holders.Holder(logicalcluster.Name(fmt.Sprintf("c%d", maxDepth/2))); !known || shard != "evil" {
		t.Errorf("got %s, %v", shard, known)
	}
	if _, _, known := holders.Holder(logicalcluster.Name(parent)); known {
		t.Errorf("a holder is found at a depth of %d", 2*maxDepth)
	}
}

func TestObjectsCountFromTheShardThatTheRecordsNameOnly(t *testing.T) {
	objects := objecttest.New(t)
	objects.Share(New(objects.Set, "own").Placement)
	typed := func(uid string) *tenancyv1alpha1.WorkspaceType {
		return &tenancyv1alpha1.WorkspaceType{ObjectMeta: metav1.ObjectMeta{
			Name: "team", UID: types.UID(uid), Annotations: map[string]string{logicalcluster.AnnotationKey: "org"},
		}}
	}
	expect := func(want string) {
		t.Helper()
		got := ""
		if found, err := objects.Set.WorkspaceTypes.Get("org", "", "team"); err == nil {
			got = string(found.UID)
		}
		if got != want {
			t.Errorf("got the type of %q, want %q", got, want)
		}
	}
	objects.Offer("east", typed("east"))
	objects.Offer("west", typed("west"))
	objects.Offer("east", lc("org", "root", "org", 1))
	expect("")
	objects.Offer("root", ws("root", "org", "org", "east", 1))
	expect("east")
	objects.Offer("west", lc("org", "root", "org", 2))
	expect("east")
	objects.Offer("root", ws("root", "org", "org", "west", 2))
	expect("west")
	objects.Withdraw("root", ws("root", "org", "org", "west", 2))
	expect("")
}
