package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"sigs.k8s.io/yaml"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/internal/tenancy/exports"
	"github.com/kcplane/kcp/server/internal/tenancy/pathindex"
	"github.com/kcplane/kcp/server/internal/tenancy/references"
	"github.com/kcplane/kcp/server/internal/tenancy/workspacetypes"
	"github.com/kcplane/kcp/server/logicalcluster"
)

var (
	tenant     = &user.DefaultInfo{Name: "ada", Groups: []string{user.AllAuthenticated}}
	privileged = &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup}}
)

// grants are the requests that the authorizer allows, as <user> <verb> <resource> <name> in <cluster>, with the suffix "deeply" for a
// review that does not require access to the cluster.
type grants []string

// Authorize implements authorizer.UnconditionalAuthorizer.
func (g grants) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return authorizer.DecisionDeny, "", err
	}
	resource := schema.GroupResource{Group: a.GetAPIGroup(), Resource: a.GetResource()}.String()
	if a.GetNamespace() != "" {
		resource = a.GetNamespace() + "/" + resource
	}
	request := fmt.Sprintf("%s %s %s %s in %s", a.GetUser().GetName(), a.GetVerb(), resource, cmp.Or(a.GetName(), "*"), cluster)
	if authorization.IsDeepReview(ctx) {
		request += " deeply"
	}
	for _, granted := range g {
		if granted == request {
			return authorizer.DecisionAllow, "", nil
		}
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// newConfig returns the configuration of a chain over objects in memory. The server itself serves Workspaces, as of the export
// tenancy.kcp.io, and the core group.
func newConfig(t *testing.T, granted grants, objects ...objecttest.Object) Config {
	t.Helper()
	return configOf(t, objecttest.New(t), granted, objects...)
}

// configOf is newConfig over o.
func configOf(t *testing.T, o *objecttest.Objects, granted grants, objects ...objecttest.Object) Config {
	t.Helper()
	tree := pathindex.New(o.Set)
	all, err := exports.New(o.Set, tree, exports.SystemOf([]schema.GroupResource{workspaceResource, workspaceTypeResource}), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, obj := range objects {
		o.Store(obj)
		o.Show(obj)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	example := schema.GroupVersion{Group: "example.org", Version: "v1"}
	mapper.Add(example.WithKind("Region"), meta.RESTScopeRoot)
	mapper.Add(example.WithKind("Widget"), meta.RESTScopeNamespace)
	return Config{
		Set: o.Set, Tree: tree, Types: workspacetypes.New(o.Set, tree), References: references.New(o.Set, tree), Exports: all,
		Authorizer: granted,
		RESTMapper: func(context.Context) (meta.RESTMapper, error) { return mapper, nil },
		OfServer: func(resource schema.GroupResource) bool {
			return resource.Group == "" || resource.Group == "builtin.example.io"
		},
	}
}

// at returns the objects of workspaces at paths: the logical cluster of each is called like its last part, and its Workspace is in the
// cluster above it.
func at(paths ...string) (objects []objecttest.Object) {
	for _, path := range paths {
		parent, name := "", path
		if i := strings.LastIndexByte(path, ':'); i >= 0 {
			parent, name = path[:i], path[i+1:]
		}
		lc := objecttest.In(name, &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.LogicalClusterName}})
		lc.Annotations[corev1alpha1.PathAnnotation] = path
		lc.Status.Phase = corev1alpha1.LogicalClusterPhaseReady
		if parent != "" {
			above := parent[strings.LastIndexByte(parent, ':')+1:]
			lc.Spec.Owner = &corev1alpha1.LogicalClusterOwner{Resource: "workspaces", Name: name, Cluster: above}
			objects = append(objects, objecttest.In(above, &tenancyv1alpha1.Workspace{
				ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: tenancyv1alpha1.WorkspaceSpec{Cluster: name, URL: "https://kcp.test/clusters/" + path},
				Status: tenancyv1alpha1.WorkspaceStatus{Phase: corev1alpha1.LogicalClusterPhaseReady},
			}))
		}
		objects = append(objects, lc)
	}
	return objects
}

// in returns a context of a logical cluster.
func in(t *testing.T, cluster logicalcluster.Name) context.Context {
	t.Helper()
	return logicalcluster.WithName(t.Context(), cluster)
}

// write is a request that writes an object, given in YAML without its apiVersion and kind.
type write struct {
	group, version string // apis.kcp.io, v1alpha2 if empty
	object         string
	before         string // the object that is updated; empty: object is created
	subresource    string
	who            user.Info // tenant if nil
}

func (w write) kind(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: cmp.Or(w.group, "apis.kcp.io"), Version: cmp.Or(w.version, "v1alpha2"), Kind: kind}
}

