package workload

import (
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
)

func TestAutoscalersHaveDefaults(t *testing.T) {
	for name, test := range map[string]struct {
		spec    v1alpha1.AutoscalingSpec
		minimum int32
		targets map[string]int32
	}{
		"only a maximum":      {v1alpha1.AutoscalingSpec{MaxReplicas: 5}, 2, map[string]int32{"cpu": 80}},
		"a maximum of one":    {v1alpha1.AutoscalingSpec{MaxReplicas: 1}, 1, map[string]int32{"cpu": 80}},
		"memory, without CPU": {v1alpha1.AutoscalingSpec{MaxReplicas: 5, TargetMemoryUtilizationPercentage: new(int32(70))}, 2, map[string]int32{"memory": 70}},
		"everything": {v1alpha1.AutoscalingSpec{MinReplicas: 3, MaxReplicas: 5, TargetCPUUtilizationPercentage: new(int32(60)),
			TargetMemoryUtilizationPercentage: new(int32(70))}, 3, map[string]int32{"cpu": 60, "memory": 70}},
	} {
		autoscaler, wanted := Autoscaler(&Component{Name: "kcp", Namespace: "team", Autoscaling: &test.spec})
		if !wanted || *autoscaler.Spec.MinReplicas != test.minimum || autoscaler.Spec.MaxReplicas != test.spec.MaxReplicas {
			t.Errorf("%s: got %+v", name, autoscaler.Spec)
		}
		targets := map[string]int32{}
		for _, metric := range autoscaler.Spec.Metrics {
			if metric.Type == autoscalingv2.ResourceMetricSourceType && metric.Resource.Target.Type == autoscalingv2.UtilizationMetricType {
				targets[string(metric.Resource.Name)] = *metric.Resource.Target.AverageUtilization
			}
		}
		if len(targets) != len(test.targets) || targets["cpu"] != test.targets["cpu"] || targets["memory"] != test.targets["memory"] {
			t.Errorf("%s: got the targets %v", name, targets)
		}
	}
	if _, wanted := Autoscaler(&Component{}); wanted {
		t.Error("an autoscaler that the spec does not have")
	}
}
