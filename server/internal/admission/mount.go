package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
)

// mountOf returns the mount of a new workspace: the one in its spec, or the one in the annotation that manifests for older servers use. It
// is nil if the workspace is not mounted.
func mountOf(ws *tenancyv1alpha1.Workspace) (*tenancyv1alpha1.Mount, error) {
	text, given := ws.Annotations[tenancyv1alpha1.MountAnnotation]
	if ws.Spec.Mount != nil || !given {
		return ws.Spec.Mount, nil
	}
	var legacy struct {
		Spec   tenancyv1alpha1.Mount `json:"spec"`
		Status json.RawMessage       `json:"status"` // ignored: the object itself has the status
	}
	decoder := json.NewDecoder(bytes.NewBufferString(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&legacy); err != nil {
		return nil, fmt.Errorf(
			`annotation %s is invalid, want {"spec": {"ref": {"apiVersion": …, "kind": …, "name": …}}}, or set spec.mount: %w`,
			tenancyv1alpha1.MountAnnotation,
			err,
		)
	}
	return &legacy.Spec, nil
}

// mountProblem returns why a reference to the object that a workspace is mounted from is invalid, or an empty string if it is valid.
// Built-in types have no status.URL, and reading their objects would reveal which of them exist.
func mountProblem(ref tenancyv1alpha1.ObjectReference) string {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	switch {
	case err != nil || gv.Version == "" || ref.Kind == "" || ref.Name == "":
		return "spec.mount.ref needs apiVersion, as <group>/<version>, kind and name"
	case legacyscheme.Scheme.Recognizes(gv.WithKind(ref.Kind)):
		return "spec.mount.ref refers to a built-in type; a custom resource with status.URL and status.phase is required"
	}
	return ""
}

// checkMount refuses a mount from an object that the user may not get, because the workspace shows its URL and phase. The resource of a
// kind that is not served yet is unknown: mounting from it requires permission to get all resources of its group.
func (w workspaceRules) checkMount(ctx context.Context, a admission.Attributes, ref tenancyv1alpha1.ObjectReference) error {
	mapper, err := w.config.currentMapper(ctx)
	if err != nil {
		return err
	}
	gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	resource, name := gvk.GroupVersion().WithResource("*"), ""
	switch mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version); {
	case err == nil:
		resource, name = mapping.Resource, ref.Name
	case !meta.IsNoMatchError(err):
		return err
	}
	allowed := w.allows(ctx, a, authorizer.AttributesRecord{
		Verb: "get", APIGroup: resource.Group, APIVersion: resource.Version, Resource: resource.Resource, Namespace: ref.Namespace, Name: name,
	})
	switch {
	case allowed:
		return nil
	case name == "":
		return forbidden(a, "kind %s of %s is not served in this workspace: mounting from it requires verb='get' permission on all "+
			"resources of its group", ref.Kind, ref.APIVersion)
	}
	return forbidden(a, "unable to mount from %s %s: missing verb='get' permission on %s", ref.Kind, ref.Name, resource.GroupResource())
}
