package rootshard

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/kcplane/kcp/test/e2e/host/hosttest"
)

// pods returns the pods of kcp and of etcd, with the number of starts of their processes.
func (n *installed) pods(t *testing.T) []string {
	t.Helper()
	lines := strings.Split(n.Kubectl(t, "get", "pods", "--selector=app.kubernetes.io/managed-by=kcp-operator", "--output=jsonpath="+
		`{range .items[*]}{.metadata.name} {.metadata.uid} {.status.containerStatuses[0].restartCount}{"\n"}{end}`), "\n")
	slices.Sort(lines)
	return lines
}

// untouched does something, and fails the test if this replaced or restarted pods.
func (n *installed) untouched(t *testing.T, what string, by func()) {
	t.Helper()
	before := n.pods(t)
	by()
	if after := n.pods(t); !slices.Equal(before, after) {
		t.Errorf("%s replaced pods: before\n%s\nafter\n%s", what, strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
}

// guest creates another Kubeconfig, which shows that the operator works, and returns the kubeconfig. It calls during before that is
// ready.
func (n *installed) guest(t *testing.T, name string, during ...func()) string {
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
	for _, f := range during {
		f()
	}
	n.Ready(t, "kubeconfig/"+name)
	return n.Kubeconfig(t, name+"-kubeconfig")
}

func (n *installed) staysAvailable(t *testing.T, client kubernetes.Interface) {
	n.Undisturbed(t, client,
		hosttest.Disturbance{Name: "a pod of kcp is deleted, then the other", By: func() {
			n.Replace(t, "kcp-kcp-0")
			n.Replace(t, "kcp-kcp-1")
		}},
		hosttest.Disturbance{Name: "the operator is killed with SIGKILL", By: func() {
			n.untouched(t, "a restarted operator", func() {
				n.guest(t, "after-kill", func() { n.Operator.Kill(t, n.Operator.Pod(t)) })
			})
		}},
		hosttest.Disturbance{Name: "the operator is upgraded with helm", By: func() {
			n.untouched(t, "another operator", func() {
				n.Operator.Upgrade(t, "next")
				n.guest(t, "after-upgrade")
			})
			if image := n.Kubectl(t, "get", "rootshard", "kcp", "--output=jsonpath={.status.image}"); image != "localhost/kcp:test" {
				t.Errorf("after the upgrade of the operator, kcp has the image %s", image)
			}
		}},
		hosttest.Disturbance{Name: "kcp is rolled to another image", By: func() {
			n.Kubectl(t, "patch", "rootshard", "kcp", "--type=merge", `--patch={"spec":{"image":{"tag":"next"}}}`)
			n.Observed(t)
			for _, pod := range []string{"kcp-kcp-0", "kcp-kcp-1"} {
				if image := n.Kubectl(t, "get", "pod", pod, "--output=jsonpath={.spec.containers[0].image}"); image != "localhost/kcp:next" {
					t.Errorf("%s runs image %s", pod, image)
				}
			}
		}},
		hosttest.Disturbance{Name: "every certificate is renewed", By: func() {
			n.untouched(t, "renewal", func() { n.renewAll(t) })
		}},
	)
	n.Disturbed(t, client,
		hosttest.Disturbance{Name: "kcp is killed with SIGKILL in a pod, then in the other", By: func() {
			n.Kill(t, "kcp-kcp-0")
			n.Kill(t, "kcp-kcp-1")
		}},
	)
}
