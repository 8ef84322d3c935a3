package admission

import (
	"context"
	"maps"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// clusterAnnotation shows the later plugins, webhooks among them, and dry runs the annotation that storage will set.
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
		return nil // nothing that is stored under this name
	}
	if m.GetAnnotations()[logicalcluster.AnnotationKey] == string(cluster) {
		return nil
	}
	annotations := maps.Clone(m.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[logicalcluster.AnnotationKey] = string(cluster)
	m.SetAnnotations(annotations)
	return nil
}
