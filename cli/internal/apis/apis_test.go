package apis

import (
	"fmt"
	"testing"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
)

func TestParseExport(t *testing.T) {
	for text, want := range map[string]string{
		"root:org:widgets": "root:org widgets", ":root:org:widgets": "root:org widgets", "widgets": " widgets", "2bd3:widgets.example.org": "2bd3 widgets.example.org",
		"": "", "root:": "", ":widgets": "", "..:widgets": "", "root::widgets": "", "Root:widgets": "", "root:org/widgets": "",
	} {
		got := ""
		if path, name, err := ParseExport(text); err == nil {
			got = path + " " + name
		}
		if got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

func on(resource string, verbs ...string) apisv1alpha2.PermissionClaim {
	return apisv1alpha2.PermissionClaim{GroupResource: apisv1alpha2.GroupResource{Resource: resource}, Verbs: verbs}
}

func TestSetStateKeepsSelector(t *testing.T) {
	b := NewBinding("b", "root", "e")
	if !SetState(b, on("pods", "get"), Accepted) || SetState(b, on("pods", "get"), Accepted) {
		t.Error("want a change by the first call only")
	}
	selector := apisv1alpha2.PermissionClaimSelector{}
	selector.MatchLabels = map[string]string{"a": "b"}
	b.Spec.PermissionClaims[0].Selector = selector
	if !SetState(b, on("pods", "get", "list"), Rejected) {
		t.Error("want a change by another state and by other verbs")
	}
	if got := b.Spec.PermissionClaims; len(got) != 1 || got[0].Selector.MatchLabels["a"] != "b" || fmt.Sprintf("%s %v", got[0].State, got[0].Verbs) != "Rejected [get list]" {
		t.Errorf("claims are %v", got)
	}
	identified := on("pods", "get")
	identified.IdentityHash = "abc"
	if !SetState(b, identified, Accepted) || len(b.Spec.PermissionClaims) != 2 {
		t.Errorf("want another claim for another identity, got %v", b.Spec.PermissionClaims)
	}
}

func TestWarnings(t *testing.T) {
	b := NewBinding("b", "root", "e")
	b.Status.ExportPermissionClaims = []apisv1alpha2.PermissionClaim{on("pods", "get", "list"), on("secrets", "*"), on("events", "get")}
	SetState(b, on("pods", "list", "get"), Accepted) // in another order
	SetState(b, on("events", "watch"), Rejected)
	SetState(b, on("leases", "get"), Accepted)
	got := Warnings(b)
	want := []string{
		`APIBinding "b" to root:e neither accepts nor rejects the permission claim on secrets.core (*)`,
		`APIBinding "b" to root:e accepts or rejects the permission claim on events.core for watch, but the APIExport now claims get`,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("warnings are %q, want %q", got, want)
	}
	if changed := UpdateClaims(b); len(changed) != 2 || len(UpdateClaims(b)) != 0 || len(Warnings(b)) != 1 {
		t.Errorf("changed %v, claims are %v", changed, b.Spec.PermissionClaims)
	}
}
