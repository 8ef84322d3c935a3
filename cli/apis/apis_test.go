package apis

import (
	"fmt"
	"testing"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
)

func TestAnExportIsNamedByItsPathAndName(t *testing.T) {
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

func TestAnAnswerKeepsWhatItIsAbout(t *testing.T) {
	b := NewBinding("b", "root", "e")
	if !Answer(b, on("pods", "get"), Accepted) || Answer(b, on("pods", "get"), Accepted) {
		t.Error("the first answer changes the binding, and the second does not")
	}
	selector := apisv1alpha2.PermissionClaimSelector{}
	selector.MatchLabels = map[string]string{"a": "b"}
	b.Spec.PermissionClaims[0].Selector = selector
	if !Answer(b, on("pods", "get", "list"), Rejected) {
		t.Error("another state and other verbs are a change")
	}
	if got := b.Spec.PermissionClaims; len(got) != 1 || got[0].Selector.MatchLabels["a"] != "b" || fmt.Sprintf("%s %v", got[0].State, got[0].Verbs) != "Rejected [get list]" {
		t.Errorf("the answers are %v", got)
	}
	identified := on("pods", "get")
	identified.IdentityHash = "abc"
	if !Answer(b, identified, Accepted) || len(b.Spec.PermissionClaims) != 2 {
		t.Errorf("another identity is another claim: %v", b.Spec.PermissionClaims)
	}
}

func TestWarningsAreAboutWhatAnExportLacks(t *testing.T) {
	b := NewBinding("b", "root", "e")
	b.Status.ExportPermissionClaims = []apisv1alpha2.PermissionClaim{on("pods", "get", "list"), on("secrets", "*"), on("events", "get")}
	Answer(b, on("pods", "list", "get"), Accepted) // in another order
	Answer(b, on("events", "watch"), Rejected)
	Answer(b, on("leases", "get"), Accepted)
	got := Warnings(b)
	want := []string{
		`the APIBinding "b" to root:e neither accepts nor rejects the claim on secrets.core (*)`,
		`the APIBinding "b" to root:e answers the claim on events.core for watch, and the export claims get`,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("warned of %q, want %q", got, want)
	}
	if changed := Renew(b); len(changed) != 2 || len(Renew(b)) != 0 || len(Warnings(b)) != 1 {
		t.Errorf("changed %v, and then %v", changed, b.Spec.PermissionClaims)
	}
}
