package cacheserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
)

// read returns the body of a request.
func read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the limit is %d bytes", maxBody))
	case err != nil:
		return nil, apierrors.NewBadRequest("reading the body: " + err.Error())
	}
	return body, nil
}

// mediaType returns an error unless the body of a request has a media type.
func mediaType(r *http.Request, want string) error {
	got, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err == nil && got == want || r.Header.Get("Content-Type") == "" && want == runtime.ContentTypeJSON {
		return nil
	}
	return status(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType, "%s requires the media type %s", r.Method, want)
}

// decode parses and validates an object of r. Only metadata is validated: without valid metadata, the object could not be read.
func (r *resource) decode(ctx context.Context, body []byte) (*unstructured.Unstructured, error) {
	decoded, err := runtime.Decode(unstructured.UnstructuredJSONScheme, body)
	if err != nil {
		return nil, apierrors.NewBadRequest("decoding the object: " + err.Error())
	}
	obj, ok := decoded.(*unstructured.Unstructured)
	if !ok {
		return nil, apierrors.NewBadRequest("the body is a list: send one object")
	}
	if got := obj.GroupVersionKind(); got.GroupVersion() != r.gvr.GroupVersion() || r.kind != "" && got.Kind != r.kind {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the object is a %s of %s, which %s of %s does not store", got.Kind, got.GroupVersion(),
			r.gvr.Resource, r.gvr.GroupVersion()))
	}
	return obj, r.validate(ctx, obj)
}

func (r *resource) validate(ctx context.Context, obj *unstructured.Unstructured) error {
	content, ok := obj.Object["metadata"].(map[string]any)
	if !ok {
		return apierrors.NewBadRequest("metadata must be an object")
	}
	var m metav1.ObjectMeta
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, &m); err != nil {
		return apierrors.NewBadRequest("metadata: " + err.Error())
	}
	namespace := request.NamespaceValue(ctx)
	if m.Name == "" {
		return apierrors.NewBadRequest("metadata.name is required: the cache server does not generate names")
	}
	if m.Namespace != namespace {
		return apierrors.NewBadRequest(fmt.Sprintf("metadata.namespace is %q, and the namespace of the request %q", m.Namespace, namespace))
	}
	m.GenerateName, m.ManagedFields = "", nil
	errs := validation.ValidateObjectMeta(&m, namespace != "", validPathSegment, field.NewPath("metadata"))
	if len(errs) > 0 {
		return apierrors.NewInvalid(obj.GroupVersionKind().GroupKind(), m.Name, errs)
	}
	if _, err := positionOf(m.Annotations); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}

// nameIn returns the name of the object in a body; empty if there is none.
func nameIn(body []byte) string {
	var m metav1.PartialObjectMetadata
	if json.Unmarshal(body, &m) != nil {
		return ""
	}
	return m.Name
}

// clean removes what only another server or the writer can use.
func clean(obj *unstructured.Unstructured) {
	obj.SetManagedFields(nil)
	obj.SetSelfLink("")
	obj.SetGenerateName("")
	obj.SetDeletionTimestamp(nil)
	obj.SetDeletionGracePeriodSeconds(nil)
}

// create stores a new object.
func (r *resource) create(ctx context.Context, body []byte, now metav1.Time) (*unstructured.Unstructured, error) {
	obj, err := r.decode(ctx, body)
	if err != nil {
		return nil, err
	}
	if obj.GetResourceVersion() != "" {
		return nil, apierrors.NewBadRequest("metadata.resourceVersion must not be set on an object to be created")
	}
	clean(obj)
	obj.SetUID(uuid.NewUUID())
	obj.SetCreationTimestamp(now)
	out := &unstructured.Unstructured{}
	err = r.storage.Create(ctx, key(ctx, obj.GetName()), obj, out, 0)
	return out, r.api(err, obj.GetName())
}

// update replaces an object.
func (r *resource) update(ctx context.Context, name string, body []byte) (*unstructured.Unstructured, error) {
	obj, err := r.decode(ctx, body)
	if err != nil {
		return nil, err
	}
	return r.change(ctx, name, func(*unstructured.Unstructured) (*unstructured.Unstructured, error) { return obj.DeepCopy(), nil })
}

