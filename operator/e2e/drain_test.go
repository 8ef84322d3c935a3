package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
	"github.com/kcplane/kcp/test/e2e/kcptest"
	"github.com/kcplane/kcp/test/sharded"
)

var (
	kcpShards     = schema.GroupVersionResource{Group: "core.kcp.io", Version: "v1alpha1", Resource: "shards"}
	kcpMigrations = schema.GroupVersionResource{Group: "migration.kcp.io", Version: "v1alpha1", Resource: "logicalclustermigrations"}
)

// drained is an installation of real processes of kcp, whose objects the operator reconciles. Its pods are only objects.
type drained struct {
	*operatortest.Cluster
	kcp  *sharded.Installation
	root *kcptest.Cluster
}

func secret(name string, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: name}, Data: data}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// drainRules are all permissions in the workspace root that the operator needs to drain and to delete a Shard, as docs/operator-security.md
// lists them.
var drainRules = []rbacv1.PolicyRule{
	{APIGroups: []string{"core.kcp.io"}, Resources: []string{"shards"}, Verbs: []string{"get", "list", "patch", "delete"}},
	{APIGroups: []string{"core.kcp.io"}, Resources: []string{"shards/logicalclusters"}, Verbs: []string{"get"}},
	{APIGroups: []string{"migration.kcp.io"}, Resources: []string{"logicalclustermigrations"}, Verbs: []string{"list", "create", "delete"}},
	{NonResourceURLs: []string{"/"}, Verbs: []string{"access"}},
}

