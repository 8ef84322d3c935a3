package sharding

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcplane/kcp/test/e2e/kcptest"
	"github.com/kcplane/kcp/test/sharded"
)

// stepped is a workspace type with an initializer and a terminator, and the permission for its controllers.
const stepped = `
apiVersion: tenancy.kcp.io/v1alpha1
kind: WorkspaceType
metadata: {name: stepped}
spec:
  extend: {with: [{name: universal, path: root}]}
  initializer: true
  terminator: true
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: controllers}
rules: [{apiGroups: [tenancy.kcp.io], resources: [workspacetypes], resourceNames: [stepped], verbs: [initialize, terminate]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: controllers}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: controllers}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: access}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:kcp:workspace:access}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]
`

// created creates a workspace in root on a shard, without waiting, and returns its logical cluster when it has one.
func created(t *testing.T, s *sharded.Process, ws *unstructured.Unstructured) (cluster string) {
	t.Helper()
	if _, err := root().Objects(t, kcptest.Workspaces).Create(kcptest.Context(t), kcptest.On(s.Name, ws), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "the workspace has a logical cluster", func(context.Context) error {
		if cluster = root().GetWorkspace(t, ws.GetName()).Spec.Cluster; cluster == "" {
			return fmt.Errorf("it has none")
		}
		return nil
	})
	return cluster
}

// step is a view of waiting logical clusters, for a controller of the type of another shard.
type step struct{ view, field string }

// finish finds a logical cluster in the view at a shard, and no other one, and removes the step of the type from it.
func (s step) finish(t *testing.T, at *sharded.Process, id, cluster string) {
	t.Helper()
	path := "/services/" + s.view + "/" + id + "/clusters/"
	all := at.Server().DynamicAt(t, kcptest.Alice, path+"*").Resource(kcptest.LogicalClusters)
	kcptest.Eventually(t, "the controller sees the workspace on "+at.Name, func(ctx context.Context) error {
		list, err := all.List(ctx, metav1.ListOptions{})
		if err == nil && (len(list.Items) != 1 || list.Items[0].GetAnnotations()["kcp.io/cluster"] != cluster) {
			err = fmt.Errorf("it sees %d workspaces", len(list.Items))
		}
		return err
	})
	stranger := at.Server().DynamicAt(t, kcptest.Bob, path+"*").Resource(kcptest.LogicalClusters)
	_, err := stranger.List(kcptest.Context(t), metav1.ListOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	one := at.Server().DynamicAt(t, kcptest.Alice, path+cluster).Resource(kcptest.LogicalClusters)
	kcptest.Eventually(t, "the controller removes its step", func(ctx context.Context) error {
		found, err := one.Get(ctx, "cluster", metav1.GetOptions{})
		if err != nil {
			return err
		}
		_, err = one.Patch(ctx, "cluster", types.MergePatchType, s.removal(found, id), metav1.PatchOptions{}, "status")
		return err
	})
}

// removal is a patch that takes a step from the logical cluster that was read, and conflicts with every change since then.
func (s step) removal(found *unstructured.Unstructured, id string) []byte {
	waiting, _, _ := unstructured.NestedStringSlice(found.Object, "status", s.field)
	var left []string
	for _, other := range waiting {
		if other != id {
			left = append(left, fmt.Sprintf("%q", other))
		}
	}
	return fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q},"status":{%q:[%s]}}`,
		found.GetResourceVersion(), s.field, strings.Join(left, ","))
}

func TestAControllerOfATypeSeesTheWorkspacesOnEachShard(t *testing.T) {
	t.Parallel()
	name, holder := workspaceOn(t, shard(t, "shard-1"))
	holder.Apply(t, stepped)
	id := holder.Name + ":stepped"
	kcptest.Eventually(t, "the type has the URLs of each shard", func(ctx context.Context) error {
		found, err := holder.Objects(t, kcptest.WorkspaceTypes).Get(ctx, "stepped", metav1.GetOptions{})
		if err != nil {
			return err
		}
		urls := fmt.Sprint(found.Object["status"])
		for _, s := range installation.Shards {
			if !strings.Contains(urls, s.InternalURL()+"/services/initializingworkspaces/"+id) {
				return fmt.Errorf("got %s", urls)
			}
		}
		return nil
	})
	for _, s := range installation.Shards {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			ws := kcptest.Workspace("stepped-"+kcptest.Suffix(), "root:"+name, "stepped")
			var cluster string
			kcptest.Eventually(t, "the type is known to the root shard", func(ctx context.Context) error {
				_, err := root().Objects(t, kcptest.Workspaces).Create(ctx, ws, metav1.CreateOptions{DryRun: []string{"All"}})
				return err
			})
			cluster = created(t, s, ws)
			step{"initializingworkspaces", "initializers"}.finish(t, s, id, cluster)
			workspaces := root().Objects(t, kcptest.Workspaces)
			kcptest.WaitForStatus(t, workspaces, ws.GetName(), "Ready", "phase")
			if err := workspaces.Delete(kcptest.Context(t), ws.GetName(), metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			step{"terminatingworkspaces", "terminators"}.finish(t, s, id, cluster)
			kcptest.WaitUntilGone(t, workspaces, ws.GetName())
		})
	}
}

// bindingType is a workspace type whose workspaces bind an export in another workspace.
const bindingType = `
apiVersion: tenancy.kcp.io/v1alpha1
kind: WorkspaceType
metadata: {name: bound}
spec:
  extend: {with: [{name: universal, path: root}]}
  defaultAPIBindings: [{path: "root:%s", export: widgets}]
