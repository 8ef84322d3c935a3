package customresources

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	names "k8s.io/apimachinery/pkg/api/validate/content"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/util/dryrun"
	"k8s.io/utils/ptr"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// This file deletes objects of virtual resources, if their provider allows it in the endpoint slice. Upstream's handler cannot: it marks
// objects that have finalizers, or a time to end, with an update, which is what the virtual workspace of the provider does itself.

// isDeletion reports whether a request deletes objects.
func isDeletion(info *request.RequestInfo) bool {
	return (info.Verb == "delete" || info.Verb == "deletecollection") && info.Subresource == ""
}

// anyForm accepts requests for metadata or tables. A deletion returns a Status in all forms, as in Kubernetes.
type anyForm struct {
	negotiation.EndpointRestrictions
}

// AllowsMediaTypeTransform implements negotiation.EndpointRestrictions.
func (anyForm) AllowsMediaTypeTransform(_, _ string, kind *schema.GroupVersionKind) bool {
	return kind == nil || (kind.Group == metav1.GroupName && (kind.Kind == "PartialObjectMetadata" || kind.Kind == "Table"))
}

// delete deletes an object at the virtual workspace of its provider. The request was authorized in the cluster of its context.
func (h *Handler) delete(w http.ResponseWriter, r *http.Request, d *Definition, info *request.RequestInfo) {
	form := anyForm{negotiation.DefaultEndpointRestrictions}
	if _, _, err := negotiation.NegotiateOutputMediaType(r, apiextensionsapiserver.Codecs, form); err != nil {
		fail(w, r, err)
		return
	}
	deleted, err := h.deleteElsewhere(r, d, info)
	if err != nil {
		fail(w, r, err)
		return
	}
	status := &metav1.Status{Status: metav1.StatusSuccess, Details: &metav1.StatusDetails{
		Name: info.Name, Group: info.APIGroup, Kind: info.Resource, UID: deleted.GetUID(),
	}}
	responsewriters.WriteObjectNegotiated(apiextensionsapiserver.Codecs, form, schema.GroupVersion{Version: "v1"}, w, r, http.StatusOK, status,
		false)
}

// deleteElsewhere is delete without the response. It returns the object as it was.
func (h *Handler) deleteElsewhere(r *http.Request, d *Definition, info *request.RequestInfo) (*unstructured.Unstructured, error) {
	resource := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
	_, ok := h.config.Cached.EndpointSlice(d.shownBy.Cluster, d.shownBy.Name, resource)
	if _, inView := viewFrom(r.Context()); !ok || inView || h.config.Endpoints == nil {
		return nil, readOnly(resource, info.Verb)
	}
	if _, err := logicalcluster.NameFrom(r.Context()); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s: use the name of one logical cluster", resource))
	}
	r, err := withHops(r)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	o, err := h.origin(r.Context(), d)
	if err != nil {
		return nil, err
	}
	if o.elsewhere == nil || !o.elsewhere.deletes {
		return nil, readOnly(resource, info.Verb)
	}
	if err := deletable(d, info); err != nil {
		return nil, err
	}
	objects, err := h.config.Endpoints.Objects(o.elsewhere.url, o.version.WithResource(info.Resource))
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return h.deleteAdmitted(r, d, info, objects(info.Namespace))
}

// deletable returns an error if a request cannot name an object of a definition.
func deletable(d *Definition, info *request.RequestInfo) error {
	resource := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
	if info.Verb == "deletecollection" {
		err := apierrors.NewMethodNotSupported(resource, info.Verb)
		err.ErrStatus.Message = fmt.Sprintf("%s: deletecollection is not supported here: delete the objects one by one", resource)
		return err
	}
	for _, part := range []string{info.Namespace, info.Name} {
		if errs := names.IsPathSegmentName(part); len(errs) > 0 {
			return apierrors.NewBadRequest(fmt.Sprintf("%s: invalid name %q: %s", resource, part, strings.Join(errs, ", ")))
		}
	}
	if !d.Serves(info.APIVersion) || !d.Reaches(info.Namespace) {
		return apierrors.NewNotFound(resource, info.Name)
	}
	return nil
}

