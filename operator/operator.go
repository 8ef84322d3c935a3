// Package operator composes the operator: its reconcilers, and the objects that its caches hold.
package operator

import (
	"cmp"
	"context"
	"time"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/apply"
	"github.com/kcplane/kcp/operator/internal/cacheserver"
	"github.com/kcplane/kcp/operator/internal/component"
	"github.com/kcplane/kcp/operator/internal/etcdbackup"
	"github.com/kcplane/kcp/operator/internal/etcdcluster"
	"github.com/kcplane/kcp/operator/internal/frontproxy"
	"github.com/kcplane/kcp/operator/internal/furthershard"
	"github.com/kcplane/kcp/operator/internal/kcpaccess"
	"github.com/kcplane/kcp/operator/internal/kubeconfig"
	"github.com/kcplane/kcp/operator/internal/rootshard"
	"github.com/kcplane/kcp/operator/internal/scheme"
	"github.com/kcplane/kcp/operator/internal/virtualworkspace"
	"github.com/kcplane/kcp/operator/internal/workload"
)

// Config configures the reconcilers.
type Config struct {
	// Image is the default image of kcp for shards.
	Image string
	// EtcdRepository is the default repository of etcd's images. Empty: the one of the release.
	EtcdRepository string
	// Namespace in which the operator runs. Empty: none, or unknown.
	Namespace string
	// Pods are the limits for pods.
	Pods workload.Security
}

// Options returns the options of the manager. Of kinds that others also create, its caches hold only the operator's own objects; of Secrets
// and ConfigMaps they hold only metadata, and the data is read when it is needed.
func Options() ctrl.Options {
	own := cache.ByObject{Label: labels.SelectorFromSet(labels.Set{apply.ManagedByLabel: apply.FieldOwner})}
	strip := cache.TransformStripManagedFields()
	return ctrl.Options{
		Scheme:     scheme.New(),
		Controller: ctrlconfig.Controller{MaxConcurrentReconciles: 4},
		Cache: cache.Options{
			DefaultTransform: strip,
			ByObject: map[client.Object]cache.ByObject{
				&appsv1.StatefulSet{}: own, &corev1.Service{}: own, &corev1.Pod{}: own, &corev1.PersistentVolumeClaim{}: own, &batchv1.Job{}: own,
				&policyv1.PodDisruptionBudget{}: own, &networkingv1.NetworkPolicy{}: own, &networkingv1.Ingress{}: own,
				&autoscalingv2.HorizontalPodAutoscaler{}: own, &certmanager.Certificate{}: own,
			},
		},
		Client: client.Options{Cache: &client.CacheOptions{
			DisableFor: []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}, &certmanager.ClusterIssuer{}},
		}},
	}
}

// Watched returns an object of each kind that the reconcilers watch in every cluster.
func Watched() []client.Object {
	return []client.Object{
		&v1alpha1.RootShard{}, &v1alpha1.Shard{}, &v1alpha1.FrontProxy{}, &v1alpha1.CacheServer{},
		&v1alpha1.VirtualWorkspace{}, &v1alpha1.Kubeconfig{}, &v1alpha1.EtcdCluster{}, &v1alpha1.EtcdBackup{}, &v1alpha1.EtcdBackupSchedule{},
		&certmanager.Issuer{}, &certmanager.Certificate{}, &appsv1.StatefulSet{}, &corev1.Service{}, &corev1.Pod{},
		&policyv1.PodDisruptionBudget{}, &networkingv1.NetworkPolicy{}, &networkingv1.Ingress{},
		&autoscalingv2.HorizontalPodAutoscaler{}, &batchv1.Job{}, metadataOf("Secret"), metadataOf("ConfigMap"),
	}
}

func metadataOf(kind string) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
	return object
}

// Setup registers every reconciler.
func Setup(ctx context.Context, mgr ctrl.Manager, config Config) error {
	c, live, recorder := mgr.GetClient(), mgr.GetAPIReader(), mgr.GetEventRecorder(apply.FieldOwner)
	environment := component.Environment{Client: c, Live: live, Recorder: recorder, DefaultImage: config.Image,
		Namespace: config.Namespace, Pods: config.Pods}
	version, repository := etcdcluster.DefaultVersion, cmp.Or(config.EtcdRepository, etcdcluster.DefaultRepository)
	for _, reconciler := range []interface {
		Setup(context.Context, ctrl.Manager) error
	}{
		&cacheserver.Reconciler{Environment: environment},
		&rootshard.Reconciler{Environment: environment},
		&furthershard.Reconciler{Environment: environment, Registry: kcpaccess.Registry{}},
		&frontproxy.Reconciler{Environment: environment},
		&virtualworkspace.Reconciler{Environment: environment},
		&etcdcluster.Reconciler{Client: c, Live: live, Recorder: recorder, Now: time.Now, Version: version,
			Repository: repository, Pods: config.Pods},
		&etcdbackup.Reconciler{Client: c, Live: live, Recorder: recorder, Now: time.Now, Version: version,
			Repository: repository, Pods: config.Pods},
		&etcdbackup.ScheduleReconciler{Client: c, Live: live, Recorder: recorder, Now: time.Now},
		&kubeconfig.Revoker{Client: c, Live: live, Recorder: recorder, Bind: kcpaccess.Bind},
		&kubeconfig.Reconciler{Client: c, Live: live, Recorder: recorder, Bind: kcpaccess.Bind},
	} {
		if err := reconciler.Setup(ctx, mgr); err != nil {
			return err
		}
	}
	return nil
}
