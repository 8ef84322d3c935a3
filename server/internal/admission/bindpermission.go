package admission

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apiserver/pkg/admission"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/internal/tenancy/exports"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// bindPermission lets users bind an export, or list its endpoints, if the provider grants them the verb bind. It labels bindings with their
// export, and adds the finalizer that keeps them until their objects are deleted.
type bindPermission struct{ rules }

var (
	_ admission.MutationInterface   = bindPermission{}
	_ admission.ValidationInterface = bindPermission{}
)

func isAPIBinding(a admission.Attributes) bool {
	return a.GetResource().GroupResource() == apisv1alpha2.Resource("apibindings") && a.GetSubresource() == ""
}

func isEndpointSlice(a admission.Attributes) bool {
	resource := a.GetResource().GroupResource()
	return (resource == apisv1alpha1.Resource("apiexportendpointslices") || resource == cachedSlice) && a.GetSubresource() == ""
}

// reference has the fields that refer to an export. Both versions of both kinds have them in the same place.
type reference struct {
	Spec struct {
		Reference struct {
			Export *apisv1alpha2.ExportBindingReference `json:"export"`
		} `json:"reference"`
		Export *apisv1alpha2.ExportBindingReference `json:"export"`
	} `json:"spec"`
}

// exportOf returns the export that an object refers to, or nil if it refers to none.
func exportOf(a admission.Attributes) (*apisv1alpha2.ExportBindingReference, error) {
	r := &reference{}
	if err := decode(a.GetObject(), r); err != nil {
		return nil, err
	}
	if isEndpointSlice(a) {
		return r.Spec.Export, nil
	}
	return r.Spec.Reference.Export, nil
}

// Admit implements admission.MutationInterface.
func (p bindPermission) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !isAPIBinding(a) {
		return nil
	}
	m, err := meta.Accessor(a.GetObject())
	if err != nil {
		return fmt.Errorf("%w: %w", errUnexpected, err)
	}
	if m.GetDeletionTimestamp() != nil {
		return nil
	}
	if a.GetOperation() == admission.Create && !slices.Contains(m.GetFinalizers(), apisv1alpha2.APIBindingFinalizer) {
		m.SetFinalizers(append(m.GetFinalizers(), apisv1alpha2.APIBindingFinalizer))
	}
	export, err := exportOf(a)
	if err != nil || export == nil {
		return err
	}
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return err
	}
	labels := m.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	delete(labels, apisv1alpha2.ExportLabel)
	of, ok, err := p.config.cluster(ctx, cluster, export.Path)
	if err != nil {
		return err
	}
	if ok {
		key, value := exports.BindingLabel(of, export.Name)
		labels[key] = value
	}
	m.SetLabels(labels)
	return nil
}

// Validate implements admission.ValidationInterface.
func (p bindPermission) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	verb := "create"
	switch {
	case isEndpointSlice(a) && a.GetOperation() == admission.Create:
	case isAPIBinding(a) && a.GetOperation() == admission.Create:
	case isAPIBinding(a):
		verb = "update"
		if m, err := meta.Accessor(a.GetObject()); err != nil || m.GetDeletionTimestamp() != nil || (p.unchanged(a) && !byClaim(ctx)) {
			return err
		}
	default:
		return nil
	}
	if isExempt(ctx, a) {
		return nil
	}
	export, err := exportOf(a)
	if err != nil || export == nil {
		return err
	}
	from, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return err
	}
	path := export.Path
	if path == "" {
		path = p.config.Tree.Path(from)
	}
	cluster, ok, err := p.config.cluster(ctx, from, export.Path)
	if err == nil && ok {
		ok, err = p.mayBind(ctx, a, cluster, apisv1alpha2.Resource("apiexports"), export.Name)
	}
	if err == nil && ok && isEndpointSlice(a) { // a binding may be created before its export
		ok, err = p.exportExists(ctx, cluster, export.Name)
	}
	if err != nil || ok {
		return err
	}
	return forbidden(a, "unable to %s %s: no permission to bind to export %s:%s", verb, a.GetKind().Kind, path, export.Name)
}

func (r rules) exportExists(ctx context.Context, cluster logicalcluster.Name, name string) (bool, error) {
	r.config.Set.APIExports.Current(ctx, cluster)
	return r.config.References.Exists(ctx, cluster, apisv1alpha2.Resource("apiexports"), name, func() bool {
		_, err := r.config.Exports.Get(cluster, name)
		return !apierrors.IsNotFound(err)
	})
}

// unchanged reports whether an update keeps the reference. Such an update does not require the permission to bind, unless a provider makes
// it by a claim on bindings.
func (p bindPermission) unchanged(a admission.Attributes) bool {
	now, old := &reference{}, &reference{}
	if decode(a.GetObject(), now) != nil || decode(a.GetOldObject(), old) != nil {
		return false
	}
	return now.Spec.Reference.Export != nil && old.Spec.Reference.Export != nil && *now.Spec.Reference.Export == *old.Spec.Reference.Export
}
