package admission

import (
	"context"
	"maps"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/internal/tenancy/claims"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// permissionClaims labels objects with the claims that their cluster accepts for them. The server manages these labels and drops the values
// that clients write.
type permissionClaims struct{ rules }

var (
	_ admission.MutationInterface   = permissionClaims{}
	_ admission.ValidationInterface = permissionClaims{}
)

type claimKey struct{}

// WithClaim returns a context whose writes are on behalf of a claim: an object gets the labels that selector requires, or is refused if it
// has others.
func WithClaim(ctx context.Context, selector *apisv1alpha2.PermissionClaimSelector) context.Context {
	return context.WithValue(ctx, claimKey{}, selector)
}

// byClaim reports whether the writes of a context are on behalf of a claim.
func byClaim(ctx context.Context) bool { return ctx.Value(claimKey{}) != nil }

// objectSubresources are the subresources whose objects are those of the resource, with labels: several built-in types store the labels
// from there.
var objectSubresources = map[string]bool{"": true, "status": true, "finalize": true, "approval": true}

// Admit implements admission.MutationInterface.
func (p permissionClaims) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	m, wanted, err := p.wanted(ctx, a)
	if err != nil || m == nil || maps.Equal(m.GetLabels(), wanted) {
		return err
	}
	m.SetLabels(wanted)
	return nil
}

// Validate implements admission.ValidationInterface. It refuses objects whose labels were changed after Admit.
func (p permissionClaims) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	m, wanted, err := p.wanted(ctx, a)
	if err != nil || m == nil || maps.Equal(m.GetLabels(), wanted) {
		return err
	}
	return forbidden(a, "the labels %s* are managed by the server and cannot be changed", apisv1alpha2.ClaimedLabelPrefix)
}

// wanted returns the metadata of the object of a request and the labels that it must have. The metadata is nil if no labels are required.
func (p permissionClaims) wanted(ctx context.Context, a admission.Attributes) (metav1.Object, map[string]string, error) {
	if !objectSubresources[a.GetSubresource()] || a.GetObject() == nil || isReview(a) {
		return nil, nil, nil
	}
	m, err := meta.Accessor(a.GetObject())
	if err != nil {
		return nil, nil, nil // an object without metadata
	}
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return nil, nil, err
	}
	p.config.Set.APIBindings.Current(ctx, cluster)
	labels := m.GetLabels()
	if selector, ok := ctx.Value(claimKey{}).(*apisv1alpha2.PermissionClaimSelector); ok {
		if labels, err = claims.Complete(selector, labels); err != nil {
			return nil, nil, forbidden(a, "%w", err)
		}
	}
	resource := a.GetResource().GroupResource()
	if resource == apisv1alpha2.Resource("apibindings") {
		return p.ofBinding(cluster, a, m, labels)
	}
	return m, claims.RequiredLabels(p.config.Exports, cluster, resource, labels), nil
}

// ofBinding is wanted for a binding, which the provider of its export can always read.
func (p permissionClaims) ofBinding(cluster logicalcluster.Name, a admission.Attributes, m metav1.Object,
	labels map[string]string) (metav1.Object, map[string]string, error) {
	b := &apisv1alpha2.APIBinding{}
	r, err := exportOf(a)
	if err != nil {
		return nil, nil, err
	}
	b.Name, b.Labels = m.GetName(), labels
	b.Spec.Reference.Export = r
	b.Annotations = map[string]string{logicalcluster.AnnotationKey: string(cluster)}
	return m, claims.RequiredLabelsOfBinding(p.config.Exports, cluster, b), nil
}
