package controller

import (
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
	"github.com/kcplane/kcp/fleet/internal/feed"
	"github.com/kcplane/kcp/fleet/internal/tunnel"
)

func TestMetricsCountClustersAndAssignmentsByState(t *testing.T) {
	lost := readyCluster("lost").(*v1alpha1.Cluster)
	lost.Status.Conditions[0].Status = "False"
	i := install(t, []client.Object{readyCluster("east"), lost}, []client.Object{userNamespace("shop"), userNamespace("blog"), anywhere()})
	i.tunnels = &tunnel.Tunnels{}
	i.decide(t, "shop")
	i.decide(t, "blog")
	i.agentReports(t, "shop", "east", v1alpha1.AssignmentReady)
	i.moves.waiting[feed.Namespace{Name: "shop"}] = true
	registry := metrics.NewKubeRegistry()
	registry.CustomMustRegister(&collector{fleet: i.fleet})
	want := `
# HELP kcp_fleet_assignments [ALPHA] Number of namespaces on clusters, by phase. Pending: the agent has not seen it.
# TYPE kcp_fleet_assignments gauge
kcp_fleet_assignments{phase="Gone"} 0
kcp_fleet_assignments{phase="Pending"} 1
kcp_fleet_assignments{phase="Placing"} 0
kcp_fleet_assignments{phase="Ready"} 1
# HELP kcp_fleet_clusters [ALPHA] Number of attached clusters, by whether they are ready.
# TYPE kcp_fleet_clusters gauge
kcp_fleet_clusters{ready="false"} 1
kcp_fleet_clusters{ready="true"} 1
# HELP kcp_fleet_shards [ALPHA] Number of virtual workspaces, one of each shard, whose objects are watched.
# TYPE kcp_fleet_shards gauge
kcp_fleet_shards 1
# HELP kcp_fleet_tunnels [ALPHA] Number of clusters whose agent is connected for reading pods.
# TYPE kcp_fleet_tunnels gauge
kcp_fleet_tunnels 0
# HELP kcp_fleet_waiting_moves [ALPHA] Number of namespaces that wait for their turn to move to another cluster.
# TYPE kcp_fleet_waiting_moves gauge
kcp_fleet_waiting_moves 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestMetricsDoNotWaitForAServerThatDoesNotRespond(t *testing.T) {
	i := install(t, nil, nil)
	i.tunnels = &tunnel.Tunnels{}
	within := time.Duration(0)
	i.provider = interceptor.NewClient(i.provider.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, _ client.WithWatch, _ client.ObjectList, _ ...client.ListOption) error {
			if end, limited := ctx.Deadline(); limited {
				within = time.Until(end)
			}
			return context.DeadlineExceeded
		},
	})
	registry := metrics.NewKubeRegistry()
	registry.CustomMustRegister(&collector{fleet: i.fleet})
	all, err := registry.Gather()
	if err != nil || within <= 0 || within > countTimeout {
		t.Errorf("the request ends within %s: %v", within, err)
	}
	for _, family := range all {
		if family.GetName() == "kcp_fleet_clusters" {
			t.Error("clusters are counted without the response")
		}
	}
	if len(all) == 0 {
		t.Error("the other metrics are not read")
	}
}
