package customresources

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/util/dryrun"
	"k8s.io/utils/ptr"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// This file deletes objects of virtual resources, if their provider allows it in the endpoint slice. Upstream's handler cannot: it marks
// objects that have finalizers, or a time to end, with an update, which is what the virtual workspace of the provider does itself.

// isDeletion reports whether a request deletes one object.
func isDeletion(info *request.RequestInfo) bool {
	return info.Verb == "delete" && info.Subresource == ""
}

// delete deletes an object at the virtual workspace of its provider. The request was authorized in the cluster of its context.
func (h *Handler) delete(w http.ResponseWriter, r *http.Request, d *Definition, info *request.RequestInfo) {
	deleted, err := h.deleteElsewhere(r, d, info)
	if err != nil {
		fail(w, r, err)
		return
	}
	status := &metav1.Status{Status: metav1.StatusSuccess, Details: &metav1.StatusDetails{
		Name: info.Name, Group: info.APIGroup, Kind: info.Resource, UID: deleted.GetUID(),
	}}
	responsewriters.WriteObjectNegotiated(apiextensionsapiserver.Codecs, negotiation.DefaultEndpointRestrictions,
		schema.GroupVersion{Version: "v1"}, w, r, http.StatusOK, status, false)
}

// deleteElsewhere is delete without the response. It returns the object as it was.
func (h *Handler) deleteElsewhere(r *http.Request, d *Definition, info *request.RequestInfo) (*unstructured.Unstructured, error) {
	resource := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
	slice, ok := h.config.Cached.EndpointSlice(d.shownBy.Cluster, d.shownBy.Name, resource)
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
	allowed, err := h.config.Endpoints.Deletes(r.Context(), d.shownBy.Cluster, slice)
	if err != nil {
		return nil, unavailable(d, err)
	}
	if !allowed {
		return nil, readOnly(resource, info.Verb)
	}
	o, err := h.origin(r.Context(), d)
	if err != nil {
		return nil, err
	}
	namespaced := d.CRD.Spec.Scope == apiextensionsv1.NamespaceScoped
	if o.elsewhere == nil || o.version.Version != info.APIVersion || namespaced != (info.Namespace != "") {
		return nil, apierrors.NewNotFound(resource, info.Name)
	}
	objects, err := h.config.Endpoints.Objects(o.elsewhere.url, o.version.WithResource(info.Resource))
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return h.deleteAdmitted(r, d, info, objects(info.Namespace))
}

// deleteAdmitted deletes an object if the policies of the cluster of a request allow it.
func (h *Handler) deleteAdmitted(r *http.Request, d *Definition, info *request.RequestInfo, objects Objects) (*unstructured.Unstructured,
	error) {
	options, err := deleteOptions(r, h.config.MaxRequestBodyBytes)
	if err != nil {
		return nil, err
	}
	existing, err := objects.Get(r.Context(), info.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if err := h.admitDeletion(r, d, info, existing, options); err != nil {
		return nil, err
	}
	if options.Preconditions == nil {
		options.Preconditions = &metav1.Preconditions{}
	}
	if options.Preconditions.UID == nil {
		options.Preconditions.UID = ptr.To(existing.GetUID()) // another object of the same name was not admitted
	}
	return existing, objects.Delete(r.Context(), info.Name, *options)
}

// deleteOptions returns the options in the body of a request, or in its query if it has none.
func deleteOptions(r *http.Request, most int64) (*metav1.DeleteOptions, error) {
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
		serializer, failed := negotiation.NegotiateInputSerializer(r, false, metainternalversionscheme.Codecs)
		if failed != nil {
			return nil, failed
		}
		kind := metav1.SchemeGroupVersion.WithKind("DeleteOptions")
		decoder := metainternalversionscheme.Codecs.DecoderToVersion(serializer.Serializer, metav1.SchemeGroupVersion)
		_, _, err = decoder.Decode(body, &kind, options)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if errs := validation.ValidateDeleteOptions(options); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "DeleteOptions"}, "", errs)
	}
	options.TypeMeta = metav1.TypeMeta{}
	return options, nil
}

// admitDeletion applies the policies and webhooks of the cluster of a request.
func (h *Handler) admitDeletion(r *http.Request, d *Definition, info *request.RequestInfo, existing *unstructured.Unstructured,
	options *metav1.DeleteOptions) error {
	if h.config.Admission == nil || !h.config.Admission.Handles(admission.Delete) {
		return nil
	}
	who, _ := request.UserFrom(r.Context())
	version := schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
	attributes := admission.NewAttributesRecord(nil, existing, version.WithKind(d.CRD.Spec.Names.Kind), info.Namespace, info.Name,
		version.WithResource(info.Resource), "", admission.Delete, options, dryrun.IsDryRun(options.DryRun), who)
	scheme := admission.NewObjectInterfacesFromScheme(apiextensionsapiserver.Scheme)
	if mutator, ok := h.config.Admission.(admission.MutationInterface); ok {
		if err := mutator.Admit(r.Context(), attributes, scheme); err != nil {
			return err
		}
	}
	if validator, ok := h.config.Admission.(admission.ValidationInterface); ok {
		return validator.Validate(r.Context(), attributes, scheme)
	}
	return nil
}
