package customresources

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/ptr"
)

// pods has one object, web. It records the options of deletions.
type pods struct{ deleted []metav1.DeleteOptions }

func (p *pods) Get(_ context.Context, name string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	if name != "web" {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, name)
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "web", "namespace": "default", "uid": "1234",
			"resourceVersion": "7"}}}, nil
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
	d, plugin, stored := podDefinition(), &deletions{}, &pods{}
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
		a.GetUserInfo().GetName() != "jane" || a.GetOperation() != admission.Delete ||
		a.GetOperationOptions().GetObjectKind().GroupVersionKind() != metav1.SchemeGroupVersion.WithKind("DeleteOptions") {
		t.Errorf("admission gets %v", a)
	}
	if o := stored.deleted[0]; ptr.Deref(o.GracePeriodSeconds, 0) != 5 || ptr.Deref(o.PropagationPolicy, "") != "Background" ||
		o.Preconditions == nil || ptr.Deref(o.Preconditions.UID, "") != "1234" {
		t.Errorf("the options are %+v", o)
	}
	if err := remove(web, `{"preconditions":{"uid":"1234","resourceVersion":"7"}}`); err != nil ||
		*stored.deleted[1].Preconditions.ResourceVersion != "7" {
		t.Errorf("got %v with the options %+v", err, stored.deleted[1])
	}
	for body, is := range map[string]func(error) bool{
		`{"dryRun":["All"]}`:                        apierrors.IsForbidden, // by the plugin
		`{"dryRun":["Some"]}`:                       apierrors.IsInvalid,
		`{"gracePeriodSeconds":`:                    apierrors.IsBadRequest,
		`{"kind":"Pod","apiVersion":"v1"}`:          apierrors.IsBadRequest,
		`{"kind":"Status","apiVersion":"v1"}`:       apierrors.IsBadRequest,
		`{"preconditions":{"uid":"other"}}`:         apierrors.IsConflict,
		`{"preconditions":{"resourceVersion":"6"}}`: apierrors.IsConflict,
		strings.Repeat(" ", 2<<10):                  apierrors.IsRequestEntityTooLargeError,
	} {
		if err := remove(web, body); !is(err) {
			t.Errorf("with the body %.40s: got %v", body, err)
		}
	}
	if err := remove("/api/v1/namespaces/default/pods/none", ""); !apierrors.IsNotFound(err) {
		t.Errorf("a pod that does not exist: %v", err)
	}
	if len(stored.deleted) != 2 || len(plugin.seen) != 3 {
		t.Errorf("%d objects are deleted, want 2, and %d deletions are admitted or refused, want 3", len(stored.deleted), len(plugin.seen))
	}
}

// podDefinition is a definition of pods with the versions v1, which is stored, and v2. Version v3 is not served.
func podDefinition() *Definition {
	d := &Definition{CRD: &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Scope: apiextensionsv1.NamespaceScoped, Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "pods", Kind: "Pod"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
			{Name: "v1", Served: true, Storage: true}, {Name: "v2", Served: true}, {Name: "v3"},
		},
		Conversion: &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter},
	}}}
	return d
}

// policy is an admission plugin that refuses what matches a rule for one version of pods, as Kubernetes matches policies. It annotates the
// audit event.
type policy struct {
	admission.Interface
	version, resource string
	operation         admissionregistrationv1.OperationType
	seen              []*admission.VersionedAttributes
}

func (*policy) Handles(admission.Operation) bool { return true }

func (*policy) GetParsedNamespaceSelector() (labels.Selector, error) { return labels.Everything(), nil }

func (*policy) GetParsedObjectSelector() (labels.Selector, error) { return labels.Everything(), nil }

func (p *policy) GetMatchResources() admissionregistrationv1.MatchResources {
	return admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
		RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{p.operation},
			Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{p.version}, Resources: []string{p.resource},
				Scope: ptr.To(admissionregistrationv1.AllScopes)},
		},
	}}, MatchPolicy: ptr.To(admissionregistrationv1.Equivalent)}
}

func (p *policy) Validate(_ context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	matches, _, kind, err := matching.NewMatcher(nil, nil).Matches(a, o, p)
	if err != nil || !matches {
		return err
	}
	seen, err := admission.NewVersionedAttributes(a, kind, o)
	if err != nil {
		return err
	}
	p.seen = append(p.seen, seen)
	if err := a.AddAnnotation("example.org/policy", "refused"); err != nil {
		return err
	}
	return admission.NewForbidden(a, nil)
}

func TestPoliciesOnOtherVersionsApplyToDeletionsAndConnections(t *testing.T) {
	for _, version := range []string{"v1", "v2", "v3"} {
		d, stored := podDefinition(), &pods{}
		plugin := &policy{version: version, resource: "pods", operation: admissionregistrationv1.Delete}
		h := &Handler{config: Config{Admission: plugin, MaxRequestBodyBytes: 1 << 10}}
		for _, requested := range []string{"v1", "v2"} {
			r, info := requestFor(t, http.MethodDelete, "/api/"+requested+"/namespaces/default/pods/web")
			if _, err := h.deleteAdmitted(r, d, info, stored); !apierrors.IsForbidden(err) || len(stored.deleted) > 0 {
				t.Fatalf("a policy on %s, a request in %s: got %v", version, requested, err)
			}
			seen := plugin.seen[len(plugin.seen)-1]
			old, err := meta.Accessor(seen.VersionedOldObject.Object())
			if err != nil || old.GetName() != "web" || seen.VersionedOldObject.Object().GetObjectKind().GroupVersionKind().Version != version ||
				seen.GetOldObject().GetObjectKind().GroupVersionKind().Version != requested {
				t.Errorf("a policy on %s, a request in %s: the policy gets %v, %v", version, requested, seen.VersionedOldObject.Object(), err)
			}
		}
		plugin.resource, plugin.operation = "pods/exec", admissionregistrationv1.Connect
		r, info := requestFor(t, http.MethodPost, "/api/v1/namespaces/default/pods/web/exec")
		if err := h.admitConnection(r, d, info); !apierrors.IsForbidden(err) {
			t.Errorf("a policy on connections in %s: got %v", version, err)
		}
	}
}

