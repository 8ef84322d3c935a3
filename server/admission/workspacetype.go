package admission

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/logicalcluster"
	"github.com/kcplane/kcp/server/workspacetypes"
)

var workspaceTypeResource = tenancyv1alpha1.Resource("workspacetypes")

// reservedTypeNames mean something else in references.
var reservedTypeNames = []string{"any", "system"}

// workspaceTypeRules make references absolute, and refuse types that nobody could use.
type workspaceTypeRules struct{ rules }

var (
	_ admission.MutationInterface   = workspaceTypeRules{}
	_ admission.ValidationInterface = workspaceTypeRules{}
)

func isWorkspaceType(a admission.Attributes) bool {
	return a.GetResource().GroupResource() == workspaceTypeResource && a.GetSubresource() == ""
}

// referenceFields are where a WorkspaceType refers to others, as lists.
var referenceFields = [][]string{
	{"spec", "extend", "with"}, {"spec", "limitAllowedChildren", "types"}, {"spec", "limitAllowedParents", "types"}, {"spec", "defaultAPIBindings"},
}

// Admit implements admission.MutationInterface.
func (w workspaceTypeRules) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !isWorkspaceType(a) {
		return nil
	}
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return err
	}
	u, ok := a.GetObject().(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("%w: %T", errUnexpected, a.GetObject())
	}
	path := w.config.Tree.Path(cluster)
	complete := func(ref any) {
		if m, ok := ref.(map[string]any); ok && (m["path"] == nil || m["path"] == "") {
			m["path"] = path
		}
	}
	for _, field := range referenceFields {
		if refs, found, _ := unstructured.NestedFieldNoCopy(u.Object, field...); found {
			list, _ := refs.([]any)
			for _, ref := range list {
				complete(ref)
			}
		}
	}
	if ref, found, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "defaultChildWorkspaceType"); found {
		complete(ref)
	}
	return nil
}

// Validate implements admission.ValidationInterface.
func (w workspaceTypeRules) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !isWorkspaceType(a) {
		return nil
	}
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return err
	}
	wt, old := &tenancyv1alpha1.WorkspaceType{}, &tenancyv1alpha1.WorkspaceType{}
	if err := decodeBoth(a, wt, old); err != nil {
		return err
	}
	switch {
	case slices.Contains(reservedTypeNames, wt.Name):
		return forbidden(a, "name is reserved")
	case wt.Name == string(logicalcluster.Root) && cluster != logicalcluster.Root:
		return forbidden(a, "the workspace type root exists in the workspace root only")
	}
	if isExempt(ctx, a) {
		return nil
	}
	if _, err := w.config.Types.Current(ctx).Aliases(workspacetypes.Type{WorkspaceType: wt, Cluster: cluster, Path: w.config.Tree.Path(cluster)}); err != nil {
		return forbidden(a, "%w", err)
	}
	for _, binding := range wt.Spec.DefaultAPIBindings {
		if !slices.Contains(old.Spec.DefaultAPIBindings, binding) {
			if err := w.checkBind(ctx, a, binding); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkBind refuses a default binding to an export that the user may not bind. It says the same of one that is not there.
func (w workspaceTypeRules) checkBind(ctx context.Context, a admission.Attributes, binding tenancyv1alpha1.APIExportReference) error {
	refused := forbidden(a, "unable to use APIExport %s:%s as a default binding: no permission to bind", binding.Path, binding.Export)
	w.config.Tree.Current(ctx, binding.Path)
	place, ok := w.config.Tree.Lookup(binding.Path)
	if !ok || place.Cluster == "" || !w.mayBind(ctx, a, place.Cluster, apisv1alpha2.Resource("apiexports"), binding.Export) {
		return refused
	}
	return nil
}

// pathResources always carry their path: other workspaces refer to them by it.
var pathResources = []schema.GroupResource{workspaceTypeResource, apisv1alpha2.Resource("apiexports"), apisv1alpha2.Resource("apibindings"), cachedResource}

// pathAnnotation keeps the annotation kcp.io/path true, on types that need it and on whatever carries it.
type pathAnnotation struct{ rules }

var _ admission.MutationInterface = pathAnnotation{}

// Admit implements admission.MutationInterface.
func (p pathAnnotation) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetSubresource() != "" || isReview(a) || a.GetResource().GroupResource() == logicalClusterResource {
		return nil // the path of a LogicalCluster is where all others come from
	}
	m, err := meta.Accessor(a.GetObject())
	if err != nil {
		return nil
	}
	if _, carried := m.GetAnnotations()[corev1alpha1.PathAnnotation]; !carried && !slices.Contains(pathResources, a.GetResource().GroupResource()) {
		return nil
	}
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return err
	}
	annotate(m, corev1alpha1.PathAnnotation, p.config.Tree.Path(cluster))
	return nil
}