// attributes returns what plugins see of a write. The resource is the kind in lower case with an s, and the name x without another one.
func (w write) attributes(t *testing.T, kind string) admission.Attributes {
	t.Helper()
	gvk := w.kind(kind)
	parse := func(text string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{}}
		if err := yaml.UnmarshalStrict([]byte(text), &u.Object); err != nil {
			t.Fatal(err)
		}
		u.SetGroupVersionKind(gvk)
		return u
	}
	operation, before := admission.Create, runtime.Object(nil)
	if w.before != "" {
		operation, before = admission.Update, parse(w.before)
	}
	who := w.who
	if who == nil {
		who = tenant
	}
	obj := parse(w.object)
	return admission.NewAttributesRecord(obj, before, gvk, obj.GetNamespace(), cmp.Or(obj.GetName(), "x"),
		gvk.GroupVersion().WithResource(strings.ToLower(kind)+"s"), w.subresource, operation, nil, false, who)
}

// deletion returns what plugins see of the deletion of an object.
func deletion(resource schema.GroupVersionResource, kind, name string) admission.Attributes {
	return admission.NewAttributesRecord(nil, nil, resource.GroupVersion().WithKind(kind), "", name, resource, "", admission.Delete,
		&metav1.DeleteOptions{}, false, tenant)
}

// attributesOf returns what plugins see of a request for an object of a kind whose resource is its name in lower case with an s.
func attributesOf(t *testing.T, kind schema.GroupVersionKind, old, obj runtime.Object, subresource string, op admission.Operation, who user.Info) admission.Attributes {
	t.Helper()
	resource := kind.GroupVersion().WithResource(strings.ToLower(kind.Kind) + "s")
	toMap := func(o runtime.Object) runtime.Object {
		if o == nil {
			return nil
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			t.Fatal(err)
		}
		u := &unstructured.Unstructured{Object: content}
		u.SetGroupVersionKind(kind)
		return u
	}
	return admission.NewAttributesRecord(toMap(obj), toMap(old), kind, "", "it", resource, subresource, op, nil, false, who)
}

// outcome returns code, reason and message of the Status that refuses a request, without the object that every message begins with. It is
// empty if the request is admitted.
func outcome(a admission.Attributes, err error) string {
	if err == nil {
		return ""
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return "not a Status: " + err.Error()
	}
	s := status.Status()
	message := s.Message
	for _, prefix := range []string{
		fmt.Sprintf("%s %q is forbidden: ", a.GetResource().GroupResource(), a.GetName()),
		fmt.Sprintf("%s %q is invalid: ", a.GetKind().GroupKind(), a.GetName()),
	} {
		message = strings.TrimPrefix(message, prefix)
	}
	return fmt.Sprintf("%d %s: %s", s.Code, s.Reason, message)
}

// wantOutcome checks what outcome returns. If want ends with an ellipsis, the outcome begins with it.
func wantOutcome(t *testing.T, a admission.Attributes, err error, want string) {
	t.Helper()
	begin, cut := strings.CutSuffix(want, "…")
	if got := outcome(a, err); got != want && !(cut && strings.HasPrefix(got, begin)) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// wantInvalid checks that a plugin refuses a write as invalid with a text in the message, or admits it if the text is empty.
func wantInvalid(t *testing.T, plugin admission.ValidationInterface, a admission.Attributes, want string) {
	t.Helper()
	err := plugin.Validate(context.Background(), a, nil)
	switch {
	case want == "" && err != nil:
		t.Errorf("refused: %v", err)
	case want != "" && err == nil:
		t.Errorf("admitted, want %s", want)
	case want != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want)):
		t.Errorf("got %v, want %s", err, want)
	}
}

// contentOf returns the object of a request as plugins have left it.
func contentOf(t *testing.T, a admission.Attributes) map[string]any {
	t.Helper()
	u, ok := a.GetObject().(*unstructured.Unstructured)
	if !ok {
		t.Fatalf("the object is a %T", a.GetObject())
	}
	return u.Object
}