// sink keeps audit events.
type sink struct{ events []*auditinternal.Event }

func (s *sink) ProcessEvents(events ...*auditinternal.Event) bool {
	for _, event := range events {
		s.events = append(s.events, event.DeepCopy())
	}
	return true
}

func TestTheAuditEventOfADeletionHasItsOptionsAndTheAnnotationsOfPolicies(t *testing.T) {
	h := &Handler{config: Config{MaxRequestBodyBytes: 1 << 10, Admission: &policy{version: "v1", resource: "pods",
		operation: admissionregistrationv1.Delete}}}
	r, info := requestFor(t, http.MethodDelete, "/api/v1/namespaces/default/pods/web")
	r.Body = io.NopCloser(strings.NewReader(`{"gracePeriodSeconds":5}`))
	ctx, to := audit.WithAuditContext(r.Context()), &sink{}
	event := audit.AuditContextFrom(ctx)
	if err := event.Init(audit.RequestAuditConfig{Level: auditinternal.LevelRequest}, to); err != nil {
		t.Fatal(err)
	}
	audit.LogRequestMetadata(ctx, r, time.Now(), authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "jane"}, ResourceRequest: true})
	if _, err := h.deleteAdmitted(r.WithContext(ctx), podDefinition(), info, &pods{}); !apierrors.IsForbidden(err) {
		t.Fatal(err)
	}
	event.ProcessEventStage(ctx, auditinternal.StageResponseComplete)
	if len(to.events) != 1 {
		t.Fatalf("got %d events", len(to.events))
	}
	if got := to.events[0]; got.Annotations["example.org/policy"] != "refused" {
		t.Errorf("the annotations are %v", got.Annotations)
	} else if got.RequestObject == nil || !strings.Contains(string(got.RequestObject.Raw), `"gracePeriodSeconds":5`) {
		t.Errorf("the options are %v", got.RequestObject)
	}
}

func TestAFormThatTheServerCannotReturnPreventsADeletion(t *testing.T) {
	for accept, want := range map[string]bool{
		"image/png": false, "application/json;as=Scale;g=autoscaling;v=v1": false,
		"application/json": true, "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1": true,
		"application/json;as=Table;g=meta.k8s.io;v=v1,application/json": true,
	} {
		r, info := requestFor(t, http.MethodDelete, "/api/v1/namespaces/default/pods/web")
		r.Header.Set("Accept", accept)
		reached := func() (reached bool) {
			defer func() { reached = recover() != nil }() // a handler without Cached
			w := httptest.NewRecorder()
			(&Handler{}).delete(w, r, podDefinition(), info)
			if w.Code != http.StatusNotAcceptable {
				t.Errorf("%s: got the status %d", accept, w.Code)
			}
			return
		}()
		if reached != want {
			t.Errorf("%s: the deletion proceeds: %t", accept, reached)
		}
	}
}

func TestADeletionNamesOneObjectThatTheDefinitionServes(t *testing.T) {
	for path, is := range map[string]func(error) bool{
		"/api/v1/namespaces/default/pods/web": func(err error) bool { return err == nil },
		"/api/v2/namespaces/default/pods/web": func(err error) bool { return err == nil },
		"/api/v3/namespaces/default/pods/web": apierrors.IsNotFound,
		"/api/v1/pods/web":                    apierrors.IsNotFound,
		"/api/v1/namespaces/default/pods/..":  apierrors.IsBadRequest,
		"/api/v1/namespaces/default/pods/a%b": apierrors.IsBadRequest,
		"/api/v1/namespaces/../pods/web":      apierrors.IsBadRequest,
		"/api/v1/namespaces/default/pods":     apierrors.IsMethodNotSupported,
	} {
		if _, info := requestFor(t, http.MethodDelete, path); !is(deletable(podDefinition(), info)) {
			t.Errorf("%s: got %v", path, deletable(podDefinition(), info))
		}
	}
}

func TestOptionsOfADeletionWithoutABodyAreInTheQuery(t *testing.T) {
	r, info := requestFor(t, http.MethodDelete, "/api/v1/namespaces/default/pods/web")
	r.URL.RawQuery = "gracePeriodSeconds=7&dryRun=All&ignoreStoreReadErrorWithClusterBreakingPotential=true"
	options, err := deleteOptions(r, info, 1<<10)
	if err != nil || ptr.Deref(options.GracePeriodSeconds, 0) != 7 || len(options.DryRun) != 1 ||
		options.IgnoreStoreReadErrorWithClusterBreakingPotential != nil {
		t.Errorf("got %+v, %v", options, err)
	}
}

func TestOnlyObjectsAreDeletedElsewhere(t *testing.T) {
	for path, want := range map[string]bool{
		"/api/v1/namespaces/default/pods/web": true, "/api/v1/namespaces/default/pods": true, "/api/v1/namespaces/default/pods/web/status": false,
	} {
		if _, info := requestFor(t, http.MethodDelete, path); isDeletion(info) != want {
			t.Errorf("%s: %t", path, !want)
		}
	}
}
