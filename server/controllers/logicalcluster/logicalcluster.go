package logicalcluster

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/controllers/controller"
	"github.com/kcplane/kcp/server/controllers/namespace"
	"github.com/kcplane/kcp/server/informers"
)

// Inputs of the controller. Clients reach the cluster in each call's context.
type Inputs struct {
	Set       *informers.Set
	Kube      kubernetes.Interface
	Dynamic   dynamic.Interface
	Metadata  metadata.Interface
	Resources namespace.Resources
	// ExternalURL of the installation, without a trailing slash.
	ExternalURL string
}

const remainingInterval = time.Second

var resource = corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters")

// namespaces that a cluster starts with.
var namespaces = []string{metav1.NamespaceDefault, metav1.NamespaceSystem}

type reconciler struct {
	Inputs
	controller *controller.Controller
}

// New returns the controller. Its keys are LogicalClusters.
func New(in Inputs) *controller.Controller {
	r := &reconciler{Inputs: in}
	r.controller = controller.New("logicalcluster", 8, r.reconcile)
	r.controller.Watch(in.Set.LogicalClusters.Informer)
	return r.controller
}

func (r *reconciler) reconcile(ctx context.Context, key informers.Key) error {
	lc, err := r.Set.LogicalClusters.Get(key.Cluster, "", key.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	wanted := next(lc, r.ExternalURL)
	if wanted.Status.Phase == corev1alpha1.LogicalClusterPhaseReady && lc.Status.Phase != corev1alpha1.LogicalClusterPhaseInactive {
		if err := r.ensureNamespaces(ctx, key); err != nil {
			return err
		}
	}
	if wanted.Status.Phase == corev1alpha1.LogicalClusterPhaseDeleting && slices.Contains(lc.Finalizers, corev1alpha1.DeletionFinalizer) {
		remaining, err := r.deleteContent(ctx)
		if err != nil {
			return err
		}
		wanted.Status.Conditions = withContentCondition(lc.Status.Conditions, remaining)
		if len(remaining) == 0 {
			wanted.Finalizers = slices.DeleteFunc(wanted.Finalizers, func(f string) bool { return f == corev1alpha1.DeletionFinalizer })
		} else {
			r.controller.EnqueueAfter(key, remainingInterval)
		}
	}
	return r.commit(ctx, lc, wanted)
}

func (r *reconciler) ensureNamespaces(ctx context.Context, key informers.Key) error {
	for _, name := range namespaces {
		if _, err := r.Set.Namespaces.Get(key.Cluster, "", name); !apierrors.IsNotFound(err) {
			if err != nil {
				return err
			}
			continue
		}
		_, err := r.Kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("namespace %s: %w", name, err)
		}
	}
	return nil
}

// commit writes what changed: first the status, then the metadata, whose finalizers may make the object go.
func (r *reconciler) commit(ctx context.Context, old, wanted *corev1alpha1.LogicalCluster) error {
	client := r.Dynamic.Resource(resource)
	if !reflect.DeepEqual(old.Status, wanted.Status) {
		status := old.DeepCopy()
		status.Status = wanted.Status
		u, err := toUnstructured(status)
		if err != nil {
			return err
		}
		updated, err := client.UpdateStatus(ctx, u, metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		wanted.ResourceVersion = updated.GetResourceVersion()
	}
	if reflect.DeepEqual(old.Labels, wanted.Labels) && slices.Equal(old.Finalizers, wanted.Finalizers) {
		return nil
	}
	u, err := toUnstructured(wanted)
	if err != nil {
		return err
	}
	if _, err = client.Update(ctx, u, metav1.UpdateOptions{}); apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func toUnstructured(lc *corev1alpha1.LogicalCluster) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(lc)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(corev1alpha1.SchemeGroupVersion.WithKind("LogicalCluster"))
	return u, nil
}
