package sharding

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/test/e2e/kcptest"
	"github.com/kcplane/kcp/test/sharded"
)

const holdings = "/clusters/root/apis/core.kcp.io/v1alpha1/shards/"

// listHoldings returns what a shard holds, as a user sees it at the root shard, which may just have lost its connection to that shard.
func listHoldings(t *testing.T, user kcptest.User, shard, query string) (code int, body []byte, found corev1alpha1.ShardLogicalClusters) {
	t.Helper()
	kcptest.Eventually(t, "the root shard reads what shard "+shard+" holds", func(context.Context) error {
		code, body = root().Raw(t, user, http.MethodGet, holdings+shard+"/logicalclusters?"+query, nil, "")
		if code == http.StatusServiceUnavailable {
			return errors.New(string(body))
		}
		return nil
	})
	if code == http.StatusOK {
		if err := json.Unmarshal(body, &found); err != nil {
			t.Fatal(err)
		}
	}
	return code, body, found
}

func TestWhatAShardHoldsIsListedWithTheSelectorsOfWorkspaces(t *testing.T) {
	one := shard(t, "shard-1")
	name, org := workspaceOn(t, one)
	org.CreateWorkspace(t, kcptest.Masters, kcptest.Workspace("free", "", ""))
	wanted := map[string]corev1alpha1.ShardLogicalCluster{}
	for _, lc := range []corev1alpha1.ShardLogicalCluster{
		{Name: org.Name, Path: "root:" + name, Selector: "name=shard-1"},
		{Name: org.GetWorkspace(t, "free").Spec.Cluster, Path: "root:" + name + ":free"},
	} {
		wanted[lc.Name] = lc
	}
	seen, next := int64(0), ""
	for {
		code, body, page := listHoldings(t, kcptest.Masters, "shard-1", "limit=1&continue="+next)
		if code != http.StatusOK || len(page.Items) != 1 {
			t.Fatal(code, string(body))
		}
		seen++
		if want, ok := wanted[page.Items[0].Name]; ok {
			if page.Items[0] != want {
				t.Errorf("got %+v, want %+v", page.Items[0], want)
			}
			delete(wanted, want.Name)
		}
		if next = page.Continue; next == "" {
			if seen != page.Total || len(wanted) > 0 {
				t.Errorf("%d of %d logical clusters, without %v", seen, page.Total, wanted)
			}
			break
		}
	}
	if code, body, _ := listHoldings(t, kcptest.Masters, "absent", ""); code != http.StatusNotFound {
		t.Errorf("a shard that does not exist: %d %s", code, body)
	}
	if code, body := root().Raw(t, kcptest.Masters, http.MethodDelete, holdings+"shard-1/logicalclusters", nil, ""); code != http.StatusMethodNotAllowed {
		t.Errorf("DELETE: %d %s", code, body)
	}
}

// Users who may list what a shard holds learn names, paths and selectors, and may read nothing in a logical cluster. The operator, too, may
// not read all logical clusters of a shard at once.
func TestWhoListsWhatAShardHoldsReadsNothingInIt(t *testing.T) {
	one := shard(t, "shard-1")
	_, tenant := workspaceOn(t, one)
	tenant.Kubectl(t, "create", "configmap", "secret-plan", "--from-literal=plan=confidential")
	if code, body, _ := listHoldings(t, kcptest.Stranger, "shard-1", ""); code != http.StatusForbidden {
		t.Errorf("a user without a role: %d %s", code, body)
	}
	mover := kcptest.Victor
	roles := root().Kube(t, kcptest.Masters).RbacV1()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "mover-" + kcptest.Suffix()}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"core.kcp.io"}, Resources: []string{"shards/logicalclusters"}, Verbs: []string{"get"}},
		{NonResourceURLs: []string{"/"}, Verbs: []string{"access"}},
	}}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: mover.Name}}}
	if _, err := roles.ClusterRoles().Create(kcptest.Context(t), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := roles.ClusterRoleBindings().Create(kcptest.Context(t), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	code, body, found := listHoldings(t, mover, "shard-1", "")
	if code != http.StatusOK || !strings.Contains(string(body), tenant.Name) || strings.Contains(string(body), "secret-plan") {
		t.Errorf("got %d with %d items", code, len(found.Items))
	}
	for what, cluster := range map[string]*kcptest.Cluster{"the tenant": tenant, "all tenants": one.Server().Named("*")} {
		_, err := cluster.Kube(t, mover).CoreV1().ConfigMaps("").List(kcptest.Context(t), metav1.ListOptions{})
		if err == nil {
			t.Errorf("a user who may list what the shard holds reads ConfigMaps of %s", what)
		}
	}
	all := asOperator(t, one, "*")
	if _, err := all.CoreV1().ConfigMaps("").List(kcptest.Context(t), metav1.ListOptions{}); err == nil {
		t.Error("the operator lists the ConfigMaps of all logical clusters")
	}
	if _, err := all.CoreV1().Secrets("").List(kcptest.Context(t), metav1.ListOptions{}); err == nil {
		t.Error("the operator lists the Secrets of all logical clusters")
	}
	code = 0
	at := asOperator(t, installation.Root(), "root").CoreV1().RESTClient()
	if at.Get().AbsPath("/apis/core.kcp.io/v1alpha1/shards/shard-1/logicalclusters").Do(kcptest.Context(t)).StatusCode(&code); code != 200 {
		t.Errorf("the operator gets %d for what the shard holds", code)
	}
}

// asOperator returns a client with a certificate as the operator has it, for a logical cluster at a shard.
func asOperator(t *testing.T, at *sharded.Process, name string) kubernetes.Interface {
	t.Helper()
	certificate, err := installation.PKI.Client(kcptest.User{Name: "system:kcp-operator", Groups: []string{"system:kcp:admin"}})
	if err != nil {
		t.Fatal(err)
	}
	config := at.Server().Named(name).Config(kcptest.Anonymous)
	config = rest.CopyConfig(config)
	config.CertFile, config.KeyFile = certificate.Cert, certificate.Key
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
