// Package apiexport gives every APIExport its identity, which is the hash of a secret key, and an endpoint slice, in which its provider
// finds the URLs of the objects of all consumers.
package apiexport

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/apis/conditions"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/internal/tenancy/identity"
)

var slices = apisv1alpha1.SchemeGroupVersion.WithResource("apiexportendpointslices")

// Inputs of the controller. Clients and storage reach the cluster in each call's context.
type Inputs struct {
	Set     *informers.Set
	Kube    kubernetes.Interface
	Dynamic dynamic.Interface
	Exports storage.Objects
}

// workers is the number of exports that are reconciled at a time. Most of a reconciliation is waiting for its requests.
const workers = 8

type reconciler struct{ Inputs }

// New returns the controller. Its keys are APIExports.
func New(in Inputs) *runner.Controller {
	r := &reconciler{in}
	c := runner.New("apiexport", workers, r.reconcile)
	c.Watch(in.Set.APIExports.Informer)
	c.WatchMapped(in.Set.Secrets.Informer, func(obj runtime.Object) []informers.Key {
		key, err := informers.KeyOf(obj)
		if err != nil {
			return nil
		}
		exports, err := in.Set.APIExports.List(key.Cluster)
		if err != nil {
			return nil
		}
		var keys []informers.Key
		for _, export := range exports {
			if ref := reference(export); ref.Namespace == key.Namespace && ref.Name == key.Name {
				keys = append(keys, informers.Key{Cluster: key.Cluster, Name: export.Name})
			}
		}
		return keys
	})
	return c
}

func reference(export *apisv1alpha2.APIExport) corev1.SecretReference {
	return identity.Reference(export.Spec.Identity, export.Name)
}

func (r *reconciler) reconcile(ctx context.Context, key informers.Key) error {
	export, err := r.Set.APIExports.Get(key.Cluster, "", key.Name)
	if err != nil || export.DeletionTimestamp != nil {
		return runner.IgnoreNotFound(err)
	}
	ref := reference(export)
	secret, err := identity.Secret(ctx, r.Kube, r.Set.Namespaces, ref, export.Name, export.Status.IdentityHash)
	if err != nil {
		return err
	}
	if wanted := export.DeepCopy(); !settle(wanted, ref, secret) {
		return r.ensureSlice(ctx, export)
	}
	err = r.Exports.Update(ctx, key.Name, &apisv1alpha2.APIExport{}, func(obj runtime.Object) error {
		live := obj.(*apisv1alpha2.APIExport)
		if err := runner.Same(live, export); err != nil {
			return err
		}
		settle(live, ref, secret)
		return nil
	})
	if err != nil {
		return runner.IgnoreNotFound(err)
	}
	return r.ensureSlice(ctx, export)
}

// settle writes the identity of an export, whose key is that of a Secret at ref, and returns whether that changes the export.
func settle(export *apisv1alpha2.APIExport, ref corev1.SecretReference, secret *corev1.Secret) (changed bool) {
	if export.Spec.Identity == nil || export.Spec.Identity.SecretRef == nil {
		export.Spec.Identity = &apisv1alpha2.Identity{SecretRef: &ref}
		export.Generation++
		changed = true
	}
	if reference(export) != ref {
		return changed
	}
	before := export.Status.DeepCopy()
	hash, condition := identity.Verify(export.Status.IdentityHash, ref, secret)
	export.Status.IdentityHash = hash
	conditions.Set(&export.Status.Conditions, condition)
	return changed || !equality.Semantic.DeepEqual(before, &export.Status)
}

// ensureSlice creates the endpoint slice of an export, unless its provider has opted out.
func (r *reconciler) ensureSlice(ctx context.Context, export *apisv1alpha2.APIExport) error {
	if _, skip := export.Annotations[apisv1alpha2.SkipEndpointSliceAnnotation]; skip {
		return nil
	}
	key, err := informers.KeyOf(export)
	if err != nil {
		return err
	}
	if _, err := r.Set.APIExportEndpointSlices.Get(key.Cluster, "", key.Name); !apierrors.IsNotFound(err) {
		return err
	}
	slice := &apisv1alpha1.APIExportEndpointSlice{
		TypeMeta:   metav1.TypeMeta{APIVersion: apisv1alpha1.SchemeGroupVersion.String(), Kind: "APIExportEndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{Name: export.Name},
		Spec: apisv1alpha1.APIExportEndpointSliceSpec{Export: apisv1alpha2.ExportBindingReference{Name: export.Name,
			Path: export.Annotations[corev1alpha1.PathAnnotation]}},
	}
	slice.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(export, apisv1alpha2.SchemeGroupVersion.WithKind("APIExport"))}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(slice)
	if err != nil {
		return err
	}
	delete(content, "status")
	_, err = r.Dynamic.Resource(slices).Create(ctx, &unstructured.Unstructured{Object: content}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
