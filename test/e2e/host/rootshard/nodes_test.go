//go:build nodes

package rootshard

import (
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kcplane/kcp/test/e2e/host/hosttest"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// lost is a node that has stopped responding.
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

// This takes six minutes: make e2e-nodes runs it.
func TestPodsOfLostNodeAreReplaced(t *testing.T) {
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
	n.Undisturbed(t, client, hosttest.Disturbance{Name: "the node of a pod is lost", By: func() {
		n.scale(t, 3)
		n.Kubectl(t, "wait", "--for=jsonpath={.spec.nodeName}=lost", "pod/"+pod, "--timeout=40s")
		begun, uid := time.Now(), n.Kubectl(t, "get", "pod", pod, "--output=jsonpath={.metadata.uid}")
		n.Kubectl(t, "uncordon", node)
		if err := wait.PollUntilContextTimeout(t.Context(), time.Second, 6*time.Minute, true, func(context.Context) (bool, error) {
			return n.Kubectl(t, "get", "pod", pod, "--ignore-not-found", "--output=jsonpath={.metadata.uid}") != uid, nil
		}); err != nil {
			t.Fatalf("the pod on the lost node is not deleted: %v", err)
		}
		t.Logf("the pod is deleted %.0f s after the last heartbeat of its node", time.Since(begun).Seconds())
		n.Observed(t)
		if at := n.Kubectl(t, "get", "pod", pod, "--output=jsonpath={.spec.nodeName}"); at != node {
			t.Errorf("the pod is on node %s", at)
		}
	}})
	if events := n.Kubectl(t, "events", "--for=rootshard/kcp"); !strings.Contains(events, "NodeLost") {
		t.Errorf("no event mentions the node:\n%s", events)
	}
}
