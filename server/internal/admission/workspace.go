package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/internal/tenancy/workspacetypes"
	"github.com/kcplane/kcp/server/logicalcluster"
)

var workspaceResource = tenancyv1alpha1.Resource("workspaces")

// workspaceRules sets owner and type of a new Workspace, and protects the fields and annotations that only the system may set.
type workspaceRules struct{ rules }

var (
	_ admission.MutationInterface   = workspaceRules{}
	_ admission.ValidationInterface = workspaceRules{}
)

// isWorkspace reports whether the object of a request is a Workspace. Subresources count too.
func isWorkspace(a admission.Attributes) bool {
	return a.GetResource().GroupResource() == workspaceResource
}

func isPrivileged(ctx context.Context, a admission.Attributes) bool {
	return slices.Contains(authorization.GroupsIn(ctx, a.GetUserInfo()), user.SystemPrivilegedGroup)
}

// Admit implements admission.MutationInterface.
func (w workspaceRules) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !isWorkspace(a) || a.GetSubresource() != "" || a.GetOperation() != admission.Create {
		return nil
	}
	u, ok := a.GetObject().(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("%w: %T", errUnexpected, a.GetObject())
	}
	parent, err := w.parent(ctx)
	if err != nil {
		return err
	}
	written, err := systemAnnotations(ctx, a, parent)
	if err != nil {
		return err
	}
	u.SetAnnotations(withSystem(u.GetAnnotations(), written))
	ws := &tenancyv1alpha1.Workspace{}
	if err := decode(u, ws); err != nil {
		return err
	}
	mount, err := mountOf(ws)
	if err != nil {
		return forbidden(a, "%w", err)
	}
	if mount != nil && ws.Spec.Mount == nil {
		ref, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&mount.Reference)
		if err != nil {
			return err
		}
		if err := unstructured.SetNestedMap(u.Object, ref, "spec", "mount", "ref"); err != nil {
			return err
		}
	}
	if mount != nil && ws.Spec.Type == nil {
		return nil
	}
	types := w.config.Types.Current(ctx)
	of, err := w.typeOf(ctx, a, types, parent, ws)
	if err != nil {
		return err
	}
	aliases, err := types.Aliases(of)
	if err != nil {
		return refusal(a, err)
	}
	labels := u.GetLabels()
	for key, value := range workspacetypes.Labels(aliases) {
		if _, ok := labels[key]; !ok {
			if labels == nil {
				labels = map[string]string{}
			}
			labels[key] = value
		}
	}
	if len(labels) > 0 {
		u.SetLabels(labels)
	}
	path := of.Path
	if ws.Spec.Type != nil && ws.Spec.Type.Path != "" {
		path = ws.Spec.Type.Path // may be the name of a logical cluster; clients expect the value that they sent
	}
	return unstructured.SetNestedMap(u.Object, map[string]any{"name": of.Name, "path": path}, "spec", "type")
}

// parent returns the LogicalCluster of the workspace that contains the new workspace.
func (w workspaceRules) parent(ctx context.Context) (*corev1alpha1.LogicalCluster, error) {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return nil, err
	}
	w.config.Set.LogicalClusters.Current(ctx, cluster)
	return w.config.Set.LogicalClusters.Get(cluster, "", corev1alpha1.LogicalClusterName)
}

// systemAnnotations returns the annotations that the system sets on a new workspace: its owner, the groups that users must have, and its
// place, which is decided later. The value is empty for annotations that the workspace must not have. Privileged users may set these
// annotations themselves: the result does not include those.
func systemAnnotations(ctx context.Context, a admission.Attributes, parent *corev1alpha1.LogicalCluster) (map[string]string, error) {
	given := annotations(a.GetObject())
	written := map[string]string{}
	if _, ok := given[tenancyv1alpha1.OwnerAnnotation]; !ok || !isPrivileged(ctx, a) {
		creator := a.GetUserInfo()
		info := authenticationv1.UserInfo{Username: creator.GetName(), UID: creator.GetUID(), Groups: creator.GetGroups()}
		for key, values := range creator.GetExtra() {
			if info.Extra == nil {
				info.Extra = map[string]authenticationv1.ExtraValue{}
			}
			info.Extra[key] = values
		}
		owner, err := json.Marshal(info)
		if err != nil {
			return nil, err
		}
		written[tenancyv1alpha1.OwnerAnnotation] = string(owner)
	}
	if groups := parent.Annotations[corev1alpha1.RequiredGroupsAnnotation]; groups != "" {
		if _, ok := given[corev1alpha1.RequiredGroupsAnnotation]; !ok || !isPrivileged(ctx, a) {
			written[corev1alpha1.RequiredGroupsAnnotation] = groups
		}
	}
	if !isPrivileged(ctx, a) {
		for _, key := range placeAnnotations {
			written[key] = ""
		}
	}
	return written, nil
}

