package sharding

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	clientcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/test/e2e/kcptest"
	"github.com/kcplane/kcp/test/sharded"
)

// actingAs returns a configuration of the administrator of a shard who acts as a user.
func actingAs(cluster *kcptest.Cluster, user string) *rest.Config {
	config := rest.CopyConfig(cluster.Config(kcptest.Masters))
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	return config
}

// homeOf gets the home of the user of a configuration for root.
func homeOf(ctx context.Context, config *rest.Config) (*tenancyv1alpha1.Workspace, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	object, err := client.Resource(kcptest.Workspaces).Get(ctx, "~", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	home := &tenancyv1alpha1.Workspace{}
	return home, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, home)
}

// holderOf returns the shard that holds the home of a user, by its record.
func holderOf(t *testing.T, home *tenancyv1alpha1.Workspace) *sharded.Process {
	t.Helper()
	record := installation.Root().Server().Named("homes").GetWorkspace(t, home.Spec.Cluster)
	return shard(t, record.Annotations[tenancyv1alpha1.ShardAnnotation])
}

// newHome creates the home of a new user on a shard that is not the root shard.
func newHome(t *testing.T) (user string, home *tenancyv1alpha1.Workspace, holder *sharded.Process) {
	t.Helper()
	kcptest.Eventually(t, "a home is created on a shard that is not the root shard", func(ctx context.Context) error {
		user = "user-" + kcptest.Suffix()
		var err error
		if home, err = homeOf(ctx, actingAs(root(), user)); err != nil {
			return err
		}
		if holder = holderOf(t, home); holder == installation.Root() {
			return fmt.Errorf("the home of %s is on the root shard", user)
		}
		return nil
	})
	return user, home, holder
}

func TestHomesAreOnAllShards(t *testing.T) {
	t.Parallel()
	user, home, holder := newHome(t)
	if want := installation.URL() + "/clusters/user:" + user; home.Spec.URL != want {
		t.Errorf("the URL of the home is %s, want %s", home.Spec.URL, want)
	}
	client, err := kubernetes.NewForConfig(actingAs(holder.Server().Named("user:"+user), user))
	if err != nil {
		t.Fatal(err)
	}
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}}
	kcptest.Eventually(t, "the user works at home", func(ctx context.Context) error {
		_, err := client.CoreV1().ConfigMaps("default").Create(ctx, settings, metav1.CreateOptions{})
		return err
	})
	for _, s := range installation.Shards {
		found, err := homeOf(kcptest.Context(t), actingAs(s.Server().Named("root"), user))
		if err != nil || found.Spec.Cluster != home.Spec.Cluster {
			t.Errorf("shard %s: the home is %v, %v", s.Name, found, err)
		}
	}
}

func TestUsersReachTheirHomesThroughEveryProxy(t *testing.T) {
	t.Parallel()
	for n := range installation.Proxies {
		home, err := homeOf(kcptest.Context(t), through(n, "root").Config(kcptest.Alice))
		if err != nil {
			t.Fatal(err)
		}
		objects := through(n, "user:alice").Kube(t, kcptest.Alice).CoreV1().ConfigMaps("default")
		settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("settings-%d", n)}}
		if _, err := objects.Create(kcptest.Context(t), settings, metav1.CreateOptions{}); err != nil {
			t.Errorf("using the home in %s through proxy %d: %v", home.Spec.Cluster, n, err)
		}
		_, err = through(n, "user:alice").Kube(t, kcptest.Bob).CoreV1().ConfigMaps("default").List(kcptest.Context(t), metav1.ListOptions{})
		kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	}
}

func TestConcurrentFirstRequestsGiveOneHome(t *testing.T) {
	t.Parallel()
	user := "user-" + kcptest.Suffix()
	var all sync.WaitGroup
	for range 4 {
		for _, s := range installation.Shards {
			all.Go(func() {
				kcptest.Eventually(t, "the home is ready", func(ctx context.Context) error {
					_, err := homeOf(ctx, actingAs(s.Server().Named("root"), user))
					return err
				})
			})
		}
	}
	all.Wait()
	home, err := homeOf(kcptest.Context(t), actingAs(root(), user))
	if err != nil {
		t.Fatal(err)
	}
	var holders []string
	for _, s := range installation.Shards {
		if _, err := s.Server().Named(home.Spec.Cluster).Objects(t, kcptest.LogicalClusters).Get(kcptest.Context(t), "cluster",
			metav1.GetOptions{}); err == nil {
			holders = append(holders, s.Name)
		}
	}
	if len(holders) != 1 {
		t.Errorf("the home is on the shards %v, want one", holders)
	}
}

