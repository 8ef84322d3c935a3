package admission

import (
	"context"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	cachev1alpha1 "github.com/kcplane/kcp/api/cache/v1alpha1"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/internal/tenancy/exports"
	"github.com/kcplane/kcp/server/internal/tenancy/references"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// elsewhere is another shard, which has the workspace root:far and the objects in it. grants decide there. An object
// arrives when this shard sends a question about it.
type elsewhere struct {
	grants
	objects map[string]objecttest.Object // by resource and name
	arrive  func(objecttest.Object)
	err     error
	// unanswered is the error of reviews.
	unanswered error
}

func (e *elsewhere) Locate(_ context.Context, path string) (logicalcluster.Name, bool, error) {
	if path != "root:far" {
		return "", false, e.err
	}
	return "far", true, e.err
}

func (e *elsewhere) Has(_ context.Context, cluster logicalcluster.Name, resource schema.GroupResource, name string) (bool, error) {
	obj, ok := e.objects[resource.Resource+" "+name]
	if e.err != nil || !ok || cluster != "far" {
		return false, e.err
	}
	e.arrive(obj)
	return true, nil
}

// Authorize implements authorizer.UnconditionalAuthorizer.
func (e *elsewhere) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if cluster, err := logicalcluster.NameFrom(ctx); err == nil && cluster == "far" && e.unanswered != nil {
		return authorizer.DecisionNoOpinion, "", e.unanswered
	}
	return e.grants.Authorize(ctx, a)
}

const (
	useFar   = "ada use workspacetypes.tenancy.kcp.io "
	bindFar  = "ada bind apiexports.apis.kcp.io widgets in far deeply"
	bindRead = "ada bind clustercachedresources.cache.kcp.io widgets in far deeply"
)

// ofFar are the objects of the other shard. Workspaces of the type "child" are allowed below those of "parent" only.
func ofFar() map[string]objecttest.Object {
	typed := func(name string, change func(*tenancyv1alpha1.WorkspaceTypeSpec)) *tenancyv1alpha1.WorkspaceType {
		return workspaceType("far", name, change)
	}
	to := func(name string) tenancyv1alpha1.WorkspaceTypeReference {
		return tenancyv1alpha1.WorkspaceTypeReference{Path: "root:far", Name: name}
	}
	return map[string]objecttest.Object{
		"workspacetypes plain": typed("plain", nil),
		"workspacetypes derived": typed("derived", func(s *tenancyv1alpha1.WorkspaceTypeSpec) {
			s.Extend.With = []tenancyv1alpha1.WorkspaceTypeReference{to("plain")}
		}),
		"workspacetypes child": typed("child", func(s *tenancyv1alpha1.WorkspaceTypeSpec) {
			s.LimitAllowedParents = &tenancyv1alpha1.WorkspaceTypeSelector{Types: []tenancyv1alpha1.WorkspaceTypeReference{to("parent")}}
		}),
		"workspacetypes parent": typed("parent", func(s *tenancyv1alpha1.WorkspaceTypeSpec) {
			s.DefaultChildWorkspaceType = &tenancyv1alpha1.WorkspaceTypeReference{Path: "root:far", Name: "child"}
		}),
		"apiexports widgets":             export("far", "widgets"),
		"clustercachedresources widgets": objecttest.In("far", &cachev1alpha1.ClusterCachedResource{ObjectMeta: metav1.ObjectMeta{Name: "widgets"}}),
	}
}

// ofType returns the objects of the workspace root:org, with a type.
func ofType(typed string) []objecttest.Object {
	objects := at("root", "root:org")
	for _, obj := range objects {
		if lc, ok := obj.(*corev1alpha1.LogicalCluster); ok && typed != "" && lc.Annotations[corev1alpha1.PathAnnotation] == "root:org" {
			lc.Annotations[tenancyv1alpha1.TypeAnnotation] = typed
		}
	}
	return objects
}

