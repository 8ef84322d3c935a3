package rootshard

import (
	"slices"
	"strings"
	"testing"
)

// pods tells which pods there are of kcp and of etcd, and how often their processes were started.
func (n *installed) pods(t *testing.T) []string {
	t.Helper()
	lines := strings.Split(n.Kubectl(t, "get", "pods", "--selector=app.kubernetes.io/managed-by=kcp-operator", "--output=jsonpath="+
		`{range .items[*]}{.metadata.name} {.metadata.uid} {.status.containerStatuses[0].restartCount}{"\n"}{end}`), "\n")
	slices.Sort(lines)
	return lines
}

// untouched does something, and fails the test if pods were replaced or restarted by the end of it.
func (n *installed) untouched(t *testing.T, what string, by func()) {
	t.Helper()
	before := n.pods(t)
	by()
	if after := n.pods(t); !slices.Equal(before, after) {
		t.Errorf("%s replaces pods: they were\n%s\nand are\n%s", what, strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
}

// guest asks for one more access, which shows that the operator works, and returns its kubeconfig. Before it has it, something
// may happen.
func (n *installed) guest(t *testing.T, name string, meanwhile ...func()) string {
	t.Helper()
	n.Apply(t, `
apiVersion: operator.kcp.io/v1alpha1
kind: Kubeconfig
metadata: {name: `+name+`}
spec:
  target: {rootShardRef: {name: kcp}}
  username: `+name+`
  validity: 24h
  secretRef: {name: `+name+`-kubeconfig}
  certificateTemplate:
    spec: {privateKey: {algorithm: ECDSA}}
  authorization:
    clusterRoleBindings: {clusterRoles: [cluster-admin]}
`)
	for _, happens := range meanwhile {
		happens()
	}
	n.ready(t, "kubeconfig/"+name)
	return n.kubeconfig(t, name+"-kubeconfig")
}

func TestAKCPWithAnEtcdOfItsOwnStays(t *testing.T) {
	n := install(t)
	client, _ := n.made(t, "managed.yaml")
	n.undisturbed(t, client,
		disturbance{"a pod of kcp is deleted, then the other", func() {
			n.Replace(t, "kcp-kcp-0")
			n.Replace(t, "kcp-kcp-1")
		}},
		disturbance{"the operator is killed with SIGKILL", func() {
			n.untouched(t, "an operator that begins again", func() {
				n.guest(t, "after-kill", func() { n.operator.Kill(t, n.operator.pod(t)) })
			})
		}},
		disturbance{"the operator is upgraded with helm", func() {
			n.untouched(t, "another operator", func() {
				n.operator.upgrade(t, "next")
				n.guest(t, "after-upgrade")
			})
			if image := n.Kubectl(t, "get", "rootshard", "kcp", "--output=jsonpath={.status.image}"); image != "localhost/kcp:test" {
				t.Errorf("the upgrade of the operator makes %s the image of kcp", image)
			}
		}},
		disturbance{"kcp is rolled to another image", func() {
			n.Kubectl(t, "patch", "rootshard", "kcp", "--type=merge", `--patch={"spec":{"image":{"tag":"next"}}}`)
			n.observed(t)
			for _, pod := range []string{"kcp-kcp-0", "kcp-kcp-1"} {
				if image := n.Kubectl(t, "get", "pod", pod, "--output=jsonpath={.spec.containers[0].image}"); image != "localhost/kcp:next" {
					t.Errorf("%s runs %s", pod, image)
				}
			}
		}},
		disturbance{"every certificate is renewed", func() {
			n.untouched(t, "renewal", func() { n.renewAll(t) })
		}},
	)
	n.disturbed(t, client,
		disturbance{"kcp is killed with SIGKILL in a pod, then in the other", func() {
			n.Kill(t, "kcp-kcp-0")
			n.Kill(t, "kcp-kcp-1")
		}},
	)
}