`

// The type is on one shard, the export on another one, and the workspaces are on each.
func TestDefaultBindingsOfATypeOfAnotherShard(t *testing.T) {
	t.Parallel()
	exporter, provider := workspaceOn(t, shard(t, "shard-2"))
	exporting(t, provider)
	name, holder := workspaceOn(t, shard(t, "shard-1"))
	kcptest.Eventually(t, "the type binds the export", func(context.Context) error {
		_, err := holder.Objects(t, kcptest.WorkspaceTypes).Create(kcptest.Context(t),
			kcptest.Parse(t, fmt.Sprintf(bindingType, exporter)), metav1.CreateOptions{})
		return err
	})
	for _, s := range installation.Shards {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			ws := kcptest.Workspace("bound-"+kcptest.Suffix(), "root:"+name, "bound")
			kcptest.Eventually(t, "the type is known to the root shard", func(ctx context.Context) error {
				_, err := root().Objects(t, kcptest.Workspaces).Create(ctx, ws, metav1.CreateOptions{DryRun: []string{"All"}})
				return err
			})
			cluster := s.Server().Named(created(t, s, ws))
			kcptest.WaitForStatus(t, root().Objects(t, kcptest.Workspaces), ws.GetName(), "Ready", "phase")
			made := widget(t, "first", 7)
			if _, err := cluster.Objects(t, widgets).Namespace("default").Create(kcptest.Context(t), made, metav1.CreateOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// The issuer is configured in the workspace of the type, on another shard than the workspace.
func TestAnIssuerOfATypeOfAnotherShardIsTrusted(t *testing.T) {
	t.Parallel()
	issuer, err := kcptest.NewIssuer(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(issuer.Close)
	name, holder := workspaceOn(t, shard(t, "shard-1"))
	holder.Apply(t, issuer.TrustedBy("tenanted", issuer.CA()))
	token, err := issuer.Token(issuer.Claims(nil))
	if err != nil {
		t.Fatal(err)
	}
	jane := kcptest.User{Name: "jane", Token: token}
	for _, s := range installation.Shards {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			ws := kcptest.Workspace("tenanted-"+kcptest.Suffix(), "root:"+name, "tenanted")
			kcptest.Eventually(t, "the type is known to the root shard", func(ctx context.Context) error {
				_, err := root().Objects(t, kcptest.Workspaces).Create(ctx, ws, metav1.CreateOptions{DryRun: []string{"All"}})
				return err
			})
			cluster := s.Server().Named(created(t, s, ws))
			kcptest.WaitForStatus(t, root().Objects(t, kcptest.Workspaces), ws.GetName(), "Ready", "phase")
			cluster.Kubectl(t, "create", "clusterrolebinding", "developers", "--clusterrole=view", "--group=developers")
			cluster.Kubectl(t, "create", "clusterrolebinding", "access", "--clusterrole=system:kcp:workspace:access", "--group=developers")
			exporting(t, cluster)
			cluster.Kubectl(t, "create", "clusterrole", "content", "--verb=*", "--resource=apiexports.apis.kcp.io/content")
			cluster.Kubectl(t, "create", "clusterrolebinding", "content", "--clusterrole=content", "--group=developers")
			for what, at := range map[string]*kcptest.Cluster{"at the shard": cluster, "through a proxy": through(0, "root:"+ws.GetName())} {
				kcptest.Eventually(t, "a user of the issuer reads "+what, func(ctx context.Context) error {
					_, err := at.Kube(t, jane).CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
					return err
				})
			}
			view := s.Server().DynamicAt(t, jane, "/services/apiexport/"+cluster.Name+"/widgets/clusters/*").Resource(widgets)
			kcptest.Eventually(t, "a user of the issuer uses a view", func(ctx context.Context) error {
				_, err := view.List(ctx, metav1.ListOptions{})
				return err
			})
			_, other := workspaceOn(t, s)
			_, err := other.Kube(t, jane).CoreV1().ConfigMaps("default").List(kcptest.Context(t), metav1.ListOptions{})
			kcptest.WantReason(t, err, metav1.StatusReasonUnauthorized)
		})
	}
}

// The groups that the parent requires are required in workspaces below it, on each shard.
func TestRequiredGroupsApplyOnEachShard(t *testing.T) {
	t.Parallel()
	for _, s := range installation.Shards {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			name, org := workspaceOn(t, shard(t, "shard-1"))
			org.Kubectl(t, "annotate", "logicalcluster", "cluster", "authorization.kcp.io/required-groups=secret-team")
			org.CreateWorkspace(t, kcptest.Masters, kcptest.On(s.Name, kcptest.Workspace("team", "", "")))
			team := s.Server().Named(org.GetWorkspace(t, "team").Spec.Cluster)
			team.Kubectl(t, "create", "clusterrolebinding", "alice", "--clusterrole=cluster-admin", "--user=alice")
			for _, at := range []*kcptest.Cluster{team, through(0, "root:"+name+":team")} {
				_, err := at.Kube(t, kcptest.Alice).CoreV1().ConfigMaps("default").List(kcptest.Context(t), metav1.ListOptions{})
				kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
			}
		})
	}
}