// Each place where a request refers to an object of another shard that the feed has not brought yet.
func TestWhatAnotherShardHasIsNotAbsent(t *testing.T) {
	const toFar = `spec: {reference: {export: {path: "root:far", name: widgets}}}`
	use := func(names ...string) (all grants) {
		for _, name := range names {
			all = append(all, useFar+name+" in far deeply")
		}
		return all
	}
	workspace := func(typed string) write {
		return write{group: "tenancy.kcp.io", version: "v1alpha1", object: `{metadata: {name: team}, spec: {type: {path: "root:far", name: ` + typed + `}}}`}
	}
	mine := func(spec string) write {
		return write{group: "tenancy.kcp.io", version: "v1alpha1", object: "metadata: {name: mine}\nspec: {" + spec + "}"}
	}
	for name, test := range map[string]struct {
		write
		kind    string
		parent  string // the type of the workspace in which the object is written
		granted grants
	}{
		"a binding":                       {write{object: toFar}, "APIBinding", "", grants{bindFar}},
		"an endpoint slice":               {write{version: "v1alpha1", object: `spec: {export: {path: "root:far", name: widgets}}`}, "APIExportEndpointSlice", "", grants{bindFar}},
		"a slice of published objects":    {write{group: "cache.kcp.io", version: "v1alpha1", object: `spec: {clusterCachedResource: {path: "root:far", name: widgets}}`}, "ClusterCachedResourceEndpointSlice", "", grants{bindRead}},
		"a workspace":                     {workspace("plain"), "Workspace", "", use("plain")},
		"a workspace of an extended type": {workspace("derived"), "Workspace", "", use("derived", "plain")},
		"a workspace in an allowed one":   {workspace("child"), "Workspace", "root:far:parent", use("child")},
		"the default type of children":    {write{group: "tenancy.kcp.io", version: "v1alpha1", object: `{metadata: {name: team}, spec: {}}`}, "Workspace", "root:far:parent", use("child")},
		"a type that extends another":     {mine(`extend: {with: [{path: "root:far", name: derived}]}`), "WorkspaceType", "", use("derived", "plain")},
		"a type with default bindings":    {mine(`defaultAPIBindings: [{path: "root:far", export: widgets}]`), "WorkspaceType", "", grants{bindFar}},
	} {
		t.Run(name, func(t *testing.T) {
			decide := func(e *elsewhere) (admission.Attributes, error) {
				o := objecttest.New(t)
				o.Share(func(cluster logicalcluster.Name) (string, []logicalcluster.Name) {
					return map[logicalcluster.Name]string{"far": "us"}[cluster], nil
				})
				config := configOf(t, o, nil, ofType(test.parent)...)
				e.objects, e.arrive = ofFar(), func(obj objecttest.Object) {
					o.Offer("us", at("root:far")[1])
					o.Offer("us", obj)
				}
				config.Authorizer = e
				config.References.Share(e)
				config.Types.Share(config.References)
				a := test.attributes(t, test.kind)
				return a, admitted(in(t, "org"), config, a)
			}
			a, err := decide(&elsewhere{grants: test.granted})
			wantOutcome(t, a, err, "")
			a, err = decide(&elsewhere{})
			wantOutcome(t, a, err, "403 Forbidden: unable to …")
			a, err = decide(&elsewhere{grants: test.granted, err: references.Unavailable("shard far does not respond")})
			wantOutcome(t, a, err, "503 ServiceUnavailable: shard far does not respond")
			a, err = decide(&elsewhere{grants: test.granted, err: apierrors.NewTooManyRequests("too many", 1)})
			wantOutcome(t, a, err, "429 TooManyRequests: too many")
			a, err = decide(&elsewhere{grants: test.granted, unanswered: references.Unavailable("shard far does not decide")})
			wantOutcome(t, a, err, "503 ServiceUnavailable: shard far does not decide")
			a, err = decide(&elsewhere{grants: test.granted, unanswered: apierrors.NewTooManyRequests("too many", 1)})
			wantOutcome(t, a, err, "429 TooManyRequests: too many")
		})
	}
}

