package rootshard

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// lost is a node that has answered once, and does not any more.
const lost = `
apiVersion: v1
kind: Node
metadata: {name: lost}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: lost, namespace: kube-node-lease}
spec: {holderIdentity: lost, leaseDurationSeconds: 40, renewTime: NOW}
`

// stateless returns a namespace with a kcp of two pods and an etcd that exists, and a client of it.
func stateless(t *testing.T) (*installed, kubernetes.Interface) {
	t.Helper()
	n := namespace(t)
	n.RemoveAfter(t)
	n.manifest(t, "etcd.yaml")
	n.manifest(t, "kcp.yaml")
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

func TestPodsOutliveTheirStatefulSet(t *testing.T) {
	n, client := stateless(t)
	deleted := func(cascade string) disturbance {
		return disturbance{"the StatefulSet of kcp is deleted with --cascade=" + cascade, func() {
			n.untouched(t, "a StatefulSet that is deleted", func() {
				n.Kubectl(t, "delete", "statefulset", "kcp-kcp", "--cascade="+cascade)
				n.adopted(t)
			})
		}}
	}
	n.undisturbed(t, client, deleted("background"), deleted("foreground"), deleted("orphan"),
		disturbance{"kcp is scaled from 2 pods to 3, and to 1", func() {
			n.scale(t, 3)
			n.observed(t)
			n.scale(t, 1)
			n.observed(t)
			n.Kubectl(t, "wait", "--for=delete", "pod/kcp-kcp-1", "pod/kcp-kcp-2", "--timeout=2m")
		}})
}

// It takes six minutes: make e2e-nodes runs it.
func TestPodsOfALostNodeAreReplaced(t *testing.T) {
	if os.Getenv("KCP_NODES") != "all" {
		t.Skip("KCP_NODES is not all")
	}
	const pod = "kcp-kcp-2"
	n, client := stateless(t)
	node := n.Kubectl(t, "get", "nodes", "--output=jsonpath={.items[0].metadata.name}")
	now := time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")
	kcptest.CommandAt(t, "kubectl", host.Kubeconfig).Input(strings.ReplaceAll(lost, "NOW", now)).Run(t, "apply", "--filename=-")
	defer func() {
		n.Kubectl(t, "uncordon", node)
		n.Kubectl(t, "delete", "--ignore-not-found", "node/lost")
		n.Kubectl(t, "--namespace=kube-node-lease", "delete", "--ignore-not-found", "lease/lost")
	}()
	n.Kubectl(t, "patch", "node", "lost", "--subresource=status", "--type=merge", `--patch={"status":{
		"capacity":{"cpu":"4","memory":"8Gi","pods":"10"},"allocatable":{"cpu":"4","memory":"8Gi","pods":"10"},
		"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady","lastHeartbeatTime":"`+now[:19]+`Z"}]}}`)
	n.Kubectl(t, "cordon", node)
	n.undisturbed(t, client, disturbance{"the node of a pod is lost", func() {
		n.scale(t, 3)
		n.Kubectl(t, "wait", "--for=jsonpath={.spec.nodeName}=lost", "pod/"+pod, "--timeout=40s")
		begun, uid := time.Now(), n.Kubectl(t, "get", "pod", pod, "--output=jsonpath={.metadata.uid}")
		n.Kubectl(t, "uncordon", node)
		if err := wait.PollUntilContextTimeout(t.Context(), time.Second, 6*time.Minute, true, func(context.Context) (bool, error) {
			return n.Kubectl(t, "get", "pod", pod, "--ignore-not-found", "--output=jsonpath={.metadata.uid}") != uid, nil
		}); err != nil {
			t.Fatalf("the pod on the lost node is not deleted: %v", err)
		}
		t.Logf("the pod is deleted %.0f s after its node was heard of last", time.Since(begun).Seconds())
		n.observed(t)
		if at := n.Kubectl(t, "get", "pod", pod, "--output=jsonpath={.spec.nodeName}"); at != node {
			t.Errorf("the pod is on node %s", at)
		}
	}})
	if events := n.Kubectl(t, "events", "--for=rootshard/kcp"); !strings.Contains(events, "NodeLost") {
		t.Errorf("no event tells of the node:\n%s", events)
	}
}

// adopted waits until a StatefulSet has all pods of the one before.
func (n *installed) adopted(t *testing.T) {
	t.Helper()
	n.Kubectl(t, "wait", "--for=create", "statefulset/kcp-kcp", "--timeout=1m")
	kcptest.Eventually(t, "the pods are adopted", func(context.Context) error {
		set := n.Kubectl(t, "get", "statefulset", "kcp-kcp", "--ignore-not-found", "--output=jsonpath={.metadata.uid}")
		owners := n.Kubectl(t, "get", "pods", "--selector=app.kubernetes.io/instance=kcp,app.kubernetes.io/component=rootshard",
			`--output=jsonpath={range .items[*]}{.metadata.ownerReferences[?(@.kind=="StatefulSet")].uid}{"\n"}{end}`)
		if set == "" || owners != set+"\n"+set {
			return fmt.Errorf("the StatefulSet is %q, the owners are %q", set, owners)
		}
		return nil
	})
	n.ready(t, "rootshard/kcp")
}
