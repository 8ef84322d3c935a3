package workload

import (
	"cmp"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
)

// Defaults of an autoscaler.
const (
	// minReplicas is the minimum number of pods: with two, one can be replaced while the other serves.
	minReplicas = 2
	// targetCPU is the average use of CPU, in percent of the request.
	targetCPU = 80
)

// Started returns the number of pods of a component that has a number of pods now. An autoscaler does not start pods of a workload that has
// none.
func Started(spec *v1alpha1.AutoscalingSpec, pods *int32) *int32 {
	if spec == nil || pods == nil || *pods > 0 {
		return pods
	}
	return new(minimum(spec))
}

// minimum returns the minimum number of pods.
func minimum(spec *v1alpha1.AutoscalingSpec) int32 {
	return min(cmp.Or(spec.MinReplicas, minReplicas), spec.MaxReplicas)
}

// Autoscaler builds the HorizontalPodAutoscaler of a component, and reports whether it is wanted. It sets the number of pods of the
// StatefulSet, which the operator then leaves alone.
func Autoscaler(c *Component) (autoscaler *autoscalingv2.HorizontalPodAutoscaler, wanted bool) {
	autoscaler = &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: c.meta()}
	spec := c.Autoscaling
	if spec == nil {
		return autoscaler, false
	}
	autoscaler.Spec = autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{
			APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "StatefulSet", Name: c.Name},
		MinReplicas: new(minimum(spec)), MaxReplicas: spec.MaxReplicas,
	}
	cpu := spec.TargetCPUUtilizationPercentage
	if cpu == nil && spec.TargetMemoryUtilizationPercentage == nil {
		cpu = new(int32(targetCPU))
	}
	for _, target := range []struct {
		resource corev1.ResourceName
		percent  *int32
	}{{corev1.ResourceCPU, cpu}, {corev1.ResourceMemory, spec.TargetMemoryUtilizationPercentage}} {
		if target.percent != nil {
			autoscaler.Spec.Metrics = append(autoscaler.Spec.Metrics, autoscalingv2.MetricSpec{
				Type: autoscalingv2.ResourceMetricSourceType,
				Resource: &autoscalingv2.ResourceMetricSource{Name: target.resource, Target: autoscalingv2.MetricTarget{
					Type: autoscalingv2.UtilizationMetricType, AverageUtilization: target.percent}},
			})
		}
	}
	return autoscaler, true
}
