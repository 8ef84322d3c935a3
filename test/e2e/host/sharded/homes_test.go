package sharded

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kcplane/kcp/test/e2e/host/hosttest"
)

const (
	// userOfProxy is the Kubeconfig of a user without any role.
	userOfProxy = `
apiVersion: operator.kcp.io/v1alpha1
kind: Kubeconfig
metadata: {name: NAME}
spec:
  target: {frontProxyRef: {name: public}}
  username: NAME
  validity: 24h
  secretRef: {name: NAME-kubeconfig}
  certificateTemplate: {spec: {privateKey: {algorithm: ECDSA}}}
`
	// recorder is the Kubeconfig of an administrator of the records of homes, which are at the root shard.
	recorder = `
apiVersion: operator.kcp.io/v1alpha1
kind: Kubeconfig
metadata: {name: homes}
spec:
  target: {rootShardRef: {name: kcp}}
  targetWorkspace: homes
  username: homes
  validity: 24h
  secretRef: {name: homes-kubeconfig}
  certificateTemplate: {spec: {privateKey: {algorithm: ECDSA}}}
  authorization: {clusterRoleBindings: {clusterRoles: [cluster-admin]}}
`
)

// home is the home of a user.
type home struct{ user, kubeconfig, cluster string }

// homes are homes of users, and records of which shards hold them.
type homes struct {
	*installation
	kubeconfig string // of an administrator of the records
	shard      string // that at least one was created on, as records name it
	all        []home
}

// newHomes creates homes by the first requests of their users: at least three, and as many as it takes until the shard of a workspace in
// root holds one of them. Each has a ConfigMap.
func (n *installation) newHomes(t *testing.T, workspace string) *homes {
	t.Helper()
	n.Apply(t, recorder)
	n.Ready(t, "kubeconfig.operator.kcp.io/homes")
	h := &homes{installation: n, kubeconfig: n.Kubeconfig(t, "homes-kubeconfig"), shard: n.holder(t, workspace)}
	for len(h.all) < 3 || len(h.there(t)) == 0 {
		if len(h.all) == 20 {
			t.Fatalf("none of %d homes is on shard %s", len(h.all), h.shard)
		}
		user := fmt.Sprint("user-", len(h.all))
		n.Apply(t, strings.ReplaceAll(userOfProxy, "NAME", user))
		n.Ready(t, "kubeconfig.operator.kcp.io/"+user)
		created := home{user: user, kubeconfig: n.Kubeconfig(t, user+"-kubeconfig")}
		created.cluster = n.cluster(t, created)
		n.as(t, created.kubeconfig, "user:"+user, "create", "configmap", "settings", "--from-literal=user="+user)
		h.all = append(h.all, created)
	}
	return h
}

// cluster returns the logical cluster of a home, which its user requests.
func (n *installation) cluster(t *testing.T, of home) string {
	t.Helper()
	return n.as(t, of.kubeconfig, "root", "get", "workspaces", "~", "--output=jsonpath={.spec.cluster}")
}

// there returns the homes that are recorded on the shard.
func (h *homes) there(t *testing.T) []home {
	t.Helper()
	records := strings.Fields(host.OnNode(t, h.kubeconfig, "get", "workspaces",
		`--output=go-template={{range .items}}{{index .metadata.annotations "internal.tenancy.kcp.io/shard"}}/{{.metadata.name}} {{end}}`))
	return slices.DeleteFunc(slices.Clone(h.all), func(one home) bool { return !slices.Contains(records, h.shard+"/"+one.cluster) })
}

// users read and write in homes.
func (h *homes) users(t *testing.T, of []home) []hosttest.User {
	t.Helper()
	var users []hosttest.User
	for _, one := range of {
		users = append(users, hosttest.User{Name: "home of " + one.user, Client: h.Client(t, one.kubeconfig, "user:"+one.user),
			Check: hosttest.NoneFails})
	}
	return users
}

// serve checks that all users find their homes, with their objects, and work in them.
func (h *homes) serve(t *testing.T) {
	t.Helper()
	for _, one := range h.all {
		if cluster := h.cluster(t, one); cluster != one.cluster {
			t.Errorf("the home of %s is %s, want %s", one.user, cluster, one.cluster)
		}
		at := "user:" + one.user
		if got := h.as(t, one.kubeconfig, at, "get", "configmap", "settings", "--output=jsonpath={.data.user}"); got != one.user {
			t.Errorf("in the home of %s, the object has %q", one.user, got)
		}
		h.as(t, one.kubeconfig, at, "create", "configmap", "more")
	}
}
