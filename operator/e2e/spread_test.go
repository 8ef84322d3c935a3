package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/profile"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/operator/internal/operatortest"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// schedule runs the scheduler of Kubernetes.
func schedule(t *testing.T) {
	t.Helper()
	clients, err := kubernetes.NewForConfig(host)
	if err != nil {
		t.Fatal(err)
	}
	informers := scheduler.NewInformerFactory(clients, 0, nil)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: clients.EventsV1()})
	s, err := scheduler.New(t.Context(), clients, informers, nil, profile.NewRecorderFactory(broadcaster))
	if err != nil {
		t.Fatal(err)
	}
	informers.Start(t.Context().Done())
	informers.WaitForCacheSync(t.Context().Done())
	if err := s.WaitForHandlersSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	go s.Run(t.Context())
}

// addNode adds a node, and removes it at the end of the test.
func addNode(t *testing.T, c *operatortest.Cluster, name, pods string, taints ...corev1.Taint) *corev1.Node {
	t.Helper()
	room := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse(pods)}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Status:     corev1.NodeStatus{Capacity: room, Allocatable: room},
	}
	c.MustCreate(t, node)
	node.Spec.Taints = taints // a new one is not ready
	c.MustUpdate(t, node)
	t.Cleanup(func() {
		if err := c.Delete(context.Background(), node); err != nil {
			t.Error(err)
		}
	})
	return node
}

// The scheduler enforces that members run on different nodes.
func TestMembersRunOnDifferentNodesIfThereAreEnough(t *testing.T) {
	admin := cluster(t, host)
	i := &installation{Cluster: admin, operator: cluster(t, asOperator())}
	beginEtcd(t, i, etcdNamed("spread"))
	set := operatortest.Read(t, admin, "spread", &appsv1.StatefulSet{})
	schedule(t)
	members := func(nodes int) (pods []client.Object) {
		for ordinal := range 3 {
			pod := &corev1.Pod{ObjectMeta: *set.Spec.Template.ObjectMeta.DeepCopy(), Spec: *set.Spec.Template.Spec.DeepCopy()}
			pod.Namespace, pod.Name = operatortest.Namespace, fmt.Sprintf("spread-%d-%d", nodes, ordinal)
			pod.Spec.Volumes, pod.Spec.Containers[0].VolumeMounts = nil, nil
			pods = append(pods, pod)
			admin.MustCreate(t, pod)
		}
		return pods
	}
	spread := func(pods []client.Object, want ...int) { // how many members nodes have; those without are the first number
		t.Helper()
		kcptest.Eventually(t, fmt.Sprint("members by nodes: ", want), func(context.Context) error {
			nodes := map[string]int{"": 0}
			for _, pod := range pods {
				p := operatortest.Read(t, admin, pod.GetName(), &corev1.Pod{})
				if p.Spec.NodeName == "" && len(p.Status.Conditions) == 0 {
					return errors.New(p.Name + " was not looked at yet")
				}
				nodes[p.Spec.NodeName]++
			}
			waiting := nodes[""]
			delete(nodes, "")
			if got := append([]int{waiting}, slices.Sorted(maps.Values(nodes))...); !slices.Equal(got, want) {
				return fmt.Errorf("they are %v", got)
			}
			return nil
		})
	}
	end := func(pods []client.Object) {
		t.Helper()
		for _, pod := range pods {
			if err := admin.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
				t.Fatal(err)
			}
		}
	}
	addNode(t, admin, "spread-tainted", "100", corev1.Taint{Key: "control-plane", Effect: corev1.TaintEffectNoSchedule})
	addNode(t, admin, "spread-first", "100")
	pods := members(1)
	spread(pods, 0, 3)
	end(pods)
	addNode(t, admin, "spread-second", "100")
	pods = members(2)
	spread(pods, 0, 1, 2)
	end(pods)
	full := addNode(t, admin, "spread-third", "0")
	pods = members(3)
	spread(pods, 1, 1, 1)
	full.Status.Allocatable[corev1.ResourcePods] = resource.MustParse("100")
	admin.MustUpdateStatus(t, full)
	spread(pods, 0, 1, 1, 1)
	end(pods)
}
