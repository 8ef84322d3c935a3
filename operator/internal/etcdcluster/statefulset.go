package etcdcluster

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/etcdmember"
	"github.com/kcplane/kcp/operator/internal/workload"
)

const (
	containerName   = "etcd"
	dataVolume      = "data"
	dataMount       = "/var/lib/etcd"
	startMount      = "/etc/etcd/told"
	startFile       = "start"
	serverMount     = "/etc/etcd/server"
	peerMount       = "/etc/etcd/peer"
	trustMount      = "/etc/etcd/trust"
	grace           = 60 // seconds
	inputAnnotation = "input.operator.kcp.io/authorities"
)

// members are the inputs of the StatefulSet besides the spec.
type members struct {
	pods  int32 // number of pods
	image string
	// authorities is a hash of the trusted authorities, which members read only when they start.
	authorities string
	// sharing allows members to share a node although there are free nodes.
	sharing bool
	// size is the size of existing volumes. If it is nil, the size is the one in the spec.
	size *resource.Quantity
}

// statefulSet returns the StatefulSet of the members. It never replaces pods by itself: the operator decides which pod is replaced next.
func statefulSet(cluster *v1alpha1.EtcdCluster, m members) (*appsv1.StatefulSet, error) {
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels(cluster)},
		Spec:       podSpec(cluster, m),
	}
	if cluster.Spec.PodTemplate != nil {
		if err := workload.ChangePod(&template, cluster.Spec.PodTemplate, "spec.podTemplate"); err != nil {
			return nil, err
		}
	}
	metav1.SetMetaDataAnnotation(&template.ObjectMeta, inputAnnotation, m.authorities)
	retention := &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
		WhenDeleted: appsv1.RetainPersistentVolumeClaimRetentionPolicyType, WhenScaled: appsv1.DeletePersistentVolumeClaimRetentionPolicyType,
	}
	if cluster.Spec.DeletionPolicy == v1alpha1.EtcdDelete {
		retention.WhenDeleted = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	}
	if s := cluster.Spec.Storage; s != nil && s.RetainPolicy == v1alpha1.EtcdVolumeRetain {
		retention.WhenScaled = appsv1.RetainPersistentVolumeClaimRetentionPolicyType
	}
	return &appsv1.StatefulSet{
		ObjectMeta: meta(cluster, cluster.Name),
		Spec: appsv1.StatefulSetSpec{
			Replicas: &m.pods, ServiceName: peerServiceName(cluster.Name), Template: template,
			Selector:                             &metav1.LabelSelector{MatchLabels: labels(cluster)},
			PodManagementPolicy:                  appsv1.ParallelPodManagement,
			UpdateStrategy:                       appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType},
			VolumeClaimTemplates:                 []corev1.PersistentVolumeClaim{claim(cluster, m.size)},
			PersistentVolumeClaimRetentionPolicy: retention,
			RevisionHistoryLimit:                 new(int32(3)),
		},
	}, nil
}

// statefulSet returns the StatefulSet of the cluster. An error is about spec.podTemplate.
func (s *scope) statefulSet(m members) (*appsv1.StatefulSet, error) {
	set, err := statefulSet(s.cluster, m)
	if err == nil {
		err = s.Pods.Admit(&set.Spec.Template, "spec.podTemplate")
	}
	return set, err
}

func claim(cluster *v1alpha1.EtcdCluster, size *resource.Quantity) corev1.PersistentVolumeClaim {
	spec := corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}}
	if s := cluster.Spec.Storage; s != nil {
		spec.StorageClassName = s.StorageClassName
		if s.AccessMode != "" {
			spec.AccessModes[0] = s.AccessMode
		}
	}
	if size == nil {
		size = new(volumeSize(cluster))
	}
	spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: *size}
	return corev1.PersistentVolumeClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
		ObjectMeta: metav1.ObjectMeta{Name: dataVolume, Labels: labels(cluster)},
		Spec:       spec,
	}
}

func podSpec(cluster *v1alpha1.EtcdCluster, m members) corev1.PodSpec {
	spec := restricted(cluster, container(cluster, m))
	if !m.sharing {
		spreadOverNodes(&spec)
	}
	spec.Volumes = []corev1.Volume{
		secretVolume("server", serverName(cluster.Name)), secretVolume("peer", peerName(cluster.Name)),
		secretVolume("trust", TrustSecretName(cluster.Name)),
		{Name: "told", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
			Items: []corev1.DownwardAPIVolumeFile{{Path: startFile, FieldRef: &corev1.ObjectFieldSelector{
				APIVersion: "v1", FieldPath: fmt.Sprintf("metadata.annotations['%s']", etcdmember.Annotation)}}},
		}}},
	}
	return spec
}

// restricted returns the pod spec that is common to members and to Jobs that work on their volumes.
func restricted(cluster *v1alpha1.EtcdCluster, container corev1.Container) corev1.PodSpec {
	var pullSecrets []v1alpha1.LocalReference
	if image := cluster.Spec.Image; image != nil {
		pullSecrets = image.ImagePullSecrets
	}
	spec := workload.Restricted(labels(cluster), pullSecrets, grace, container)
	spec.SecurityContext.FSGroupChangePolicy = new(corev1.FSGroupChangeOnRootMismatch)
	return spec
}

func secretVolume(name, secret string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret}}}
}

func container(cluster *v1alpha1.EtcdCluster, m members) corev1.Container {
	port := func(name string, number int32) corev1.ContainerPort {
		return corev1.ContainerPort{Name: name, ContainerPort: number, Protocol: corev1.ProtocolTCP}
	}
	mount := func(name, path string) corev1.VolumeMount {
		return corev1.VolumeMount{Name: name, MountPath: path, ReadOnly: name != dataVolume}
	}
	defaults := corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("256Mi"),
	}}
	return corev1.Container{
		Name: containerName, Image: m.image, Args: arguments(cluster),
		Env: []corev1.EnvVar{{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"}}}},
		Ports:     []corev1.ContainerPort{port(clientPortName, ClientPort), port(peerPortName, PeerPort), port(metricsPortName, MetricsPort)},
		Resources: workload.Resources(defaults, cluster.Spec.Resources),
		// The liveness of a member does not depend on the other members: losing quorum must not restart the remaining members.
		StartupProbe:   probe("/livez", 2, 1800),
		LivenessProbe:  probe("/livez", 10, 6),
		ReadinessProbe: probe("/readyz", 3, 2),
		VolumeMounts: []corev1.VolumeMount{
			mount(dataVolume, dataMount), mount("server", serverMount), mount("peer", peerMount),
			mount("trust", trustMount), mount("told", startMount),
		},
	}
}

func probe(path string, period, failures int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Path: path, Port: intstr.FromString(metricsPortName), Scheme: corev1.URISchemeHTTP}},
		PeriodSeconds: period, FailureThreshold: failures, TimeoutSeconds: 5,
	}
}
