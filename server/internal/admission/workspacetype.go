package admission

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/tenancy/workspacetypes"
	"github.com/kcplane/kcp/server/logicalcluster"
)

var workspaceTypeResource = tenancyv1alpha1.Resource("workspacetypes")

// reservedTypeNames have another meaning in references.
var reservedTypeNames = []string{"any", "system"}

// workspaceTypeRules makes references absolute, and refuses types that cannot be used.
type workspaceTypeRules struct{ rules }

var (
	_ admission.MutationInterface   = workspaceTypeRules{}
	_ admission.ValidationInterface = workspaceTypeRules{}
)

func isWorkspaceType(a admission.Attributes) bool {
	return a.GetResource().GroupResource() == workspaceTypeResource && a.GetSubresource() == ""
}

// referenceFields are the fields of a WorkspaceType that are lists of references.
var referenceFields = [][]string{
	{"spec", "extend", "with"}, {"spec", "limitAllowedChildren", "types"}, {"spec", "limitAllowedParents", "types"},
	{"spec", "defaultAPIBindings"},
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
		return forbidden(a, "the workspace type root can be created in the workspace root only")
	}
	if isExempt(ctx, a) {
		return nil
	}
	types, of := w.config.Types.Current(ctx), workspacetypes.Type{WorkspaceType: wt, Cluster: cluster, Path: w.config.Tree.Path(cluster)}
	for _, ref := range wt.Spec.Extend.With {
		if ref != of.Reference() && !slices.Contains(old.Spec.Extend.With, ref) {
			if err := w.checkExtend(ctx, a, types, cluster, ref); err != nil {
				return err
			}
		}
	}
	if _, err := types.Aliases(of); err != nil {
		return refusal(a, err)
	}
	for _, binding := range wt.Spec.DefaultAPIBindings {
		if !slices.Contains(old.Spec.DefaultAPIBindings, binding) {
			if err := w.checkBind(ctx, a, cluster, binding); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkExtend refuses to extend a type that the user may not use: all workspaces of the extending type, also existing ones, get the default
// bindings of the extended type.
func (w workspaceTypeRules) checkExtend(
	ctx context.Context, a admission.Attributes, types *workspacetypes.Types, cluster logicalcluster.Name,
	ref tenancyv1alpha1.WorkspaceTypeReference,
) error {
	extended, err := w.findType(ctx, a, types, cluster, ref)
	if err != nil {
		return err
	}
	aliases, err := types.Aliases(extended)
	if err != nil {
		return refusal(a, err)
	}
	return w.checkUse(ctx, a, aliases)
}

// findType returns a type that the user may use. It refuses a type that does not exist at a path with the same message, unless the user
// would be allowed to use it.
func (r rules) findType(
	ctx context.Context, a admission.Attributes, types *workspacetypes.Types, from logicalcluster.Name,
	ref tenancyv1alpha1.WorkspaceTypeReference,
) (workspacetypes.Type, error) {
	of, problem := types.Find(from, ref)
	if problem == nil {
		return of, r.checkUse(ctx, a, []workspacetypes.Type{of})
	}
	if ref.Path == "" {
		return of, refusal(a, problem)
	}
	cluster, ok, err := r.config.cluster(ctx, from, ref.Path)
	if err != nil || !ok {
		return of, refusal(a, problem)
	}
	allowed, err := r.mayUse(ctx, a, cluster, ref.Name)
	if err != nil {
		return of, err
	}
	if !allowed {
		ref.Path = r.config.Tree.Path(cluster)
		return of, mayNotUse(a, ref)
	}
	return of, refusal(a, problem)
}

// checkUse refuses types that the user may not use. It checks the last one first, because that extends the others.
func (r rules) checkUse(ctx context.Context, a admission.Attributes, aliases []workspacetypes.Type) error {
	for _, alias := range slices.Backward(aliases) {
		allowed, err := r.mayUse(ctx, a, alias.Cluster, alias.Name)
		if err != nil {
			return err
		}
		if !allowed {
			return mayNotUse(a, alias.Reference())
		}
	}
	return nil
}

func mayNotUse(a admission.Attributes, ref tenancyv1alpha1.WorkspaceTypeReference) error {
	return forbidden(a, "unable to use workspace type %s: missing verb='use' permission on workspacetype", ref)
}

// mayUse reports whether the user of a request may use a workspace type of a cluster. Access to the cluster is not required.
func (r rules) mayUse(ctx context.Context, a admission.Attributes, cluster logicalcluster.Name, name string) (bool, error) {
	return r.decides(ctx, a, cluster, authorizer.AttributesRecord{
		Verb: "use", APIGroup: workspaceTypeResource.Group, APIVersion: tenancyv1alpha1.SchemeGroupVersion.Version,
		Resource: workspaceTypeResource.Resource, Name: name,
	})
}

// checkBind refuses a default binding to an export that the user may not bind. The message is the same for an export that does not exist.
func (w workspaceTypeRules) checkBind(ctx context.Context, a admission.Attributes, in logicalcluster.Name,
	binding tenancyv1alpha1.APIExportReference) error {
	cluster, ok, err := w.config.cluster(ctx, in, binding.Path)
	if err == nil && ok {
		ok, err = w.mayBind(ctx, a, cluster, apisv1alpha2.Resource("apiexports"), binding.Export)
	}
	if err != nil || ok {
		return err
	}
	return forbidden(a, "unable to use APIExport %s:%s as a default binding: no permission to bind", binding.Path, binding.Export)
}

// pathResources always have the annotation with their path, which other workspaces use to refer to them.
var pathResources = []schema.GroupResource{workspaceTypeResource, apisv1alpha2.Resource("apiexports"),
	apisv1alpha2.Resource("apibindings"), cachedResource}

// pathAnnotation keeps the annotation kcp.io/path correct on objects of pathResources and on all other objects that have it.
type pathAnnotation struct{ rules }

var _ admission.MutationInterface = pathAnnotation{}

// Admit implements admission.MutationInterface.
func (p pathAnnotation) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetSubresource() != "" || isReview(a) || a.GetResource().GroupResource() == logicalClusterResource {
		return nil // the paths of all other objects are derived from that of the LogicalCluster
	}
	m, err := meta.Accessor(a.GetObject())
	if err != nil {
		return nil
	}
	if _, found := m.GetAnnotations()[corev1alpha1.PathAnnotation]; !found &&
		!slices.Contains(pathResources, a.GetResource().GroupResource()) {
		return nil
	}
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return err
	}
	annotate(m, corev1alpha1.PathAnnotation, p.config.Tree.Path(cluster))
	return nil
}