// newDrained starts a root shard and two shards, and creates their objects. The operator has a certificate of a user that has nothing but
// drainRules.
func newDrained(t *testing.T) *drained {
	t.Helper()
	options := sharded.Options{Shards: 2}
	options.Users, options.ProxyUsers = sharded.TestUsers()
	kcp, err := sharded.Start(t.TempDir(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kcp.Kill)
	d := &drained{Cluster: cluster(t, host), kcp: kcp, root: kcp.Root().Server().Named("root")}
	certificate, err := kcp.PKI.Client(kcptest.User{Name: "drainer"})
	if err != nil {
		t.Fatal(err)
	}
	d.permit(t, "drainer", drainRules)
	rs := shard("emptied")
	rs.Spec.ShardBaseURL = kcp.Root().URL
	rs.Spec.CABundleSecretRef = &v1alpha1.LocalReference{Name: "emptied-servers"}
	d.MustCreate(t, secret("emptied-servers", map[string][]byte{"tls.crt": read(t, kcp.PKI.Serving.File)}),
		secret("emptied-kcp-operator", map[string][]byte{"tls.crt": read(t, certificate.Cert), "tls.key": read(t, certificate.Key),
			"ca.crt": read(t, kcp.PKI.Clients.File)}), rs)
	for _, process := range kcp.Shards[1:] {
		sh := shardOf(process.Name, "emptied")
		sh.Spec.ShardBaseURL = process.URL
		sh.Spec.Etcd.Endpoints, sh.Spec.Etcd.Prefix = []v1alpha1.EtcdEndpoint{etcdEndpoint}, "/"+process.Name
		d.MustCreate(t, sh)
	}
	return d
}

// permit grants rules in the workspace root to a user.
func (d *drained) permit(t *testing.T, user string, rules []rbacv1.PolicyRule) {
	t.Helper()
	roles := d.root.Kube(t, kcptest.Masters).RbacV1()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: rules}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}}
	_, err := roles.ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{})
	if err == nil {
		_, err = roles.ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// drive issues certificates, and makes pods ready.
func (d *drained) drive(ctx context.Context, t *testing.T) error {
	d.Issue(t)
	sets := &appsv1.StatefulSetList{}
	if err := d.List(ctx, sets, client.InNamespace(operatortest.Namespace)); err != nil {
		return err
	}
	for i := range sets.Items {
		set := &sets.Items[i]
		if n := *set.Spec.Replicas; set.Status.ReadyReplicas != n || set.Status.ObservedGeneration != set.Generation {
			set.Status = appsv1.StatefulSetStatus{ObservedGeneration: set.Generation, Replicas: n, ReadyReplicas: n, UpdatedReplicas: n,
				AvailableReplicas: n}
			if err := d.Status().Update(ctx, set); err != nil {
				return err
			}
		}
	}
	return nil
}

// says waits until a condition of a Shard has a status, a reason and a part of a message.
func (d *drained) says(t *testing.T, name, condition string, status metav1.ConditionStatus, reason string, parts ...string) (sh *v1alpha1.Shard) {
	t.Helper()
	kcptest.Eventually(t, fmt.Sprintf("%s of %s is %s %s", condition, name, status, reason), func(ctx context.Context) error {
		if err := d.drive(ctx, t); err != nil {
			return err
		}
		sh = &v1alpha1.Shard{}
		if err := d.Get(ctx, operatortest.Key(name), sh); err != nil {
			return err
		}
		c := meta.FindStatusCondition(sh.Status.Conditions, condition)
		if c == nil || c.Status != status || c.Reason != reason {
			return fmt.Errorf("conditions: %+v", sh.Status.Conditions)
		}
		for _, part := range parts {
			if !strings.Contains(c.Message, part) {
				return fmt.Errorf("message %q without %q", c.Message, part)
			}
		}
		return nil
	})
	return sh
}

func (d *drained) setDrain(t *testing.T, name string, on bool) {
	t.Helper()
	sh := &v1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: name}}
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"drain":%t}}`, on))
	if err := d.Patch(t.Context(), sh, patch); err != nil {
		t.Fatal(err)
	}
}

// stops sets spec.drain to false, and waits until nothing is left of the drain.
func (d *drained) stops(t *testing.T, name string) {
	t.Helper()
	d.setDrain(t, name, false)
	kcptest.Eventually(t, "the drain has stopped", func(ctx context.Context) error {
		sh := operatortest.Read(t, d.Cluster, name, &v1alpha1.Shard{})
		object, err := d.root.Objects(t, kcpShards).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		_, cordoned := object.GetAnnotations()["experimental.core.kcp.io/unschedulable"]
		if c := meta.FindStatusCondition(sh.Status.Conditions, "Drained"); c != nil || sh.Status.Drain != nil || cordoned {
			return fmt.Errorf("%+v, %+v, unschedulable: %t", c, sh.Status.Drain, cordoned)
		}
		list, err := d.root.Objects(t, kcpMigrations).List(ctx, metav1.ListOptions{LabelSelector: "operator.kcp.io/drain"})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d migrations remain", len(list.Items))
		}
		return err
	})
}

// fill creates an organization that selects a shard, and workspaces in it that may be anywhere, each with a ConfigMap.
func (d *drained) fill(t *testing.T, on string, n int) (org *kcptest.Cluster, names []string) {
	t.Helper()
	org = d.root.CreateWorkspace(t, kcptest.Masters, kcptest.On(on, kcptest.Workspace("org", "", "")))
	for _, process := range d.kcp.Shards {
		if process.Name == on {
			org = process.Server().Named(d.root.GetWorkspace(t, "org").Spec.Cluster)
		}
	}
	for i := range n {
		name := fmt.Sprintf("team-%d", i)
		org.CreateWorkspace(t, kcptest.Masters, kcptest.Workspace(name, "", ""))
		names = append(names, name)
		d.at(t, org, name).Kubectl(t, "create", "configmap", "data", "--from-literal=team="+name)
	}
	return org, names
}

// at returns a workspace at the shard that holds it.
func (d *drained) at(t *testing.T, parent *kcptest.Cluster, name string) *kcptest.Cluster {
	t.Helper()
	ws := parent.GetWorkspace(t, name)
	for _, process := range d.kcp.Shards {
		if process.Name == ws.Annotations["core.kcp.io/shard"] {
			return process.Server().Named(ws.Spec.Cluster)
		}
	}
	t.Fatalf("workspace %s is on shard %q", name, ws.Annotations["core.kcp.io/shard"])
	return nil
}

// An operator that is killed while logical clusters move continues. What selects the shard stays until its selector is changed, or another
// shard matches. Then the shard is deleted without the annotation that loses data.
func TestADrainedShardMovesItsLogicalClustersAndIsDeleted(t *testing.T) {
	d := newDrained(t)
	g := newGate(t)
	first := g.start(t)
	for _, name := range []string{"shard-1", "shard-2"} {
		d.says(t, name, "Registered", metav1.ConditionTrue, "AsExpected")
	}
	org, names := d.fill(t, "shard-1", 5)
	d.setDrain(t, "shard-1", true)
	kcptest.Eventually(t, "the first moves begin", func(ctx context.Context) error {
		list, err := d.root.Objects(t, kcpMigrations).List(ctx, metav1.ListOptions{LabelSelector: "operator.kcp.io/drain=shard-1"})
		if err != nil || len(list.Items) > 0 {
			return err
		}
		sh := operatortest.Read(t, d.Cluster, "shard-1", &v1alpha1.Shard{})
		return fmt.Errorf("there is no migration: %+v", meta.FindStatusCondition(sh.Status.Conditions, "Drained"))
	})
	if err := first.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	g.start(t)
	sh := d.says(t, "shard-1", "Drained", metav1.ConditionFalse, "NoDestination", "1 of 6 logical clusters remain", "spec.location.selector",
		"root:org", "name=shard-1")
	if got := sh.Status.Drain; got.Total != 6 || got.Remaining != 1 || got.Failed != 1 || got.Moving != 0 || got.Failures[0].Workspace != "root:org" {
		t.Errorf("progress: %+v", got)
	}
	for _, name := range names {
		if shard := org.GetWorkspace(t, name).Annotations["core.kcp.io/shard"]; shard == "shard-1" {
			t.Errorf("workspace %s is on %s", name, shard)
		}
		if got := d.at(t, org, name).Kubectl(t, "get", "configmap", "data", "--output=jsonpath={.data.team}"); got != name {
			t.Errorf("workspace %s has the data %q", name, got)
		}
	}
	d.stops(t, "shard-1")
	d.setDrain(t, "shard-1", true)
	sh = d.says(t, "shard-1", "Drained", metav1.ConditionFalse, "NoDestination", "1 of 1 logical clusters remain")
	if err := d.Delete(t.Context(), sh); err != nil {
		t.Fatal(err)
	}
	d.says(t, "shard-1", "Stalled", metav1.ConditionTrue, "HoldsLogicalClusters")
	label := []byte(`{"metadata":{"labels":{"name":"shard-1"}}}`) // as if the other shard replaced it
	if _, err := d.root.Objects(t, kcpShards).Patch(t.Context(), "shard-2", "application/merge-patch+json", label, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "the last logical cluster moves", func(ctx context.Context) error {
		if shard := d.root.GetWorkspace(t, "org").Annotations["core.kcp.io/shard"]; shard != "shard-2" {
			return fmt.Errorf("it is on %s", shard)
		}
		return nil
	})
	kcptest.Eventually(t, "the empty shard is deleted", func(ctx context.Context) error {
		if err := d.drive(ctx, t); err != nil { // its pods end before
			return err
		}
		return kcptest.Gone(d.Get(ctx, operatortest.Key("shard-1"), &v1alpha1.Shard{}))
	})
	if _, err := d.root.Objects(t, kcpShards).Get(t.Context(), "shard-1", metav1.GetOptions{}); kcptest.Gone(err) != nil {
		t.Errorf("kcp still has the shard: %v", err)
	}
}