// placeAnnotations record the logical cluster and the shard of a workspace, also before the workspace is created there.
var placeAnnotations = []string{
	tenancyv1alpha1.ClusterAnnotation, tenancyv1alpha1.ShardAnnotation, tenancyv1alpha1.ShardHashAnnotation, tenancyv1alpha1.EpochAnnotation,
	tenancyv1alpha1.ClusterUIDAnnotation,
}

// withSystem returns annotations with those of the system. It removes annotations for which the system has an empty value.
func withSystem(given, written map[string]string) map[string]string {
	result := maps.Clone(given)
	if result == nil {
		result = map[string]string{}
	}
	for key, value := range written {
		if result[key] = value; value == "" {
			delete(result, key)
		}
	}
	return result
}

// checkSystemAnnotations refuses a new workspace if a policy or webhook has changed an annotation of the system after Admit.
func checkSystemAnnotations(ctx context.Context, a admission.Attributes, parent *corev1alpha1.LogicalCluster) error {
	written, err := systemAnnotations(ctx, a, parent)
	if err != nil {
		return err
	}
	given := annotations(a.GetObject())
	for key, value := range written {
		if given[key] != value {
			return forbidden(a, "annotation %s is set by the system", key)
		}
	}
	return nil
}

// typeOf returns the type in the spec of a new workspace, or the default for children that the type of its parent has.
func (w workspaceRules) typeOf(
	ctx context.Context, a admission.Attributes, types *workspacetypes.Types, parent *corev1alpha1.LogicalCluster,
	ws *tenancyv1alpha1.Workspace,
) (workspacetypes.Type, error) {
	cluster, ref := logicalcluster.Of(parent), tenancyv1alpha1.WorkspaceTypeReference{Name: "universal", Path: string(logicalcluster.Root)}
	if ws.Spec.Type != nil {
		return w.findType(ctx, a, types, cluster, *ws.Spec.Type)
	}
	parentType, ok, err := types.Resolve(parent)
	if err != nil {
		return workspacetypes.Type{}, err
	}
	if ok && parentType.Spec.DefaultChildWorkspaceType != nil {
		ref = *parentType.Spec.DefaultChildWorkspaceType
		cluster = parentType.Cluster
	}
	return w.findType(ctx, a, types, cluster, ref)
}

// Validate implements admission.ValidationInterface.
func (w workspaceRules) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !isWorkspace(a) {
		return nil
	}
	ws, old := &tenancyv1alpha1.Workspace{}, &tenancyv1alpha1.Workspace{}
	if err := decodeBoth(a, ws, old); err != nil {
		return err
	}
	if problem := workspaceProblem(ctx, a, old, ws); problem != "" {
		return forbidden(a, "%s", problem)
	}
	if a.GetOperation() != admission.Create || a.GetSubresource() != "" {
		return nil
	}
	// A validation rule in the schema would cost ten times as much.
	if problems := validation.IsDNS1123Label(ws.Name); len(problems) > 0 {
		return invalid(a, field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), ws.Name,
			"the name of a workspace must be a label: "+problems[0])})
	}
	parent, err := w.parent(ctx)
	if err != nil {
		return err
	}
	if err := checkSystemAnnotations(ctx, a, parent); err != nil {
		return err
	}
	if ws.Spec.Mount != nil {
		if err := w.checkMount(ctx, a, ws.Spec.Mount.Reference); err != nil {
			return err
		}
	}
	if ws.Spec.Type == nil {
		return nil
	}
	return w.checkType(ctx, a, parent, *ws.Spec.Type)
}

