package apibinding

import (
	"context"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// copySchema copies a schema and its conversion rules, under the UID of the schema. The copies outlive the provider.
func (r *reconciler) copySchema(ctx context.Context, s *apisv1alpha1.APIResourceSchema) error {
	ctx = logicalcluster.WithName(ctx, logicalcluster.SystemBoundCRDs)
	if err := r.copyConversion(ctx, s); err != nil {
		return err
	}
	found, err := r.Set.APIResourceSchemas.Get(logicalcluster.SystemBoundCRDs, "", string(s.UID))
	if err == nil && found.Annotations[apisv1alpha2.UnusedSinceAnnotation] != "" {
		err = r.markUsed(ctx, found.Name) // before it is deleted
	}
	if !apierrors.IsNotFound(err) {
		return err
	}
	kept := &apisv1alpha1.APIResourceSchema{
		TypeMeta: metav1.TypeMeta{APIVersion: apisv1alpha1.SchemeGroupVersion.String(), Kind: "APIResourceSchema"},
		ObjectMeta: metav1.ObjectMeta{
			Name: string(s.UID), UID: uuid.NewUUID(), CreationTimestamp: metav1.NewTime(r.Clock.Now()), Generation: 1,
			Annotations: map[string]string{
				apisv1alpha2.BoundCRDAnnotation: "", apisv1alpha2.SchemaClusterAnnotation: string(logicalcluster.Of(s)),
				apisv1alpha2.SchemaNameAnnotation: s.Name,
			},
		},
		Spec: *s.Spec.DeepCopy(),
	}
	err = r.Schemas.Create(ctx, kept.Name, kept)
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// markUsed removes the mark of an unused copy of a schema.
func (r *reconciler) markUsed(ctx context.Context, name string) error {
	return r.Schemas.Update(ctx, name, &apisv1alpha1.APIResourceSchema{}, func(obj runtime.Object) error {
		delete(obj.(*apisv1alpha1.APIResourceSchema).Annotations, apisv1alpha2.UnusedSinceAnnotation)
		return nil
	})
}

// copyConversion copies the current conversion rules of a schema. A copy remains after its original was deleted.
func (r *reconciler) copyConversion(ctx context.Context, s *apisv1alpha1.APIResourceSchema) error {
	rules, err := r.Set.APIConversions.Get(logicalcluster.Of(s), "", s.Name)
	if err != nil {
		return runner.IgnoreNotFound(err)
	}
	name := string(s.UID)
	kept, err := r.Set.APIConversions.Get(logicalcluster.SystemBoundCRDs, "", name)
	switch {
	case apierrors.IsNotFound(err):
		err = r.Conversions.Create(ctx, name, &apisv1alpha1.APIConversion{
			TypeMeta:   metav1.TypeMeta{APIVersion: apisv1alpha1.SchemeGroupVersion.String(), Kind: "APIConversion"},
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: uuid.NewUUID(), CreationTimestamp: metav1.NewTime(r.Clock.Now()), Generation: 1},
			Spec:       *rules.Spec.DeepCopy(),
		})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	case err != nil || reflect.DeepEqual(kept.Spec, rules.Spec):
		return err
	}
	return r.Conversions.Update(ctx, name, &apisv1alpha1.APIConversion{}, func(obj runtime.Object) error {
		obj.(*apisv1alpha1.APIConversion).Spec = *rules.Spec.DeepCopy()
		return nil
	})
}
