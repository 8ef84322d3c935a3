package admission

import (
	"maps"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/internal/tenancy/exports"
)

const (
	toWidgets  = `spec: {reference: {export: {path: "root:provider", name: widgets}}}`
	toOwn      = `spec: {reference: {export: {name: widgets}}}`
	toNothing  = `spec: {reference: {}}`
	mayBind    = "ada bind apiexports.apis.kcp.io widgets in provider deeply"
	mayBindOwn = "ada bind apiexports.apis.kcp.io widgets in team deeply"
)

func export(cluster, name string) *apisv1alpha2.APIExport {
	return objecttest.In(cluster, &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

func TestBindingsHaveAFinalizerAndTheLabelOfTheirExport(t *testing.T) {
	labelOf := func(cluster string) map[string]string {
		key, value := exports.BindingLabel("provider", "widgets")
		if cluster == "team" {
			key, value = exports.BindingLabel("team", "widgets")
		}
		return map[string]string{key: value}
	}
	for name, test := range map[string]struct {
		write
		kind       string
		finalizers []string
		labels     map[string]string
	}{
		"a new binding gets both":                           {write{object: toWidgets}, "", []string{apisv1alpha2.APIBindingFinalizer}, labelOf("provider")},
		"in v1alpha1, a new binding gets both":              {write{version: "v1alpha1", object: toWidgets}, "", []string{apisv1alpha2.APIBindingFinalizer}, labelOf("provider")},
		"a binding to an export of its workspace gets both": {write{object: toOwn}, "", []string{apisv1alpha2.APIBindingFinalizer}, labelOf("team")},
		"other finalizers are kept":                         {write{object: "metadata: {finalizers: [a]}\n" + toOwn}, "", []string{"a", apisv1alpha2.APIBindingFinalizer}, labelOf("team")},
		"the finalizer is added once":                       {write{object: "metadata: {finalizers: [apis.kcp.io/apibinding-finalizer]}\n" + toOwn}, "", []string{apisv1alpha2.APIBindingFinalizer}, labelOf("team")},
		"a label of the client is replaced":                 {write{object: "metadata: {labels: {internal.apis.kcp.io/export: forged}}\n" + toOwn}, "", []string{apisv1alpha2.APIBindingFinalizer}, labelOf("team")},
		"a label of the client for an unknown path is removed": {write{object: `{metadata: {labels: {internal.apis.kcp.io/export: forged, a: b}}, spec: {reference: {export: {path: "root:none", name: widgets}}}}`},
			"", []string{apisv1alpha2.APIBindingFinalizer}, map[string]string{"a": "b"}},
		"a binding without a reference gets the finalizer": {write{object: toNothing}, "", []string{apisv1alpha2.APIBindingFinalizer}, nil},
		"an update restores the label, not the finalizer":  {write{object: toWidgets, before: toWidgets}, "", nil, labelOf("provider")},
		"a binding that is being deleted is not changed":   {write{object: "metadata: {deletionTimestamp: '2020-01-01T00:00:00Z'}\n" + toWidgets, before: toWidgets}, "", nil, nil},
		"an update of the status is not changed":           {write{object: toWidgets, before: toWidgets, subresource: "status"}, "", nil, nil},
		"an endpoint slice gets neither":                   {write{object: `spec: {export: {name: widgets}}`}, "APIExportEndpointSlice", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if test.kind == "" {
				test.kind = "APIBinding"
			}
			a := test.attributes(t, test.kind)
			if err := (bindPermission{rules{newConfig(t, nil, at("root", "root:provider", "root:team")...)}}).Admit(in(t, "team"), a, nil); err != nil {
				t.Fatal(err)
			}
			m, err := meta.Accessor(a.GetObject())
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(m.GetFinalizers(), test.finalizers) || !maps.Equal(m.GetLabels(), test.labels) {
				t.Errorf("got finalizers %v and labels %v, want %v and %v", m.GetFinalizers(), m.GetLabels(), test.finalizers, test.labels)
			}
		})
	}
}

func TestBindingRequiresPermissionOfTheProvider(t *testing.T) {
	const (
		refused      = "403 Forbidden: unable to create APIBinding: no permission to bind to export root:provider:widgets"
		slice        = `spec: {export: {path: "root:provider", name: widgets}}`
		refusedSlice = "403 Forbidden: unable to create APIExportEndpointSlice: no permission to bind to export root:provider:widgets"
		refusedOwn   = "403 Forbidden: unable to create APIBinding: no permission to bind to export root:team:widgets"
	)
	for name, test := range map[string]struct {
		write
		kind    string
		granted grants
		claimed bool
		want    string
	}{
		"a user who may bind creates a binding":                   {write{object: toWidgets}, "", grants{mayBind}, false, ""},
		"a user who may bind another export is refused":           {write{object: toWidgets}, "", grants{"ada bind apiexports.apis.kcp.io other in provider deeply", mayBindOwn}, false, refused},
		"another user who may bind does not count":                {write{object: toWidgets}, "", grants{"eve bind apiexports.apis.kcp.io widgets in provider deeply"}, false, refused},
		"in v1alpha1, the permission is required":                 {write{version: "v1alpha1", object: toWidgets}, "", nil, false, refused},
		"a binding may be created before its export":              {write{object: `spec: {reference: {export: {path: "root:provider", name: later}}}`}, "", grants{"ada bind apiexports.apis.kcp.io later in provider deeply"}, false, ""},
		"an unknown path has the same message":                    {write{object: `spec: {reference: {export: {path: "root:none", name: widgets}}}`}, "", grants{mayBind}, false, "403 Forbidden: unable to create APIBinding: no permission to bind to export root:none:widgets"},
		"an export of the own workspace requires the permission":  {write{object: toOwn}, "", nil, false, refusedOwn},
		"an export of the own workspace is bound with permission": {write{object: toOwn}, "", grants{mayBindOwn}, false, ""},
		"a binding without a reference is left to its schema":     {write{object: toNothing}, "", nil, false, ""},
		"a privileged user needs no permission":                   {write{object: toWidgets, who: privileged}, "", nil, false, ""},
		"an update of other fields needs no permission":           {write{object: "metadata: {labels: {a: b}}\n" + toWidgets, before: toWidgets}, "", nil, false, ""},
		"an update by a claim needs the permission":               {write{object: "metadata: {labels: {a: b}}\n" + toWidgets, before: toWidgets}, "", nil, true, "403 Forbidden: unable to update APIBinding: no permission to bind to export root:provider:widgets"},
		"an update by a claim is admitted with the permission":    {write{object: toWidgets, before: toWidgets}, "", grants{mayBind}, true, ""},
		"an update of the reference needs the permission":         {write{object: toWidgets, before: toOwn}, "", nil, false, "403 Forbidden: unable to update APIBinding: no permission to bind to export root:provider:widgets"},
		"a binding that is being deleted is admitted":             {write{object: "metadata: {deletionTimestamp: '2020-01-01T00:00:00Z'}\n" + toWidgets, before: toOwn}, "", nil, false, ""},
		"an update of the status is admitted":                     {write{object: toWidgets, before: toOwn, subresource: "status"}, "", nil, false, ""},
		"a user who may bind creates an endpoint slice":           {write{object: slice}, "APIExportEndpointSlice", grants{mayBind}, false, ""},
		"an endpoint slice requires the permission":               {write{object: slice}, "APIExportEndpointSlice", nil, false, refusedSlice},
		"an endpoint slice of a missing export is refused":        {write{object: `spec: {export: {path: "root:provider", name: later}}`}, "APIExportEndpointSlice", grants{"ada bind apiexports.apis.kcp.io later in provider deeply"}, false, "403 Forbidden: unable to create APIExportEndpointSlice: no permission to bind to export root:provider:later"},
		"an update of an endpoint slice is admitted":              {write{object: slice, before: slice}, "APIExportEndpointSlice", nil, false, ""},
		"a slice of cached resources requires the permission":     {write{group: "cache.kcp.io", object: slice}, "ClusterCachedResourceEndpointSlice", nil, false, "403 Forbidden: unable to create ClusterCachedResourceEndpointSlice: no permission to bind to export root:provider:widgets"},
		"another kind is admitted":                                {write{object: toWidgets}, "APIExport", nil, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if test.kind == "" {
				test.kind = "APIBinding"
			}
			a, ctx := test.attributes(t, test.kind), in(t, "team")
			if test.claimed {
				ctx = WithClaim(ctx, &apisv1alpha2.PermissionClaimSelector{MatchAll: true})
			}
			config := newConfig(t, test.granted, append(at("root", "root:provider", "root:team"), export("provider", "widgets"))...)
			wantOutcome(t, a, bindPermission{rules{config}}.Validate(ctx, a, nil), test.want)
		})
	}
}
