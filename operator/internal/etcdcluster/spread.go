package etcdcluster

import (
	corev1 "k8s.io/api/core/v1"
)

// selectedNode is what the scheduler writes on a claim: the node that its volume is made for.
const selectedNode = "volume.kubernetes.io/selected-node"

// keepApart sees to it that no two members share a node while there is one without any, whatever that costs: a pod rather waits. Where
// there are fewer nodes than members they are shared evenly. The scheduler counts the nodes that a pod may run on; to know them, the
// operator would need a right in the whole cluster.
func keepApart(spec *corev1.PodSpec) {
	for i := range spec.TopologySpreadConstraints {
		if c := &spec.TopologySpreadConstraints[i]; c.TopologyKey == corev1.LabelHostname {
			c.WhenUnsatisfiable, c.NodeTaintsPolicy = corev1.DoNotSchedule, new(corev1.NodeInclusionPolicyHonor)
		}
	}
}

// sharing reports whether members may share a node although there are others. Volumes that cannot leave the node where several of
// them were made, before there were others, would keep their pods from ever running again. It stays so once it had to be.
func (seen *clusterSnapshot) sharing() bool {
	if !seen.crowded() {
		return false
	}
	if seen.stateful != nil {
		for _, c := range seen.stateful.Spec.Template.Spec.TopologySpreadConstraints {
			if c.TopologyKey == corev1.LabelHostname && c.WhenUnsatisfiable == corev1.ScheduleAnyway {
				return true
			}
		}
	}
	for _, p := range seen.live {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
				return true
			}
		}
	}
	return false
}

// crowded reports whether a node has the volumes of several members.
func (seen *clusterSnapshot) crowded() bool {
	nodes := map[string]bool{}
	for i := range seen.claims {
		node := seen.claims[i].Annotations[selectedNode]
		if node != "" && nodes[node] {
			return true
		}
		nodes[node] = true
	}
	return false
}