func TestAHomeIsCreatedAgainAfterItsDeletion(t *testing.T) {
	t.Parallel()
	user, home, _ := newHome(t)
	records := installation.Root().Server().Named("homes").Objects(t, kcptest.Workspaces)
	former, err := records.Get(kcptest.Context(t), home.Spec.Cluster, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := records.Delete(kcptest.Context(t), home.Spec.Cluster, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.WaitUntilGone(t, records, home.Spec.Cluster)
	kcptest.Eventually(t, "the home exists again", func(ctx context.Context) error {
		_, err := homeOf(ctx, actingAs(root(), user))
		return err
	})
	record, err := records.Get(kcptest.Context(t), home.Spec.Cluster, metav1.GetOptions{})
	if err != nil || record.GetUID() == former.GetUID() {
		t.Errorf("the record of the home is %v, %v", record, err)
	}
}

func TestAHomeMovesAndIsCreatedAgainWhereItWas(t *testing.T) {
	t.Parallel()
	user, home, holder := newHome(t)
	other := installation.Shards[slices.IndexFunc(installation.Shards, func(s *sharded.Process) bool {
		return s != holder && s != installation.Root()
	})]
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}}
	atHome := func(on *sharded.Process) clientcorev1.ConfigMapInterface {
		t.Helper()
		client, err := kubernetes.NewForConfig(actingAs(on.Server().Named("user:"+user), user))
		if err != nil {
			t.Fatal(err)
		}
		return client.CoreV1().ConfigMaps("default")
	}
	kcptest.Eventually(t, "the user works at home", func(ctx context.Context) error {
		_, err := atHome(holder).Create(ctx, settings, metav1.CreateOptions{})
		return err
	})

	ended(t, move(t, home.Spec.Cluster, other.Name), "Completed")
	if now := holderOf(t, home); now != other {
		t.Errorf("the home is on shard %s, want %s", now.Name, other.Name)
	}
	if _, err := atHome(other).Get(kcptest.Context(t), "settings", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	for _, s := range installation.Shards {
		found, err := homeOf(kcptest.Context(t), actingAs(s.Server().Named("root"), user))
		if err != nil || found.Spec.Cluster != home.Spec.Cluster || found.CreationTimestamp != home.CreationTimestamp {
			t.Errorf("shard %s: the home is %v, %v", s.Name, found, err)
		}
	}

	records := installation.Root().Server().Named("homes").Objects(t, kcptest.Workspaces)
	for again := other; again != holder; again = holderOf(t, home) { // the root shard chooses at random
		if err := records.Delete(kcptest.Context(t), home.Spec.Cluster, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		kcptest.WaitUntilGone(t, records, home.Spec.Cluster)
		kcptest.Eventually(t, "the home exists again", func(ctx context.Context) error {
			_, err := homeOf(ctx, actingAs(root(), user))
			return err
		})
	}
	kcptest.Eventually(t, "the user works in the new home", func(ctx context.Context) error {
		_, err := atHome(holder).Create(ctx, settings, metav1.CreateOptions{}) // which the former home had, too
		return err
	})
}

func TestHomesAreServedWithoutTheRootShard(t *testing.T) {
	user, home, holder := newHome(t)
	stop(t, installation.Root())
	found, err := homeOf(kcptest.Context(t), actingAs(holder.Server().Named("root"), user))
	if err != nil || found.Spec.Cluster != home.Spec.Cluster {
		t.Errorf("the existing home is %v, %v", found, err)
	}
	certificate, err := installation.PKI.Client(kcptest.User{Name: user})
	if err != nil {
		t.Fatal(err)
	}
	for n := range installation.Proxies {
		config := through(n, "root").Config(kcptest.Anonymous)
		config.CertFile, config.KeyFile = certificate.Cert, certificate.Key
		if found, err := homeOf(kcptest.Context(t), config); err != nil || found.Spec.Cluster != home.Spec.Cluster {
			t.Errorf("the existing home through front proxy %d is %v, %v", n+1, found, err)
		}
	}
	_, err = homeOf(kcptest.Context(t), actingAs(holder.Server().Named("root"), "user-"+kcptest.Suffix()))
	kcptest.WantReason(t, err, metav1.StatusReasonServiceUnavailable)
}
