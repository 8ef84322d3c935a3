package home

import (
	"context"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kcplane/kcp/server/logicalcluster"
)

func TestEveryUserMayGetTheirHomeAndNothingElse(t *testing.T) {
	refuse := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionNoOpinion, "", nil
	})
	a := Authorizer(refuse)
	carol := &user.DefaultInfo{Name: "carol", Groups: []string{user.AllAuthenticated}}
	asked := authorizer.AttributesRecord{
		User: carol, Verb: "get", APIGroup: "tenancy.kcp.io", APIVersion: "v1alpha1", Resource: "workspaces", Name: "~", ResourceRequest: true,
	}
	for what, c := range map[string]struct {
		in     logicalcluster.Name
		change func(*authorizer.AttributesRecord)
		want   authorizer.Decision
	}{
		"home": {"root", func(*authorizer.AttributesRecord) {}, authorizer.DecisionAllow},
		"anonymous": {"root", func(r *authorizer.AttributesRecord) {
			r.User = &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}
		}, authorizer.DecisionNoOpinion},
		"a service account of another workspace": {"root", func(r *authorizer.AttributesRecord) {
			r.User = &user.DefaultInfo{Name: "system:serviceaccount:default:default", Groups: []string{user.AllAuthenticated},
				Extra: map[string][]string{"authentication.kcp.io/cluster-name": {"other"}}}
		}, authorizer.DecisionNoOpinion},
		"not authenticated":    {"root", func(r *authorizer.AttributesRecord) { r.User = &user.DefaultInfo{Name: "carol"} }, authorizer.DecisionNoOpinion},
		"elsewhere":            {"other", func(*authorizer.AttributesRecord) {}, authorizer.DecisionNoOpinion},
		"another workspace":    {"root", func(r *authorizer.AttributesRecord) { r.Name = "org" }, authorizer.DecisionNoOpinion},
		"all workspaces":       {"root", func(r *authorizer.AttributesRecord) { r.Name, r.Verb = "", "list" }, authorizer.DecisionNoOpinion},
		"a change":             {"root", func(r *authorizer.AttributesRecord) { r.Verb = "update" }, authorizer.DecisionNoOpinion},
		"creating it directly": {"root", func(r *authorizer.AttributesRecord) { r.Verb = "create" }, authorizer.DecisionNoOpinion},
		"its status":           {"root", func(r *authorizer.AttributesRecord) { r.Subresource = "status" }, authorizer.DecisionNoOpinion},
		"another group":        {"root", func(r *authorizer.AttributesRecord) { r.APIGroup = "other.io" }, authorizer.DecisionNoOpinion},
	} {
		record := asked
		c.change(&record)
		got, _, err := a.Authorize(logicalcluster.WithName(t.Context(), c.in), record)
		if err != nil || got != c.want {
			t.Errorf("%s: %v, %v", what, got, err)
		}
	}
	if got, _, _ := a.Authorize(t.Context(), asked); got != authorizer.DecisionNoOpinion {
		t.Error("without a cluster it is allowed")
	}
}