// admitted returns the refusal of the plugins that follow references.
func admitted(ctx context.Context, config Config, a admission.Attributes) error {
	r := rules{config}
	for _, plugin := range []admission.Interface{workspaceRules{r}, workspaceTypeRules{r}, bindPermission{r}, cachedResourceRules{r}} {
		if mutating, ok := plugin.(admission.MutationInterface); ok {
			if err := mutating.Admit(ctx, a, nil); err != nil {
				return err
			}
		}
		if err := plugin.(admission.ValidationInterface).Validate(ctx, a, nil); err != nil {
			return err
		}
	}
	return nil
}

// The label is that of the export at the path, although the path is not known here.
func TestABindingToAnotherShardHasTheLabelOfItsExport(t *testing.T) {
	config := newConfig(t, nil, ofType("")...)
	config.References.Share(&elsewhere{})
	a := write{object: `spec: {reference: {export: {path: "root:far", name: widgets}}}`}.attributes(t, "APIBinding")
	if err := (bindPermission{rules{config}}).Admit(in(t, "org"), a, nil); err != nil {
		t.Fatal(err)
	}
	key, want := exports.BindingLabel("far", "widgets")
	if got := a.GetObject().(metav1.Object).GetLabels()[key]; got != want {
		t.Errorf("got the label %q, want %q", got, want)
	}
}

// A request for a bound API whose provider is not loaded must not pass its webhooks and policies.
func TestWebhooksOfAProviderThatIsNotLoadedRefuse(t *testing.T) {
	binding := objecttest.In("org", &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: "widgets"}})
	binding.Spec.Reference.Export = &apisv1alpha2.ExportBindingReference{Path: "root:far", Name: "widgets"}
	binding.Status.APIExportClusterName = "far"
	binding.Status.BoundResources = []apisv1alpha2.BoundAPIResource{{Group: "example.org", Resource: "widgets"}}
	config := newConfig(t, nil, append(ofType(""), binding)...)
	config.Exports.Share(unloaded{})
	a := write{group: "example.org", version: "v1", object: "metadata: {name: it}"}.attributes(t, "Widget")
	_, err := sources(in(t, "org"), config, a)
	if !apierrors.IsServiceUnavailable(err) {
		t.Errorf("got %v", err)
	}
	if from, err := sources(authorization.AsServer(in(t, "org")), config, a); err != nil || len(from) != 2 {
		t.Errorf("a request of the server itself: got %v, %v", from, err)
	}
	other := write{group: "example.org", version: "v1", object: "metadata: {name: it}"}.attributes(t, "Region")
	if from, err := sources(in(t, "org"), config, other); err != nil || !slices.Equal(from, []source{{"org", "org"}}) {
		t.Errorf("a resource of the workspace itself: got %v, %v", from, err)
	}
}

// unloaded is an exports.Elsewhere that has loaded nothing.
type unloaded struct{}

func (unloaded) Here(logicalcluster.Name) bool            { return false }
func (unloaded) Loaded(logicalcluster.Name) bool          { return false }
func (unloaded) Deleted(logicalcluster.Name, string) bool { return false }

// Whether a binding is one that every workspace keeps depends on the cluster of its export.
func TestADeletionWaitsForTheClusterOfItsExport(t *testing.T) {
	binding := objecttest.In("org", &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: "widgets"}})
	binding.Spec.Reference.Export = &apisv1alpha2.ExportBindingReference{Path: "root:far", Name: "widgets"}
	for want, e := range map[string]*elsewhere{
		"": {}, "503 ServiceUnavailable: late": {err: references.Unavailable("late")},
	} {
		config := newConfig(t, nil, append(ofType(""), binding)...)
		config.References.Share(e)
		a := deletion(apisv1alpha2.SchemeGroupVersion.WithResource("apibindings"), "APIBinding", "widgets")
		wantOutcome(t, a, newSystemBindings(config).Validate(in(t, "org"), a, nil), want)
	}
}
