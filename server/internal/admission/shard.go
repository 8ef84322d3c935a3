package admission

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
)

// shardDefaults sets the URLs of a Shard that are empty to its base URL.
type shardDefaults struct{ rules }

var _ admission.MutationInterface = shardDefaults{}

// Admit implements admission.MutationInterface.
func (shardDefaults) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != corev1alpha1.Resource("shards") || a.GetSubresource() != "" {
		return nil
	}
	u, ok := a.GetObject().(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("%w: %T", errUnexpected, a.GetObject())
	}
	base, _, _ := unstructured.NestedString(u.Object, "spec", "baseURL")
	for _, field := range []string{"externalURL", "virtualWorkspaceURL"} {
		if value, _, _ := unstructured.NestedString(u.Object, "spec", field); value == "" && base != "" {
			if err := unstructured.SetNestedField(u.Object, base, "spec", field); err != nil {
				return err
			}
		}
	}
	return nil
}

// deletedName returns the name of the object of a deletion. Attributes of a collection have none: its objects are validated one by one.
func deletedName(a admission.Attributes) string {
	if a.GetName() != "" || a.GetOldObject() == nil {
		return a.GetName()
	}
	m, err := meta.Accessor(a.GetOldObject())
	if err != nil {
		return ""
	}
	return m.GetName()
}

// shardDeletion refuses the deletion of a Shard that holds logical clusters.
type shardDeletion struct{ rules }

var _ admission.ValidationInterface = shardDeletion{}

// Handles implements admission.Interface.
func (shardDeletion) Handles(op admission.Operation) bool { return op == admission.Delete }

// Validate implements admission.ValidationInterface.
func (s shardDeletion) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	name := deletedName(a)
	if a.GetResource().GroupResource() != corev1alpha1.Resource("shards") || name == "" ||
		annotations(a.GetOldObject())[corev1alpha1.DeleteWithPlacementsAnnotation] == "true" {
		return nil
	}
	if held := s.config.Placed(ctx, name); held > 0 {
		return forbidden(a, "the shard holds %d logical clusters: delete or move them first. If the shard is lost, its logical clusters are "+
			"lost too: set the annotation %s=true", held, corev1alpha1.DeleteWithPlacementsAnnotation)
	}
	return nil
}
