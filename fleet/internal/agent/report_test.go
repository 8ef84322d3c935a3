package agent

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubefake "k8s.io/client-go/kubernetes/fake"
)

func texts(list corev1.ResourceList) map[string]string {
	out := map[string]string{}
	for name, quantity := range list {
		out[string(name)] = quantity.String()
	}
	return out
}

func resourceList(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

func TestTheCapacityIsThatOfNodesThatAcceptPods(t *testing.T) {
	node := func(name string, cordoned bool) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{Unschedulable: cordoned},
			Status: corev1.NodeStatus{Allocatable: resourceList("3500m", "8Gi")}}
	}
	a := &Agent{local: kubefake.NewClientset(node("a", false), node("b", false), node("c", true))}
	capacity, nodes, err := a.capacity(t.Context())
	if diff := cmp.Diff(map[string]string{"cpu": "7", "memory": "16Gi"}, texts(capacity)); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if len(nodes) != 2 || !nodes["a"] || !nodes["b"] {
		t.Errorf("the nodes are %v", nodes)
	}
}

func TestRequestsOfPodsOnTheSameNodesAddUp(t *testing.T) {
	pod := func(name, node string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name}, Spec: corev1.PodSpec{NodeName: node}}
		for _, container := range []string{"x", "y"} {
			p.Spec.Containers = append(p.Spec.Containers,
				corev1.Container{Name: container, Resources: corev1.ResourceRequirements{Requests: resourceList("250m", "1Gi")}})
		}
		return p
	}
	a := &Agent{local: kubefake.NewClientset(pod("one", "a"), pod("two", "b"), pod("three", "cordoned"))}
	requested, err := a.requested(t.Context(), map[string]bool{"a": true, "b": true})
	if diff := cmp.Diff(map[string]string{"cpu": "1", "memory": "4Gi", "pods": "2"}, texts(requested)); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
