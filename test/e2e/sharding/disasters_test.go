package sharding

import (
	"context"
	"fmt"
	"os"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/test/e2e/kcptest"
	"github.com/kcplane/kcp/test/sharded"
)

func wantReason(err error, reason metav1.StatusReason) error {
	if got := apierrors.ReasonForError(err); got != reason {
		return fmt.Errorf("the reason of %v is %q, want %q", err, got, reason)
	}
	return nil
}

// separate starts an installation of one test, with a relay in front of each process.
func separate(t *testing.T) *sharded.Installation {
	t.Helper()
	o := sharded.Options{Shards: 1, Proxies: 1, Relays: true, Distance: distance}
	o.Users, o.ProxyUsers = sharded.TestUsers()
	return started(t, o)
}

// started starts an installation of one test.
func started(t *testing.T, o sharded.Options) *sharded.Installation {
	t.Helper()
	i, err := sharded.Start(t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := i.Stop(); err != nil {
			t.Error(err)
		}
	})
	return i
}

// on creates a workspace in root on a shard of an installation, in which Alice edits, and returns its name and its cluster at the shard.
func on(t *testing.T, i *sharded.Installation, s *sharded.Process) (string, *kcptest.Cluster) {
	t.Helper()
	return withAlice(t, i, s, "edit")
}

// withAlice creates a workspace like on, in which Alice has a role.
func withAlice(t *testing.T, i *sharded.Installation, s *sharded.Process, role string) (string, *kcptest.Cluster) {
	t.Helper()
	name, top := "ws-"+kcptest.Suffix(), i.Root().Server().Named("root")
	top.CreateWorkspace(t, kcptest.Masters, kcptest.On(s.Name, kcptest.Workspace(name, "", "")))
	cluster := s.Server().Named(top.GetWorkspace(t, name).Spec.Cluster)
	cluster.Grant(t, kcptest.Alice, role)
	return name, cluster
}

// The subtests follow each other in one installation, because starting one takes longer than each of them.
func TestDisasters(t *testing.T) {
	i := separate(t)
	root, other := i.Shards[0], i.Shards[1]
	top := root.Server().Named("root")

	t.Run("the network between two shards is cut", func(t *testing.T) {
		_, cluster := on(t, i, other)
		_, atRoot := on(t, i, root)
		here, there := begin(t, cluster, kcptest.Alice), begin(t, atRoot, kcptest.Alice)
		root.Relay.Cut()
		other.Relay.Cut()
		waiting := "ws-" + kcptest.Suffix()
		workspaces := top.Objects(t, kcptest.Workspaces)
		if _, err := workspaces.Create(kcptest.Context(t), kcptest.On(other.Name, kcptest.Workspace(waiting, "", "")), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		here.proceed()
		there.proceed()
		if phase := top.GetWorkspace(t, waiting).Status.Phase; phase != corev1alpha1.LogicalClusterPhaseScheduling {
			t.Errorf("the phase of a workspace for the other shard is %s", phase)
		}
		root.Relay.Mend()
		other.Relay.Mend()
		kcptest.WaitForStatus(t, workspaces, waiting, "Ready", "phase")
		here.undisturbed("network between two shards cut, on one")
		there.undisturbed("network between two shards cut, on the other")
	})

	t.Run("all other processes are far away", func(t *testing.T) { farAway(t, i) })

	t.Run("all restart together in any order", func(t *testing.T) {
		_, cluster := on(t, i, other)
		_, atRoot := on(t, i, root)
		here, there := begin(t, cluster, kcptest.Alice), begin(t, atRoot, kcptest.Alice)
		all := i.Processes()
		for _, p := range all {
			p.Kill()
		}
		for n := range all { // those that others need are the last ones
			if err := all[len(all)-1-n].Begin(); err != nil {
				t.Fatal(err)
			}
		}
		for _, p := range all {
			if err := p.AwaitReady(); err != nil {
				t.Fatal(err)
			}
		}
		for what, traffic := range map[string]*traffic{"another shard": here, "root": there} {
			gap, failures := traffic.finish()
			t.Logf("all restart, on %s: %d objects written, longest gap %s, %d failed requests", what, len(traffic.acknowledged), gap, len(failures))
		}
	})

	t.Run("the root shard is lost", func(t *testing.T) {
		name, cluster := on(t, i, other)
		undisturbed := begin(t, cluster, kcptest.Alice)
		object, err := top.Objects(t, shards).Get(kcptest.Context(t), sharded.Root, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		id := object.GetAnnotations()[corev1alpha1.IncarnationAnnotation]
		root.Kill()
		if err := os.RemoveAll(root.Directory); err != nil {
			t.Fatal(err)
		}
		if err := root.StartWith("--installation-id=" + id); err != nil {
			t.Fatal(err)
		}
		undisturbed.undisturbed("root shard lost")
		if err := other.Stop(); err != nil {
			t.Error(err)
		}
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		kcptest.Eventually(t, "the records are created again", func(context.Context) error {
			plugin(t, i).Try(t, "kcp", "check", "--repair", "--rebuild-root")
			if found := check(t, i); len(found) > 0 {
				return fmt.Errorf("found %+v", found)
			}
			return nil
		})
		kcptest.WaitForStatus(t, top.Objects(t, kcptest.Workspaces), name, "Ready", "phase")
		if got := top.GetWorkspace(t, name).Annotations[tenancyv1alpha1.ShardAnnotation]; got != other.Name {
			t.Errorf("the record names shard %q", got)
		}
		kcptest.Eventually(t, "the workspace is used through the front proxy", func(ctx context.Context) error {
			_, err := i.Proxies[0].Server().Named("root:"+name).Kube(t, kcptest.Alice).CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
			return err
		})
	})
}
