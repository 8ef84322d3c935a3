package etcdcluster

import (
	corev1 "k8s.io/api/core/v1"
)

// selectedNode is the annotation of the scheduler on a claim: the node for which its volume is provisioned.
const selectedNode = "volume.kubernetes.io/selected-node"

// spreadOverNodes prevents that two members share a node while another node has no member: a pod rather stays Pending. With fewer nodes
// than members, members are distributed evenly. The scheduler counts the eligible nodes; to list them, the operator would need a permission
// in the whole cluster.
func spreadOverNodes(spec *corev1.PodSpec) {
	for i := range spec.TopologySpreadConstraints {
		if c := &spec.TopologySpreadConstraints[i]; c.TopologyKey == corev1.LabelHostname {
			c.WhenUnsatisfiable, c.NodeTaintsPolicy = corev1.DoNotSchedule, new(corev1.NodeInclusionPolicyHonor)
		}
	}
}

// sharing reports whether members may share a node although there are free nodes. It is necessary if several volumes were provisioned on
// one node and cannot move: their pods could never be scheduled again. Once set, it stays set.
func (observed *clusterSnapshot) sharing() bool {
	if !observed.volumesShareNode() {
		return false
	}
	if observed.stateful != nil {
		for _, c := range observed.stateful.Spec.Template.Spec.TopologySpreadConstraints {
			if c.TopologyKey == corev1.LabelHostname && c.WhenUnsatisfiable == corev1.ScheduleAnyway {
				return true
			}
		}
	}
	for _, p := range observed.live {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
				return true
			}
		}
	}
	return false
}

// volumesShareNode reports whether a node has the volumes of several members.
func (observed *clusterSnapshot) volumesShareNode() bool {
	nodes := map[string]bool{}
	for i := range observed.claims {
		node := observed.claims[i].Annotations[selectedNode]
		if node != "" && nodes[node] {
			return true
		}
		nodes[node] = true
	}
	return false
}
