package admission

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/objecttest"
)

func TestTheLastBindingToASystemExportCannotBeDeleted(t *testing.T) {
	binding := func(name, path, export string, deleted bool) objecttest.Object {
		b := objecttest.In("team", &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: name}})
		b.Spec.Reference.Export = &apisv1alpha2.ExportBindingReference{Path: path, Name: export}
		if deleted {
			now := metav1.Now()
			b.DeletionTimestamp = &now
		}
		return b
	}
	bindings, terminating := apisv1alpha2.SchemeGroupVersion.WithResource("apibindings"), at("root", "root:team")
	now := metav1.Now()
	for _, obj := range terminating {
		if lc, ok := obj.(*corev1alpha1.LogicalCluster); ok && lc.Annotations[corev1alpha1.PathAnnotation] == "root:team" {
			lc.DeletionTimestamp = &now
		}
	}
	const refused = "403 Forbidden: every workspace binds root:tenancy.kcp.io: its last APIBinding cannot be deleted"
	for name, test := range map[string]struct {
		objects []objecttest.Object
		want    string
	}{
		"the last binding is kept": {append(at("root", "root:team"), binding("x", "root", "tenancy.kcp.io", false)), refused},
		"a binding of the other system export is kept": {append(at("root", "root:team"), binding("x", "root", "topology.kcp.io", false)),
			"403 Forbidden: every workspace binds root:topology.kcp.io: its last APIBinding cannot be deleted"},
		"a binding to another export of root is deleted":            {append(at("root", "root:team"), binding("x", "root", "shards.core.kcp.io", false)), ""},
		"a binding to an export with the name elsewhere is deleted": {append(at("root", "root:team"), binding("x", "root:team", "tenancy.kcp.io", false)), ""},
		"a binding to an unknown path is deleted":                   {append(at("root", "root:team"), binding("x", "root:none", "tenancy.kcp.io", false)), ""},
		"a binding that has a second one is deleted":                {append(at("root", "root:team"), binding("x", "root", "tenancy.kcp.io", false), binding("y", "root", "tenancy.kcp.io", false)), ""},
		"a second one to another export does not count":             {append(at("root", "root:team"), binding("x", "root", "tenancy.kcp.io", false), binding("y", "root", "topology.kcp.io", false)), refused},
		"a second one that is being deleted does not count":         {append(at("root", "root:team"), binding("x", "root", "tenancy.kcp.io", false), binding("y", "root", "tenancy.kcp.io", true)), refused},
		"a binding in a workspace that is being deleted is deleted": {append(terminating, binding("x", "root", "tenancy.kcp.io", false)), ""},
		"a binding in a cluster without LogicalCluster is deleted":  {append(at("root"), binding("x", "root", "tenancy.kcp.io", false)), ""},
		"a binding that does not exist is left to the storage":      {at("root", "root:team"), ""},
		"a binding without a reference is deleted":                  {append(at("root", "root:team"), objecttest.In("team", &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: "x"}})), ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := deletion(bindings, "APIBinding", "x")
			wantOutcome(t, a, newSystemBindings(newConfig(t, nil, test.objects...)).Validate(in(t, "team"), a, nil), test.want)
		})
	}
	one := binding("x", "root", "tenancy.kcp.io", false)
	collection := admission.NewAttributesRecord(nil, one, apisv1alpha2.SchemeGroupVersion.WithKind("APIBinding"), "", "", bindings, "", admission.Delete,
		&metav1.DeleteOptions{}, false, privileged) // as each object of a collection is validated
	err := newSystemBindings(newConfig(t, nil, append(at("root", "root:team"), one)...)).Validate(in(t, "team"), collection, nil)
	if err == nil || !strings.Contains(err.Error(), "its last APIBinding cannot be deleted") {
		t.Errorf("the last binding as one of a collection: got %v", err)
	}
	plugin := newSystemBindings(newConfig(t, nil, append(at("root", "root:team"), binding("x", "root", "tenancy.kcp.io", false))...))
	for what, a := range map[string]admission.Attributes{
		"a deletion of a collection, which deletes each of them":   deletion(bindings, "APIBinding", ""),
		"the deletion of an object of another kind with this name": deletion(apisv1alpha2.SchemeGroupVersion.WithResource("apiexports"), "APIExport", "x"),
	} {
		if err := plugin.Validate(in(t, "team"), a, nil); err != nil {
			t.Errorf("%s is refused: %v", what, err)
		}
	}
}
