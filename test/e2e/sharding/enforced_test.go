package sharding

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// limitation lets users of bound APIs create and read.
const limitation = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: limit}
rules: [{apiGroups: [example.org], resources: [widgets], verbs: [create, get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: limit}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: limit}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "apis.kcp.io:binding:system:authenticated"}]
`

// limited makes a cluster the consumer of an export of a cluster on another shard, which permits less than the consumer. It returns a client
// of a user with all permissions in the consumer.
func limited(t *testing.T, path string, provider, consumer *kcptest.Cluster) dynamic.ResourceInterface {
	t.Helper()
	exporting(t, provider)
	policy := []byte(`{"spec":{"maximalPermissionPolicy":{"local":{}}}}`)
	exports := provider.Objects(t, kcptest.APIExports)
	if _, err := exports.Patch(kcptest.Context(t), "widgets", types.MergePatchType, policy, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	provider.Apply(t, limitation)
	consumer.Bind(t, kcptest.At("", nil).Named(path), "widgets")
	consumer.Grant(t, kcptest.Alice, "cluster-admin")
	objects := consumer.Dynamic(t, kcptest.Alice).Resource(widgets).Namespace("default")
	kcptest.Eventually(t, "the roles of the provider have arrived", func(ctx context.Context) error {
		_, err := objects.Create(ctx, widget(t, "first", 7), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
	return objects
}

// wantLimited fails the test unless schema, roles and maximal permission policy of the provider apply.
func wantLimited(t *testing.T, when string, objects dynamic.ResourceInterface, consumer *kcptest.Cluster) {
	t.Helper()
	ctx := kcptest.Context(t)
	if _, err := objects.Create(ctx, widget(t, "more-"+kcptest.Suffix(), 7), metav1.CreateOptions{}); err != nil {
		t.Errorf("%s: creating a widget: %v", when, err)
	}
	if _, err := objects.Create(ctx, widget(t, "invalid", 101), metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("%s: creating an invalid widget: got %v, want Invalid", when, err)
	}
	if err := objects.Delete(ctx, "first", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("%s: deleting, which the provider does not permit: got %v, want Forbidden", when, err)
	}
	stranger := consumer.Dynamic(t, kcptest.Bob).Resource(widgets).Namespace("default")
	if _, err := stranger.List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("%s: listing without a role in the consumer: got %v, want Forbidden", when, err)
	}
}

func TestProvidersOfOtherShardsAreEnforcedWithoutCacheServerAndRoot(t *testing.T) {
	one := shard(t, "shard-1")
	name, provider := workspaceOn(t, shard(t, "shard-2"))
	_, consumer := workspaceOn(t, one)
	objects := limited(t, "root:"+name, provider, consumer)
	wantLimited(t, "before", objects, consumer)
	undisturbed := tenantThrough(t, 0, one)

	startCache := stop(t, installation.Cache)
	wantLimited(t, "cache server down", objects, consumer)
	undisturbed.proceed()
	startRoot := stop(t, installation.Root())
	wantLimited(t, "cache server and root shard down", objects, consumer)
	undisturbed.proceed()
	undisturbed.undisturbed("cache server and root shard down")
	stop(t, one)()
	wantLimited(t, "shard restarted while cache server and root shard are down", objects, consumer)
	startCache()
	startRoot()
}

func TestResourcesOfADeletedExportAreServed(t *testing.T) {
	one := shard(t, "shard-1")
	for what, remove := range map[string]func(t *testing.T, name string, provider *kcptest.Cluster){
		"the export": func(t *testing.T, _ string, provider *kcptest.Cluster) {
			if err := provider.Objects(t, kcptest.APIExports).Delete(kcptest.Context(t), "widgets", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		},
		"the workspace of the provider": func(t *testing.T, name string, _ *kcptest.Cluster) {
			if err := root().Objects(t, kcptest.Workspaces).Delete(kcptest.Context(t), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			kcptest.WaitUntilGone(t, root().Objects(t, kcptest.Workspaces), name)
		},
	} {
		t.Run(what, func(t *testing.T) {
			name, provider := workspaceOn(t, shard(t, "shard-2"))
			_, consumer := workspaceOn(t, one)
			objects := limited(t, "root:"+name, provider, consumer)
			wantLimited(t, "before", objects, consumer)
			remove(t, name, provider)
			kcptest.Eventually(t, "nothing limits the consumer any more, as on one shard", func(ctx context.Context) error {
				return client.IgnoreNotFound(objects.Delete(ctx, "first", metav1.DeleteOptions{}))
			})
			startRoot, startTwo := stop(t, installation.Root()), stop(t, shard(t, "shard-2"))
			startCache := stop(t, installation.Cache)
			stop(t, one)()
			kcptest.Eventually(t, "the shard knows that after a restart", func(ctx context.Context) error {
				_, err := objects.Create(ctx, widget(t, "second", 7), metav1.CreateOptions{})
				return err
			})
			if _, err := objects.Create(kcptest.Context(t), widget(t, "invalid", 101), metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
				t.Errorf("creating an invalid widget: got %v, want Invalid", err)
			}
			startCache()
			startRoot()
			startTwo()
		})
	}
}
