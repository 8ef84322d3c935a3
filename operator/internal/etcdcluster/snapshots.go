package etcdcluster

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
)

const (
	storeMount     = "/store"
	scratchMount   = "/tmp"
	clientMount    = "/etc/etcd/client"
	encryptedMount = "/sealed"
	jobAttempts    = 2
)

// StoreKeys are the keys that a Secret with the credentials of a bucket must have.
var StoreKeys = []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}

// SaveJob returns the Job that takes and stores a snapshot of a member. The result is the termination message of its pod.
func SaveJob(backup *v1alpha1.EtcdBackup, cluster *v1alpha1.EtcdCluster, member, image string) *batchv1.Job {
	args := []string{"save", "--cluster=" + cluster.Namespace + "/" + cluster.Name,
		fmt.Sprintf("--endpoint=https://%s:%d", memberHost(cluster, member), ClientPort),
		"--cert-file=" + clientMount + "/tls.crt", "--key-file=" + clientMount + "/tls.key", "--ca-file=" + trustMount + "/" + TrustedClients}
	for _, keep := range []struct {
		flag  string
		limit *int32
	}{{"keep", backup.Spec.KeepLast}, {"keep-daily", backup.Spec.KeepDaily}, {"keep-weekly", backup.Spec.KeepWeekly}} {
		if keep.limit != nil {
			args = append(args, fmt.Sprintf("--%s=%d", keep.flag, *keep.limit))
		}
	}
	job := snapshotJob(cluster, backup.Name+"-snapshot", image, &backup.Spec.Store, args)
	mount(&job.Spec.Template.Spec, "client", clientMount,
		corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: operatorName(cluster.Name)}})
	mount(&job.Spec.Template.Spec, "trust", trustMount,
		corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: TrustSecretName(cluster.Name)}})
	if backup.Spec.IncludeSecrets != nil {
		mount(&job.Spec.Template.Spec, "sealed", encryptedMount,
			corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: EncryptedSecretName(backup)}})
		job.Spec.Template.Spec.Containers[0].Args = append(job.Spec.Template.Spec.Containers[0].Args,
			"--secrets="+encryptedMount+"/"+EncryptedKey)
	}
	return job
}

// EncryptedKey is the key of the encrypted content in the Secret of an EtcdBackup.
const EncryptedKey = "sealed"

// EncryptedSecretName returns the name of that Secret.
func EncryptedSecretName(backup *v1alpha1.EtcdBackup) string { return backup.Name + "-secrets" }

// restoreJob returns the Job that restores a snapshot to the volume of the first member.
func restoreJob(cluster *v1alpha1.EtcdCluster, image, peerURL, token string) *batchv1.Job {
	first := memberName(cluster, 0)
	job := snapshotJob(cluster, restoreJobName(cluster), image, cluster.Spec.Restore.Store, []string{
		"restore", "--key=" + cluster.Spec.Restore.Key, "--name=" + first, "--peer-url=" + peerURL, "--token=" + token,
		"--data-dir=" + dataDirectory(cluster),
	})
	mountClaim(job, volumeName(cluster, 0))
	return job
}

// mountClaim mounts the volume of a member in the pod of a Job.
func mountClaim(job *batchv1.Job, name string) {
	mount(&job.Spec.Template.Spec, dataVolume, dataMount, corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}})
}

func restoreJobName(cluster *v1alpha1.EtcdCluster) string { return cluster.Name + "-restore" }

// restoreClaim returns the volume to which a snapshot is restored. The StatefulSet uses it because of its name.
func restoreClaim(cluster *v1alpha1.EtcdCluster) *corev1.PersistentVolumeClaim {
	volume := claim(cluster, nil)
	volume.Namespace, volume.Name = cluster.Namespace, volumeName(cluster, 0)
	volume.Annotations = map[string]string{restoredAnnotation: string(cluster.UID)}
	return &volume
}

// restoredAnnotation distinguishes volumes of a restoration from those of an earlier cluster.
const restoredAnnotation = "operator.kcp.io/restored-for"

// Image returns the image of the members of a cluster, and of Jobs that work on their data.
func Image(cluster *v1alpha1.EtcdCluster, repository, preset string) string {
	version, _ := chooseVersion(cluster.Spec.Version, cluster.Status.CurrentVersion, preset)
	return image(cluster.Spec.Image, repository, version)
}

func snapshotJob(cluster *v1alpha1.EtcdCluster, name, image string, store *v1alpha1.EtcdStoreSpec, args []string) *batchv1.Job {
	own := labelsOf(cluster, snapshotLabel)
	pod := restricted(cluster, corev1.Container{
		Name: "snapshot", Image: image, Command: []string{"/etcd-snapshot"}, Args: args,
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	})
	pod.RestartPolicy, pod.TopologySpreadConstraints = corev1.RestartPolicyNever, nil
	mount(&pod, "scratch", scratchMount, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
	if store != nil {
		addStore(&pod, store)
	}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: name, Labels: own},
		Spec: batchv1.JobSpec{
			BackoffLimit: new(int32(jobAttempts)),
			Template:     corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: own}, Spec: pod},
		},
	}
}

// addStore gives a pod access to a store.
func addStore(pod *corev1.PodSpec, store *v1alpha1.EtcdStoreSpec) {
	c := &pod.Containers[0]
	if volume := store.Volume; volume != nil {
		c.Args = append(c.Args, "--directory="+storeMount)
		mount(pod, "store", storeMount,
			corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: volume.ClaimName}})
		return
	}
	s3 := store.S3
	c.Args = append(c.Args, "--s3-endpoint="+s3.Endpoint, "--s3-bucket="+s3.Bucket, "--s3-prefix="+s3.Prefix, "--s3-region="+s3.Region,
		"--s3-ca-file="+storeMount+"/ca.crt")
	secret := corev1.LocalObjectReference{Name: s3.CredentialsSecretRef.Name}
	for _, key := range StoreKeys {
		c.Env = append(c.Env, corev1.EnvVar{Name: key, ValueFrom: &corev1.EnvVarSource{
			SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: secret, Key: key}}})
	}
	mount(pod, "store", storeMount, corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret.Name,
		Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}, Optional: new(true)}})
}

func mount(pod *corev1.PodSpec, name, path string, source corev1.VolumeSource) {
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: name, VolumeSource: source})
	pod.Containers[0].VolumeMounts = append(pod.Containers[0].VolumeMounts, corev1.VolumeMount{Name: name, MountPath: path})
}
