package sharded

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kcplane/kcp/test/e2e/host/hosttest"
)

// users read and write in a workspace on each shard. The etcd of the root shard has three members, and those of other shards have one, so
// that requests fail while it is replaced.
func (n *installation) users(t *testing.T, shards hosttest.Check) []hosttest.User {
	t.Helper()
	users := []hosttest.User{{Name: "root", Client: n.user(t, "root"), Check: hosttest.NoneFails}}
	for _, shard := range []string{"east", "west"} {
		users = append(users, hosttest.User{Name: shard, Client: n.user(t, shard), Check: shards})
	}
	return users
}

// disturbance is an event during which the operator is killed.
func (n *installation) disturbance(t *testing.T, name string, by func()) hosttest.Disturbance {
	return hosttest.Disturbance{Name: name, By: func() {
		t.Helper()
		var killed sync.WaitGroup
		after := time.Duration(rand.Int64N(int64(15 * time.Second)))
		killed.Go(func() {
			select {
			case <-time.After(after):
				n.Operator.Show("delete", "pods", "--selector=app.kubernetes.io/instance=kcp-operator", "--grace-period=0", "--force")
			case <-t.Context().Done():
			}
		})
		by()
		killed.Wait()
		n.Ready(t, n.parts...)
	}}
}

// pods are all pods of an installation but those of etcd, in the order in which they are deleted.
var pods = []struct {
	component string
	names     []string
}{
	{"the front proxy", []string{"public-front-proxy-0", "public-front-proxy-1"}},
	{"the root shard", []string{"kcp-kcp-0", "kcp-kcp-1"}},
	{"the shard east", []string{"east-shard-kcp-0", "east-shard-kcp-1"}},
	{"the shard west", []string{"west-shard-kcp-0", "west-shard-kcp-1"}},
	{"the cache server", []string{"cache-cache-server-0", "cache-cache-server-1"}},
	{"the etcd of the root shard", []string{"kcp-etcd-0", "kcp-etcd-1", "kcp-etcd-2"}},
	{"the etcd of the cache server", []string{"cache-etcd-0"}},
}

// losePods deletes the pods of one component after the other with make e2e-installation. Otherwise, to save time, it deletes the pods of all
// components with the same number at once.
func (n *installation) losePods(t *testing.T) {
	var rows []hosttest.Disturbance
	if whole {
		for _, c := range pods {
			rows = append(rows, n.disturbance(t, "the pods of "+c.component+" are deleted in turn", func() {
				for _, pod := range c.names {
					n.Replace(t, pod)
				}
			}))
		}
	} else {
		for ordinal := range 3 {
			rows = append(rows, n.disturbance(t, fmt.Sprintf("pod %d of each component is deleted", ordinal), func() { n.replaceAll(t, ordinal) }))
		}
	}
	rows = append(rows, n.disturbance(t, "a pod of the etcd of the root shard is deleted, and its volume", func() {
		n.Kubectl(t, "delete", "pvc", "data-kcp-etcd-1", "--wait=false")
		n.Replace(t, "kcp-etcd-1")
	}))
	hosttest.During(t, n.users(t, hosttest.NoneFails), rows...)
	// Requests wait until the new pod runs and the cluster's DNS has its address.
	hosttest.During(t, n.users(t, hosttest.NothingIsLost), n.disturbance(t, "the only etcd of the shard east is deleted", func() {
		n.Replace(t, "east-etcd-0")
	}))
	n.serves(t)
}

// replaceAll deletes the pods with a number, and waits until new ones are ready.
func (n *installation) replaceAll(t *testing.T, ordinal int) {
	t.Helper()
	var names []string
	for _, c := range pods {
		if ordinal < len(c.names) {
			names = append(names, c.names[ordinal])
		}
	}
	n.Kubectl(t, append([]string{"delete", "pod"}, names...)...)
	for _, name := range names {
		n.Runs(t, name)
	}
}

// drain moves what the shard west holds to other shards, also homes of users, and deletes it.
func (n *installation) drain(t *testing.T) {
	n.kcp(t, "root", "patch", "workspace", "west", "--type=merge", `--patch={"spec":{"location":{"selector":{"matchLabels":null}}}}`)
	homes := n.newHomes(t, "west")
	users := append(n.users(t, hosttest.NoneFails), homes.users(t, homes.there(t))...)
	hosttest.During(t, users, n.disturbance(t, "the shard west is drained and deleted", func() {
		n.Kubectl(t, "patch", "shard", "west", "--type=merge", `--patch={"spec":{"drain":true}}`)
		n.Kubectl(t, "wait", "--for=condition=Drained", "shard/west", "--timeout=5m")
		n.Kubectl(t, "delete", "shard", "west", "--timeout=3m")
		n.Kubectl(t, "wait", "--for=delete", "etcdcluster/west-etcd", "--timeout=1m")
		n.parts = slices.DeleteFunc(n.parts, func(part string) bool { return strings.Contains(part, "west") })
	}))
	n.serves(t)
	homes.serve(t)
	if left := homes.there(t); len(left) > 0 {
		t.Errorf("by their records, the shard west still holds %v", left)
	}
}

// rotate replaces the key of every authority of the installation, as docs/operations.md describes.
func (n *installation) rotate(t *testing.T) {
	const section = "Authorities of an installation with shards"
	trusting := func(authorities int) {
		t.Helper()
		n.kubeconfig = n.Trusting(t, "admin-kubeconfig", authorities)
	}
	step := func(number int, name string) {
		t.Helper()
		// The only member of an etcd and the pods that use it are replaced at the same time.
		hosttest.During(t, n.users(t, hosttest.NothingIsLost), n.disturbance(t, name, func() { n.Follow(t, section, number) }))
	}
	step(0, "every authority of the installation has a new key")
	trusting(2)
	step(1, "what the former authorities of the installation have signed is renewed")
	trusting(2)
	step(2, "the former authorities of the installation are trusted no more")
	trusting(1)
	if out := n.kcp(t, "root", "get", "shards", "--output=jsonpath={.items[*].metadata.name}"); out != "east root" {
		t.Errorf("after the rotation, the shards are %s", out)
	}
	n.serves(t)
	n.kcp(t, "root:west", "create", "configmap", fmt.Sprintf("after-%d", time.Now().Unix()))
}

// rotateServiceAccounts replaces the key of each shard that signs tokens of service accounts, as docs/operations.md describes.
func (n *installation) rotateServiceAccounts(t *testing.T) {
	const section = "The key of service accounts"
	var tenants []hosttest.Tenant
	for _, workspace := range []string{"root", "east", "west"} {
		config := n.Config(t, n.kubeconfig, "root:"+workspace)
		tenants = append(tenants, hosttest.Tenant{Name: workspace, Client: hosttest.ClientOf(t, config), Config: config})
	}
	hosttest.RotateServiceAccounts(t, tenants,
		n.disturbance(t, "the keys of service accounts of all shards are rotated", func() { n.Follow(t, section, 2) }),
		n.disturbance(t, "the former keys of service accounts are accepted no more", func() { n.Follow(t, section, 3) }))
	n.serves(t)
}
