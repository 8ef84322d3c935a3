package workspaces

import (
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/tenancy/pathindex"
	"github.com/kcplane/kcp/server/logicalcluster"
)

var home = pathindex.HomeCluster("ada")

// atHome makes a Creation one of the home of ada.
func atHome(c *Creation) {
	c.Cluster, c.Name, c.Parent = home, string(home), Parent{Cluster: logicalcluster.Homes}
}

func TestOnlyTheRootShardCreatesHomes(t *testing.T) {
	for name, tc := range map[string]struct {
		from   string
		change func(*Creation)
		want   func(error) bool
	}{
		"the root shard":               {"root", func(*Creation) {}, func(err error) bool { return err == nil }},
		"another shard":                {"a", func(*Creation) {}, apierrors.IsForbidden},
		"the home of another user":     {"root", func(c *Creation) { c.CreatedBy = &corev1alpha1.UserInfo{Username: "eve"} }, apierrors.IsBadRequest},
		"without a user":               {"root", func(c *Creation) { c.CreatedBy = nil }, apierrors.IsBadRequest},
		"under another name":           {"root", func(c *Creation) { c.Name = "other" }, apierrors.IsBadRequest},
		"a home that is no home above": {"root", func(c *Creation) { c.Parent.Cluster = "root" }, apierrors.IsBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			i := start(t)
			if _, err := i.create(t, tc.from, atHome, tc.change); !tc.want(err) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestAHomeIsAsOldAsItsWorkspace(t *testing.T) {
	i := start(t)
	i.shards["root"].Objects.Show(cluster("homes", "homes", ""))
	record := workspace("homes", string(home), "of home", "b", string(home))
	record.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Minute).Truncate(time.Second))
	record.Annotations[tenancyv1alpha1.OwnerAnnotation] = `{"username":"ada"}`
	lc, err := i.shards["root"].Scheduler.LogicalCluster(record, home)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := i.shards["root"].Create(t.Context(), "b", home, lc); err != nil {
		t.Fatal(err)
	}
	if got := i.shards["b"].stored(t, home).CreationTimestamp; !got.Equal(&record.CreationTimestamp) {
		t.Errorf("it was created at %s, its Workspace at %s", got, record.CreationTimestamp)
	}
}

func TestAHomeHasThePathOfItsUser(t *testing.T) {
	i := start(t)
	if _, err := i.create(t, "root", atHome); err != nil {
		t.Fatal(err)
	}
	lc := i.shards["b"].stored(t, home)
	if got := lc.Annotations[corev1alpha1.PathAnnotation]; got != "user:ada" {
		t.Errorf("the path is %q", got)
	}
	if got := parentOf(lc); got.Cluster != logicalcluster.Homes || len(got.Ancestors) != 0 {
		t.Errorf("its parent is %+v", got)
	}
}

func TestAWorkspaceInAHomeIsFoundByTheRecordOfTheHome(t *testing.T) {
	i := start(t)
	i.shards["root"].Store(cluster("homes", "homes", ""))
	i.shards["root"].Store(workspace("homes", string(home), "of home", "a", string(home)))
	below := func(c *Creation) {
		c.Parent = Parent{Cluster: home, Path: "user:ada", Ancestors: []logicalcluster.Name{logicalcluster.Homes}}
	}
	if _, err := i.create(t, "root", below); !apierrors.IsForbidden(err) {
		t.Errorf("a shard that does not hold the home: %v", err)
	}
	if _, err := i.create(t, "a", below); err != nil {
		t.Errorf("the shard that holds the home: %v", err)
	}
}

func TestNothingIsDeletedOnTheWordOfARestoredShard(t *testing.T) {
	i := start(t)
	if _, err := i.create(t, "a"); err != nil {
		t.Fatal(err)
	}
	i.shards["b"].quarantined = "a"
	if _, err := i.delete(t, "a", uid); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("a deletion by a restored shard: %v", err)
	}
	if lc := i.shards["b"].stored(t, team); lc.DeletionTimestamp != nil || len(i.shards["b"].graves) != 0 {
		t.Error("the cluster is deleted")
	}
	i.shards["a"].quarantined = "b"
	if lc, err := i.shards["a"].Delete(t.Context(), placed(), team); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("the word of a restored shard that the cluster does not exist: %v, %v", lc, err)
	}
}