// workspaceProblem returns why a write of a workspace is refused, or an empty string if it is admitted.
func workspaceProblem(ctx context.Context, a admission.Attributes, old, ws *tenancyv1alpha1.Workspace) string {
	creating := a.GetOperation() == admission.Create
	switch {
	case ws.Status.Phase == corev1alpha1.LogicalClusterPhaseReady && ws.Spec.Mount == nil && (ws.Spec.Cluster == "" || ws.Spec.URL == ""):
		return "spec.cluster and spec.URL must be set for phase Ready"
	case !creating && !reflect.DeepEqual(old.Spec.Type, ws.Spec.Type):
		return "spec.type is immutable"
	case !creating && !reflect.DeepEqual(old.Spec.Mount, ws.Spec.Mount):
		return "spec.mount is immutable"
	case creating && ws.Spec.Mount != nil && mountProblem(ws.Spec.Mount.Reference) != "":
		return mountProblem(ws.Spec.Mount.Reference)
	case isPrivileged(ctx, a):
		return ""
	case old.Spec.Cluster != ws.Spec.Cluster:
		return "spec.cluster can only be set by system privileged users"
	case old.Spec.URL != ws.Spec.URL:
		return "spec.URL can only be set by system privileged users"
	case creating && ws.Spec.Mount != nil && ws.Spec.Type != nil:
		return "spec.type and spec.mount are mutually exclusive"
	case !creating && old.Annotations[tenancyv1alpha1.OwnerAnnotation] != ws.Annotations[tenancyv1alpha1.OwnerAnnotation]:
		return "annotation " + tenancyv1alpha1.OwnerAnnotation + " is immutable"
	case !creating && old.Annotations[corev1alpha1.RequiredGroupsAnnotation] != ws.Annotations[corev1alpha1.RequiredGroupsAnnotation]:
		return "annotation " + corev1alpha1.RequiredGroupsAnnotation + " is immutable"
	case !creating && old.Annotations[tenancyv1alpha1.MountAnnotation] != ws.Annotations[tenancyv1alpha1.MountAnnotation]:
		return "annotation " + tenancyv1alpha1.MountAnnotation + " is immutable: a workspace can be mounted only when it is created"
	case !creating && slices.ContainsFunc(placeAnnotations, func(key string) bool { return old.Annotations[key] != ws.Annotations[key] }):
		return "the annotations " + strings.Join(placeAnnotations, ", ") + " are set by the system"
	case !creating && slices.Contains(old.Finalizers, tenancyv1alpha1.LogicalClusterFinalizer) &&
		!slices.Contains(ws.Finalizers, tenancyv1alpha1.LogicalClusterFinalizer):
		return "finalizer " + tenancyv1alpha1.LogicalClusterFinalizer + " is removed by the system when the logical cluster is deleted"
	case !reflect.DeepEqual(old.Status, ws.Status) && a.GetSubresource() == "status":
		return "the status of a workspace is set by the system"
	}
	return ""
}

// checkType refuses a type that is not allowed below the type of the parent, or that the user may not use.
func (w workspaceRules) checkType(ctx context.Context, a admission.Attributes, parent *corev1alpha1.LogicalCluster,
	ref tenancyv1alpha1.WorkspaceTypeReference) error {
	types := w.config.Types.Current(ctx)
	of, err := types.Find(logicalcluster.Of(parent), ref)
	if err != nil {
		return refusal(a, err)
	}
	aliases, err := types.Aliases(of)
	if err != nil {
		return refusal(a, err)
	}
	if err := w.checkUse(ctx, a, aliases); err != nil {
		return err
	}
	parentType, ok, err := types.Resolve(parent)
	if err != nil || !ok {
		return err
	}
	parents, err := types.Aliases(parentType)
	if err != nil {
		return refusal(a, err)
	}
	if err := workspacetypes.CheckPlace(parents, aliases); err != nil {
		return forbidden(a, "%w", err)
	}
	return nil
}
