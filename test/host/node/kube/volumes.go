package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// provisioner is the name of this program in a StorageClass.
	provisioner = "host.kcp.io/directory"

	// The controller manager sets the first annotation on claims that wait for a provisioner, and reads the second one on volumes.
	claimProvisioner  = "volume.kubernetes.io/storage-provisioner"
	volumeProvisioner = "pv.kubernetes.io/provisioned-by"
)

// directories creates a directory on the node for each claim, and removes it when the claim is deleted.
type directories struct {
	client kubernetes.Interface
	root   string
}

// volumes provisions volumes until the process is interrupted.
func volumes() {
	flags := flag.NewFlagSet("volumes", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", "path of a kubeconfig")
	root := flags.String("root", "", "parent directory of the volumes")
	_ = flags.Parse(os.Args[1:]) // exits on errors

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		log.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	d := directories{client: client, root: *root}
	factory := informers.NewSharedInformerFactory(client, 30*time.Second) // a resync retries failures
	handle(ctx, factory.Core().V1().PersistentVolumeClaims().Informer(), d.provision)
	handle(ctx, factory.Core().V1().PersistentVolumes().Informer(), d.reclaim)
	factory.Start(ctx.Done())
	<-ctx.Done()
}

func handle[T metav1.Object](ctx context.Context, informer cache.SharedIndexInformer, reconcile func(context.Context, T) error) {
	do := func(obj any) {
		if err := reconcile(ctx, obj.(T)); err != nil {
			log.Print(err)
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    do,
		UpdateFunc: func(_, obj any) { do(obj) },
	})
	if err != nil {
		log.Fatal(err)
	}
}

// provision creates the volume of a claim that waits for one.
func (d directories) provision(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	waits := claim.Status.Phase == corev1.ClaimPending && claim.Spec.VolumeName == ""
	if !waits || claim.Annotations[claimProvisioner] != provisioner {
		return nil
	}
	name := "pvc-" + string(claim.UID)
	dir := filepath.Join(d.root, name)
	// Pods run as any user, so set the mode regardless of the umask.
	if err := errors.Join(os.MkdirAll(dir, 0o777), os.Chmod(dir, 0o777)); err != nil {
		return err
	}
	_, err := d.client.CoreV1().PersistentVolumes().Create(ctx, volumeFor(claim, name, dir), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func volumeFor(claim *corev1.PersistentVolumeClaim, name, dir string) *corev1.PersistentVolume {
	directory := corev1.HostPathDirectory
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{volumeProvisioner: provisioner}},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:                   claim.Spec.AccessModes,
			Capacity:                      claim.Spec.Resources.Requests,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: dir, Type: &directory},
			},
			StorageClassName: *claim.Spec.StorageClassName,
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim",
				Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
		},
	}
}

// reclaim removes a volume that no claim uses any more, and its data.
func (d directories) reclaim(ctx context.Context, volume *corev1.PersistentVolume) error {
	ours := volume.Annotations[volumeProvisioner] == provisioner
	unwanted := volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete
	if !ours || !unwanted || volume.Status.Phase != corev1.VolumeReleased {
		return nil
	}
	if err := os.RemoveAll(filepath.Join(d.root, volume.Name)); err != nil {
		return err
	}
	err := d.client.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
