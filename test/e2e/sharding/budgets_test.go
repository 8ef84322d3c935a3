package sharding

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kcplane/kcp/test/e2e/kcptest"
	"github.com/kcplane/kcp/test/sharded"
)

// The shard that holds a logical cluster limits what its users have open, through whichever front proxies they come.
func TestATenantHasOneBudgetAtAllProxies(t *testing.T) {
	limited := sharded.Options{Proxies: 2, ShardFlags: []string{"--logical-cluster-max-watches=3"}}
	limited.Users, limited.ProxyUsers = sharded.TestUsers()
	own, err := sharded.Start(t.TempDir(), limited)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(own.Kill)
	ours, theirs := organizationOf(t, own, kcptest.Alice), organizationOf(t, own, kcptest.Bob)
	ctx, end := context.WithCancel(kcptest.Context(t))
	defer end()
	for n := range 3 {
		if _, err := watchAt(ctx, t, own.Proxies[n%2].Server().Named(ours), kcptest.Alice); err != nil {
			t.Fatalf("watch %d: %v", n, err)
		}
	}
	for _, proxy := range own.Proxies {
		if _, err := watchAt(ctx, t, proxy.Server().Named(ours), kcptest.Alice); !apierrors.IsTooManyRequests(err) {
			t.Errorf("another watch through %s: got %v, want 429", proxy.Name, err)
		}
		if _, err := watchAt(ctx, t, proxy.Server().Named(theirs), kcptest.Bob); err != nil {
			t.Errorf("a watch of another tenant through %s: %v", proxy.Name, err)
		}
	}
}

// organizationOf creates a workspace in which a user has all permissions, and returns its path.
func organizationOf(t *testing.T, i *sharded.Installation, user kcptest.User) string {
	t.Helper()
	name := "org-" + kcptest.Suffix()
	org := i.Root().Server().Named("root").CreateWorkspace(t, kcptest.Masters, kcptest.Workspace(name, "", ""))
	org.Grant(t, user, "cluster-admin")
	return org.Name
}

// watchAt opens a watch, without a retry after 429.
func watchAt(ctx context.Context, t *testing.T, c *kcptest.Cluster, user kcptest.User) (watch.Interface, error) {
	t.Helper()
	return c.Kube(t, user).CoreV1().RESTClient().Get().Namespace("default").Resource("configmaps").
		VersionedParams(&metav1.ListOptions{Watch: true}, scheme.ParameterCodec).MaxRetries(0).Watch(ctx)
}