// patch changes the fields of an object that are in a merge patch.
func (r *resource) patch(ctx context.Context, name string, body []byte) (*unstructured.Unstructured, error) {
	if !json.Valid(body) {
		return nil, apierrors.NewBadRequest("the body is not JSON")
	}
	return r.change(ctx, name, func(stored *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		base := stored.DeepCopy()
		base.SetResourceVersion("") // without one in the patch, the patch applies to every version
		content, err := base.MarshalJSON()
		if err != nil {
			return nil, err
		}
		patched, err := jsonpatch.MergePatch(content, body)
		if err != nil {
			return nil, apierrors.NewBadRequest("applying the patch: " + err.Error())
		}
		return r.decode(ctx, patched)
	})
}

// change replaces the stored object by the result of next, if that is newer.
func (r *resource) change(ctx context.Context, name string,
	next func(stored *unstructured.Unstructured) (*unstructured.Unstructured, error)) (*unstructured.Unstructured, error) {
	replace := func(current runtime.Object) (runtime.Object, error) {
		stored := current.(*unstructured.Unstructured)
		obj, err := next(stored)
		if err != nil {
			return nil, err
		}
		if err := r.replaces(name, obj, stored); err != nil {
			return nil, err
		}
		clean(obj)
		obj.SetUID(stored.GetUID())
		obj.SetCreationTimestamp(stored.GetCreationTimestamp())
		obj.SetResourceVersion("")
		return obj, nil
	}
	out := &unstructured.Unstructured{}
	err := r.storage.GuaranteedUpdate(ctx, key(ctx, name), out, false, nil, storage.SimpleUpdate(replace), nil)
	return out, r.api(err, name)
}

// replaces returns an error if obj may not replace the stored object.
func (r *resource) replaces(name string, obj, stored *unstructured.Unstructured) error {
	of := r.gvr.GroupResource()
	if obj.GetName() != name {
		return apierrors.NewBadRequest(fmt.Sprintf("metadata.name is %q, and the name of the request %q", obj.GetName(), name))
	}
	if uid := obj.GetUID(); uid != "" && uid != stored.GetUID() {
		return apierrors.NewConflict(of, name, fmt.Errorf("its UID is %s, not %s", stored.GetUID(), uid))
	}
	if version := obj.GetResourceVersion(); version != "" && version != stored.GetResourceVersion() {
		return apierrors.NewConflict(of, name, fmt.Errorf("its resource version is %s, not %s: read it again", stored.GetResourceVersion(),
			version))
	}
	offered, err := positionOf(obj.GetAnnotations())
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	had, _ := positionOf(stored.GetAnnotations()) // valid when it was stored
	if err := offered.supersedes(had); err != nil {
		return apierrors.NewConflict(of, name, err)
	}
	return nil
}

// remove deletes an object, whatever its finalizers.
func (r *resource) remove(ctx context.Context, name string, body []byte) (*unstructured.Unstructured, error) {
	options := metav1.DeleteOptions{}
	if len(body) > 0 {
		if err := json.Unmarshal(body, &options); err != nil {
			return nil, apierrors.NewBadRequest("decoding the options: " + err.Error())
		}
	}
	if len(options.DryRun) > 0 {
		return nil, errDryRun
	}
	var preconditions storage.Preconditions
	if p := options.Preconditions; p != nil {
		preconditions = storage.Preconditions{UID: (*types.UID)(p.UID), ResourceVersion: p.ResourceVersion}
	}
	out := &unstructured.Unstructured{}
	err := r.storage.Delete(ctx, key(ctx, name), out, &preconditions, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{})
	return out, r.api(err, name)
}

var errDryRun = apierrors.NewBadRequest("the cache server does not support dry runs")

// validPathSegment is a validation.ValidateNameFunc: a name can be a part of a path.
func validPathSegment(name string, _ bool) []string { return content.IsPathSegmentName(name) }
