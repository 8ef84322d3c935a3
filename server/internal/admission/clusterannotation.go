package admission

import (
	"context"
	"maps"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// clusterAnnotation sets the annotation that the storage sets when it stores an object. With it, later plugins, webhooks and dry runs see
// the annotation too.
type clusterAnnotation struct{ rules }

var _ admission.MutationInterface = clusterAnnotation{}

// Admit implements admission.MutationInterface.
func (clusterAnnotation) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return err
	}
	m, err := meta.Accessor(a.GetObject())
	if err != nil || isReview(a) || (a.GetSubresource() != "" && a.GetSubresource() != "status") {
		return nil // not an object that is stored under this name
	}
	annotate(m, logicalcluster.AnnotationKey, string(cluster))
	return nil
}

// annotate sets an annotation of an object. It replaces the map of annotations, which other objects may share.
func annotate(m metav1.Object, key, value string) {
	if m.GetAnnotations()[key] == value {
		return
	}
	annotations := maps.Clone(m.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	m.SetAnnotations(annotations)
}