// deleteAdmitted deletes an object if the policies of the cluster of a request allow it.
func (h *Handler) deleteAdmitted(r *http.Request, d *Definition, info *request.RequestInfo, objects Objects) (*unstructured.Unstructured,
	error) {
	options, err := deleteOptions(r, info, h.config.MaxRequestBodyBytes)
	if err != nil {
		return nil, err
	}
	existing, err := objects.Get(r.Context(), info.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if err := met(options.Preconditions, info, existing); err != nil {
		return nil, err
	}
	if err := h.admitDeletion(r, d, info, existing, options); err != nil {
		return nil, err
	}
	passed := *options
	passed.TypeMeta = metav1.TypeMeta{}
	passed.Preconditions = &metav1.Preconditions{UID: ptr.To(existing.GetUID())} // another object of the same name was not admitted
	if p := options.Preconditions; p != nil {
		passed.Preconditions.ResourceVersion = p.ResourceVersion
	}
	return existing, objects.Delete(r.Context(), info.Name, passed)
}

// met returns an error if an object does not have the UID or the version that a request requires.
func met(p *metav1.Preconditions, info *request.RequestInfo, existing *unstructured.Unstructured) error {
	var err error
	if p != nil && p.UID != nil && *p.UID != existing.GetUID() {
		err = fmt.Errorf("the UID in the precondition is %s, and the UID of the object is %s", *p.UID, existing.GetUID())
	}
	if p != nil && p.ResourceVersion != nil && *p.ResourceVersion != existing.GetResourceVersion() {
		err = fmt.Errorf("the resourceVersion in the precondition is %s, and that of the object is %s", *p.ResourceVersion,
			existing.GetResourceVersion())
	}
	if err != nil {
		return apierrors.NewConflict(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}, info.Name, err)
	}
	return nil
}

// deleteOptions returns the options in the body of a request, or in its query if it has none. Those in the body are in the audit event.
func deleteOptions(r *http.Request, info *request.RequestInfo, most int64) (*metav1.DeleteOptions, error) {
	options := &metav1.DeleteOptions{}
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, most))
	if large := (&http.MaxBytesError{}); errors.As(err, &large) {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", large.Limit))
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if len(body) == 0 {
		err = metainternalversionscheme.ParameterCodec.DecodeParameters(r.URL.Query(), metav1.SchemeGroupVersion, options)
	} else {
		err = decodeDeleteOptions(r, info, body, options)
	}
	if status := apierrors.APIStatus(nil); err != nil && !errors.As(err, &status) {
		err = apierrors.NewBadRequest(err.Error())
	}
	if err != nil {
		return nil, err
	}
	options.IgnoreStoreReadErrorWithClusterBreakingPotential = nil // it concerns the storage, which only the provider knows
	if errs := validation.ValidateDeleteOptions(options); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "DeleteOptions"}, "", errs)
	}
	options.SetGroupVersionKind(deleteOptionsKind)
	return options, nil
}

var deleteOptionsKind = metav1.SchemeGroupVersion.WithKind("DeleteOptions")

// decodeDeleteOptions decodes the body of a request.
func decodeDeleteOptions(r *http.Request, info *request.RequestInfo, body []byte, options *metav1.DeleteOptions) error {
	codecs := metainternalversionscheme.Codecs
	serializer, err := negotiation.NegotiateInputSerializer(r, false, codecs)
	if err != nil {
		return err
	}
	decoder := codecs.DecoderToVersion(serializer.Serializer, metav1.SchemeGroupVersion)
	decoded, kind, err := decoder.Decode(body, &deleteOptionsKind, options)
	if err != nil {
		return err
	}
	if decoded != options {
		return apierrors.NewBadRequest(fmt.Sprintf("the body has the kind %s, want DeleteOptions", kind.Kind))
	}
	version := schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
	audit.LogRequestObject(r.Context(), options, kind.GroupVersion(), version.WithResource(info.Resource), "", codecs)
	return nil
}

// admitDeletion applies the policies and webhooks of the cluster of a request. They see the object in the version of the request.
func (h *Handler) admitDeletion(r *http.Request, d *Definition, info *request.RequestInfo, existing *unstructured.Unstructured,
	options *metav1.DeleteOptions) error {
	if h.config.Admission == nil || !h.config.Admission.Handles(admission.Delete) {
		return nil
	}
	who, _ := request.UserFrom(r.Context())
	version := schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
	old := runtime.Object(existing)
	if existing.GroupVersionKind().GroupVersion() != version {
		objects, err := h.admissionObjects(d)
		if err == nil {
			old, err = objects.GetObjectConvertor().ConvertToVersion(existing, version)
		}
		if err != nil {
			return apierrors.NewInternalError(fmt.Errorf("converting %s %s to version %s: %w", info.Resource, info.Name, info.APIVersion, err))
		}
	}
	return h.admit(r.Context(), d, admission.NewAttributesRecord(nil, old, version.WithKind(d.CRD.Spec.Names.Kind), info.Namespace, info.Name,
		version.WithResource(info.Resource), "", admission.Delete, options, dryrun.IsDryRun(options.DryRun), who))
}
