package customresources

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/utils/ptr"
)

// pods has one object, web. It records the options of deletions.
type pods struct{ deleted []metav1.DeleteOptions }

func (p *pods) Get(_ context.Context, name string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	if name != "web" {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, name)
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "web", "namespace": "default", "uid": "1234"}}}, nil
}

func (p *pods) Delete(_ context.Context, _ string, options metav1.DeleteOptions, _ ...string) error {
	p.deleted = append(p.deleted, options)
	return nil
}

// deletions is an admission plugin that records deletions, and refuses those with a dry run.
type deletions struct {
	admission.Interface
	seen []admission.Attributes
}

func (*deletions) Handles(operation admission.Operation) bool { return operation == admission.Delete }

func (d *deletions) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if d.seen = append(d.seen, a); a.IsDryRun() {
		return admission.NewForbidden(a, nil)
	}
	return nil
}

func TestADeletionIsAdmittedWithTheObjectThatIsDeleted(t *testing.T) {
	d := &Definition{CRD: &apiextensionsv1.CustomResourceDefinition{}}
	d.CRD.Spec.Names.Kind = "Pod"
	plugin, stored := &deletions{}, &pods{}
	h := &Handler{config: Config{Admission: plugin, MaxRequestBodyBytes: 1 << 10}}
	remove := func(path, body string) error {
		r, info := requestFor(t, http.MethodDelete, path)
		r.Body = io.NopCloser(strings.NewReader(body))
		_, err := h.deleteAdmitted(r, d, info, stored)
		return err
	}
	const web = "/api/v1/namespaces/default/pods/web"
	if err := remove(web, `{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":5,"propagationPolicy":"Background"}`); err != nil {
		t.Fatal(err)
	}
	if a := plugin.seen[0]; a.GetOldObject() == nil || a.GetObject() != nil || a.GetName() != "web" || a.GetNamespace() != "default" ||
		a.GetResource() != (schema.GroupVersionResource{Version: "v1", Resource: "pods"}) || a.GetKind().Kind != "Pod" ||
		a.GetUserInfo().GetName() != "jane" || a.GetOperation() != admission.Delete || a.GetOperationOptions() == nil {
		t.Errorf("admission gets %v", a)
	}
	if o := stored.deleted[0]; ptr.Deref(o.GracePeriodSeconds, 0) != 5 || ptr.Deref(o.PropagationPolicy, "") != "Background" ||
		o.Preconditions == nil || ptr.Deref(o.Preconditions.UID, "") != "1234" {
		t.Errorf("the options are %+v", o)
	}
	if err := remove(web, `{"preconditions":{"uid":"other"}}`); err != nil || *stored.deleted[1].Preconditions.UID != "other" {
		t.Errorf("got %v with the options %+v", err, stored.deleted[1])
	}
	for body, is := range map[string]func(error) bool{
		`{"dryRun":["All"]}`:               apierrors.IsForbidden, // by the plugin
		`{"dryRun":["Some"]}`:              apierrors.IsInvalid,
		`{"gracePeriodSeconds":`:           apierrors.IsBadRequest,
		`{"kind":"Pod","apiVersion":"v1"}`: apierrors.IsBadRequest,
		strings.Repeat(" ", 2<<10):         apierrors.IsRequestEntityTooLargeError,
	} {
		if err := remove(web, body); !is(err) {
			t.Errorf("with the body %.40s: got %v", body, err)
		}
	}
	if err := remove("/api/v1/namespaces/default/pods/none", ""); !apierrors.IsNotFound(err) {
		t.Errorf("a pod that does not exist: %v", err)
	}
	if len(stored.deleted) != 2 {
		t.Errorf("%d objects are deleted, want 2", len(stored.deleted))
	}
}

func TestOptionsOfADeletionWithoutABodyAreInTheQuery(t *testing.T) {
	r, _ := requestFor(t, http.MethodDelete, "/api/v1/namespaces/default/pods/web")
	r.URL.RawQuery = "gracePeriodSeconds=7&dryRun=All"
	options, err := deleteOptions(r, 1<<10)
	if err != nil || ptr.Deref(options.GracePeriodSeconds, 0) != 7 || len(options.DryRun) != 1 {
		t.Errorf("got %+v, %v", options, err)
	}
}

func TestOnlySingleObjectsAreDeletedElsewhere(t *testing.T) {
	for path, want := range map[string]bool{
		"/api/v1/namespaces/default/pods/web": true, "/api/v1/namespaces/default/pods": false, "/api/v1/namespaces/default/pods/web/status": false,
	} {
		if _, info := requestFor(t, http.MethodDelete, path); isDeletion(info) != want {
			t.Errorf("%s: %t", path, !want)
		}
	}
}
