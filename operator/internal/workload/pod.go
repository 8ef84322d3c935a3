package workload

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	sigsjson "sigs.k8s.io/json"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/pki"
)

// grace is the termination grace period: the seconds in which a pod still serves new requests of clients that do not know that it ends,
// then the time for requests in progress.
const grace = 90

// evicted is after how many seconds the pods of an unreachable node are deleted: a pod without state can soon start elsewhere.
const evicted = 60

// Pod builds the template of the pods. It returns an error for invalid customizations of the user.
func Pod(c *Component) (corev1.PodTemplateSpec, error) {
	pod := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: c.Labels()},
		Spec:       Restricted(c.Labels(), c.PullSecrets, grace, container(c)),
	}
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists,
			Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(evicted))})
	}
	for _, f := range c.Files {
		pod.Spec.Volumes = append(pod.Spec.Volumes, volume(f))
	}
	for _, directory := range c.Scratch {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: scratch(directory),
			VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	}
	if err := checkExtra(c.Extra, pod.Spec); err != nil {
		return pod, err
	}
	pod.Spec.Volumes = append(pod.Spec.Volumes, c.Extra.ExtraVolumes...)
	pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, c.Extra.ExtraVolumeMounts...)
	pod.Spec.InitContainers = initContainers(c, pod.Spec.Containers[0])
	if c.Template != nil && c.Template.Spec != nil && c.Template.Spec.Template != nil {
		if err := ChangePod(&pod, c.Template.Spec.Template, "spec.deploymentTemplate.spec.template"); err != nil {
			return pod, err
		}
	}
	for name, hash := range c.Inputs {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, InputAnnotation+name, hash)
	}
	return pod, nil
}

func container(c *Component) corev1.Container {
	result := corev1.Container{
		Name: c.Container, Image: c.Image, Command: c.Command, Args: c.Args,
		Ports:     []corev1.ContainerPort{{Name: PortName, ContainerPort: Port, Protocol: corev1.ProtocolTCP}},
		Resources: c.Resources,
		// The last log lines of a process that exits are written to the status of its pod, and from there to conditions.
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		StartupProbe:             probe("/readyz", 2, 300),
		ReadinessProbe:           probe("/readyz", 5, 3),
		LivenessProbe:            probe("/livez", 10, 6),
	}
	for _, f := range c.Files {
		result.VolumeMounts = append(result.VolumeMounts, corev1.VolumeMount{Name: f.Name, MountPath: f.Path, ReadOnly: true})
	}
	for _, directory := range c.Scratch {
		result.VolumeMounts = append(result.VolumeMounts, corev1.VolumeMount{Name: scratch(directory), MountPath: directory})
	}
	return result
}

// initContainers returns the init containers, with the security context of the container.
func initContainers(c *Component, server corev1.Container) []corev1.Container {
	var all []corev1.Container
	for _, init := range c.InitContainers {
		init.SecurityContext, init.TerminationMessagePolicy = server.SecurityContext.DeepCopy(), server.TerminationMessagePolicy
		all = append(all, init)
	}
	return all
}

// checkExtra returns an error if volumes of users have a name or mount path that is already used.
func checkExtra(extra v1alpha1.ExtraSpec, pod corev1.PodSpec) error {
	for _, more := range extra.ExtraVolumes {
		if slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == more.Name }) {
			return fmt.Errorf("spec.extraVolumes: the pods have a volume named %s already: choose another name", more.Name)
		}
	}
	for _, more := range extra.ExtraVolumeMounts {
		if slices.ContainsFunc(pod.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == more.MountPath }) {
			return fmt.Errorf("spec.extraVolumeMounts: the pods have a volume at %s already: choose another path", more.MountPath)
		}
	}
	return nil
}

func probe(path string, period, failures int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Path: path, Port: intstr.FromString(PortName), Scheme: corev1.URISchemeHTTPS}},
		PeriodSeconds: period, FailureThreshold: failures, TimeoutSeconds: 10,
	}
}

func volume(f Files) corev1.Volume {
	var items []corev1.KeyToPath
	for _, key := range f.Keys {
		items = append(items, corev1.KeyToPath{Key: key, Path: key})
	}
	v := corev1.Volume{Name: f.Name}
	if f.ConfigMap != "" {
		v.ConfigMap = &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: f.ConfigMap}, Items: items}
	} else {
		v.Secret = &corev1.SecretVolumeSource{SecretName: f.Secret, Items: items}
	}
	return v
}

func scratch(directory string) string { return "scratch-" + path.Base(directory) }

// ChangePod merges a template into a pod, as kubectl patch does. Errors name the field of the template.
func ChangePod(pod *corev1.PodTemplateSpec, template *v1alpha1.PodTemplateSpec, field string) error {
	if m := template.Metadata; m != nil {
		pod.Labels, pod.Annotations = pki.Overlay(m.Labels, pod.Labels), pki.Overlay(m.Annotations, pod.Annotations)
	}
	if template.Spec == nil || len(template.Spec.Raw) == 0 {
		return nil
	}
	unknown, err := sigsjson.UnmarshalStrict(template.Spec.Raw, &corev1.PodSpec{})
	if err == nil && len(unknown) > 0 {
		err = unknown[0]
	}
	if err != nil {
		return fmt.Errorf("%s.spec is not the spec of a pod: %w", field, err)
	}
	built, err := json.Marshal(pod.Spec)
	if err != nil {
		return err
	}
	merged, err := strategicpatch.StrategicMergePatch(built, template.Spec.Raw, corev1.PodSpec{})
	if err != nil {
		return fmt.Errorf("%s.spec: %w", field, err)
	}
	pod.Spec = corev1.PodSpec{}
	return json.Unmarshal(merged, &pod.Spec)
}
