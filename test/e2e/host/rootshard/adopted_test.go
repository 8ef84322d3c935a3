package rootshard

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/kcplane/kcp/test/e2e/kcptest"

	"github.com/kcplane/kcp/test/e2e/host/hosttest"
)

// stateless returns a namespace with a kcp of two pods and an external etcd, and a client.
func stateless(t *testing.T) (*installed, kubernetes.Interface) {
	t.Helper()
	etcd := hosttest.Build(t.Context(), t, hosttest.Root+"test/bench/etcd")
	host.Load(t, "localhost/etcd:test", "/etcd", etcd+"=/etcd")
	n := namespace(t)
	n.RemoveAfter(t)
	n.Manifest(t, "etcd.yaml")
	n.Manifest(t, "kcp.yaml")
	n.Kubectl(t, "patch", "rootshard", "kcp", "--type=merge", `--patch={"spec":{"replicas":2,"deploymentTemplate":{"spec":{"template":{"spec":{
		"terminationGracePeriodSeconds":30,
		"tolerations":[{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":5}]}}}}}}`)
	client, _ := n.used(t)
	return n, client
}

func (n *installed) scale(t *testing.T, pods int) {
	t.Helper()
	n.Kubectl(t, "patch", "rootshard", "kcp", "--type=merge", fmt.Sprintf(`--patch={"spec":{"replicas":%d}}`, pods))
}

func (n *installed) podsOutliveStatefulSet(t *testing.T, client kubernetes.Interface) {
	deleted := func(cascade string) hosttest.Disturbance {
		return hosttest.Disturbance{Name: "the StatefulSet of kcp is deleted with --cascade=" + cascade, By: func() {
			n.untouched(t, "a StatefulSet that is deleted", func() {
				n.Kubectl(t, "delete", "statefulset", "kcp-kcp", "--cascade="+cascade)
				n.adopted(t)
			})
		}}
	}
	n.Undisturbed(t, client, deleted("background"), deleted("foreground"), deleted("orphan"),
		hosttest.Disturbance{Name: "kcp is scaled from 2 pods to 3, and to 1", By: func() {
			n.scale(t, 3)
			n.Observed(t)
			n.scale(t, 1)
			n.Observed(t)
			n.Kubectl(t, "wait", "--for=delete", "pod/kcp-kcp-1", "pod/kcp-kcp-2", "--timeout=2m")
		}})
}

// adopted waits until a StatefulSet owns all pods of the former one.
func (n *installed) adopted(t *testing.T) {
	t.Helper()
	n.Kubectl(t, "wait", "--for=create", "statefulset/kcp-kcp", "--timeout=1m")
	kcptest.Eventually(t, "the pods are adopted", func(context.Context) error {
		set := n.Kubectl(t, "get", "statefulset", "kcp-kcp", "--ignore-not-found", "--output=jsonpath={.metadata.uid}")
		owners := n.Kubectl(t, "get", "pods", "--selector=app.kubernetes.io/instance=kcp,app.kubernetes.io/component=rootshard",
			`--output=jsonpath={range .items[*]}{.metadata.ownerReferences[?(@.kind=="StatefulSet")].uid}{"\n"}{end}`)
		if set == "" || owners != set+"\n"+set {
			return fmt.Errorf("got StatefulSet %q, owners %q", set, owners)
		}
		return nil
	})
	n.Ready(t, "rootshard/kcp")
}
