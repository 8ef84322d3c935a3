package etcdcluster

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
)

func TestAllClientsMayConnectToMembers(t *testing.T) {
	cluster := &v1alpha1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "west-etcd"}}
	policy := NetworkPolicy(cluster, []map[string]string{{"pods": "of the shard"}, {"pods": "of its virtual workspaces"}}, "kcp-operator")
	from := map[string]bool{}
	for _, peer := range policy.Spec.Ingress[0].From {
		if peer.PodSelector != nil {
			from[peer.PodSelector.MatchLabels["pods"]] = true
		}
	}
	if !from["of the shard"] || !from["of its virtual workspaces"] {
		t.Errorf("pods may connect: %v", from)
	}
}
