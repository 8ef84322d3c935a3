package admission

import (
	"context"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/kubernetes/pkg/apis/rbac"
)

func TestCombinationsOfRolesAreBoundedWithoutTheVerbEscalate(t *testing.T) {
	plugin := roleCombinations{rules{Config{Authorizer: authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetVerb() == "escalate" && a.GetUser().GetName() == "owner" {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	})}}}
	clusterRole := func(r []rbac.PolicyRule) runtime.Object { return &rbac.ClusterRole{Rules: r} }
	role := func(r []rbac.PolicyRule) runtime.Object { return &rbac.Role{Rules: r} }
	for _, c := range []struct {
		who     user.DefaultInfo
		n       int
		of      func([]rbac.PolicyRule) runtime.Object
		refused bool
	}{
		{user.DefaultInfo{Name: "tenant"}, 20, clusterRole, false},
		{user.DefaultInfo{Name: "tenant"}, 1000, clusterRole, true},
		{user.DefaultInfo{Name: "tenant"}, 1000, role, true},
		{user.DefaultInfo{Name: "owner"}, 1000, clusterRole, false},
		{user.DefaultInfo{Name: "server", Groups: []string{user.SystemPrivilegedGroup}}, 1000, clusterRole, false},
	} {
		var list []string
		for i := range c.n {
			list = append(list, fmt.Sprint(i))
		}
		ctx := request.WithRequestInfo(request.WithUser(t.Context(), &c.who), &request.RequestInfo{IsResourceRequest: true, APIGroup: rbac.GroupName, Resource: "clusterroles"})
		object := c.of([]rbac.PolicyRule{{APIGroups: list, Resources: list, Verbs: list}})
		kind, resource := rbac.SchemeGroupVersion.WithKind("ClusterRole"), rbac.SchemeGroupVersion.WithResource("clusterroles")
		err := plugin.Admit(ctx, admission.NewAttributesRecord(object, nil, kind, "", "x", resource, "", admission.Create, nil, false, &c.who), nil)
		if c.refused != (err != nil) || (err != nil && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "combinations"))) {
			t.Errorf("%s, lists of %d: %v", c.who.Name, c.n, err)
		}
	}
}
