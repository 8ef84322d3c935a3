package authorization

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/logicalcluster"
)

func TestTheWildcardIsGrantedByBindingsInSystemAdminForReads(t *testing.T) {
	chain := world(t,
		logicalClusterIn("a", corev1alpha1.LogicalClusterPhaseReady, ""),
		binding("system:admin", "cluster-admin", userSubject("auditor"), userSubject("system:kcp:serviceaccount:a:ns:bot")),
		binding("a", "cluster-admin", userSubject("alice")),
	)
	scopedAuditor := &user.DefaultInfo{Name: "auditor", Extra: map[string][]string{ScopesKey: {"cluster:a"}}}
	for _, c := range []struct {
		user user.Info
		verb string
		want bool
	}{
		{&user.DefaultInfo{Name: "auditor"}, "list", true},
		{&user.DefaultInfo{Name: "auditor"}, "watch", true},
		{&user.DefaultInfo{Name: "auditor"}, "get", false},
		{&user.DefaultInfo{Name: "auditor"}, "deletecollection", false},
		{scopedAuditor, "list", false},
		{&user.DefaultInfo{Name: "alice"}, "list", false},
		{&user.DefaultInfo{Name: "admin", Groups: []string{AdminGroup}}, "list", false},
		{&user.DefaultInfo{Name: "root", Groups: []string{user.SystemPrivilegedGroup}}, "list", true},
	} {
		a := authorizer.AttributesRecord{User: c.user, Verb: c.verb, Resource: "secrets", ResourceRequest: true}
		decision, _, err := chain.Authorize(logicalcluster.WithWildcard(context.Background()), a)
		if err != nil || (decision == allow) != c.want {
			t.Errorf("%s %ss everywhere: allowed %t, want %t (%v)", c.user.GetName(), c.verb, decision == allow, c.want, err)
		}
	}
	a := authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "auditor"}, Verb: "list", Resource: "secrets", ResourceRequest: true}
	if decision, _, _ := chain.Authorize(logicalcluster.WithName(context.Background(), logicalcluster.SystemAdmin), a); decision == allow {
		t.Error("a grant of the wildcard opens system:admin itself")
	}
}

func TestTheGatesOfAuthorization(t *testing.T) {
	chain := world(t,
		logicalClusterIn("a", corev1alpha1.LogicalClusterPhaseReady, ""),
		logicalClusterIn("guarded", corev1alpha1.LogicalClusterPhaseReady, "staff"),
		ofType(logicalClusterIn("byroot", corev1alpha1.LogicalClusterPhaseReady, "staff"), "root:team"),
		ofType(logicalClusterIn("bytenant", corev1alpha1.LogicalClusterPhaseReady, "staff"), "root:org:team"),
		logicalClusterIn("gone", corev1alpha1.LogicalClusterPhaseDeleting, ""),
		logicalClusterIn("young", "", ""),
		binding("a", "cluster-admin", userSubject("alice")),
	)
	issued := func(cluster string) user.Info {
		return &user.DefaultInfo{Name: "u", Groups: []string{"staff", user.AllAuthenticated}, Extra: map[string][]string{logicalcluster.UserExtraKey: {cluster}, ScopesKey: {scopePrefix + cluster}}}
	}
	byCertificate := func(cluster string) user.Info {
		u := issued(cluster).(*user.DefaultInfo)
		u.Extra[user.CredentialIDKey] = []string{CertificateIDPrefix + "00"}
		return u
	}
	get := authorizer.AttributesRecord{Verb: "get", APIGroup: "core.kcp.io", Resource: "logicalclusters", Name: "cluster", ResourceRequest: true}
	status := authorizer.AttributesRecord{Verb: "get", APIGroup: "apis.kcp.io", Resource: "apibindings", Subresource: "status", Name: "x", ResourceRequest: true}
	member := func(groups ...string) user.Info { return &user.DefaultInfo{Name: "u", Groups: groups} }
	for name, c := range map[string]struct {
		cluster logicalcluster.Name
		user    user.Info
		a       authorizer.AttributesRecord
		want    authorizer.Decision
		reason  string
	}{
		"the administrator of logical clusters":               {"a", member(LogicalClusterAdminGroup), get, allow, ""},
		"... before the logical cluster exists":               {"missing", member(LogicalClusterAdminGroup), get, allow, ""},
		"... past required groups":                            {"guarded", member(LogicalClusterAdminGroup), get, allow, ""},
		"... in any phase":                                    {"young", member(LogicalClusterAdminGroup), get, allow, ""},
		"... not in the clusters of the server":               {"system:admin", member(LogicalClusterAdminGroup), get, noOpinion, "only administrators of the shard"},
		"the external administrator":                          {"guarded", member(ExternalAdminGroup), get, allow, ""},
		"... needs the logical cluster":                       {"missing", member(ExternalAdminGroup), get, deny, "LogicalCluster not found"},
		"... in its phase":                                    {"young", member(ExternalAdminGroup), get, noOpinion, `not permitted due to phase ""`},
		"... which may be that of deletion":                   {"gone", member(ExternalAdminGroup), get, allow, ""},
		"a user without access, cluster does not exist":       {"missing", member(user.AllAuthenticated), get, deny, "LogicalCluster not found"},
		"a user without access, cluster exists":               {"a", member(user.AllAuthenticated), get, noOpinion, "workspace access not permitted"},
		"a user without access, cluster with required groups": {"guarded", member(user.AllAuthenticated), get, deny, "user is not a member of required groups: staff"},
		"a user in required groups by an issuer of root":      {"byroot", issued("byroot"), get, noOpinion, "workspace access not permitted"},
		"a user with a certificate that has required groups":  {"byroot", byCertificate("byroot"), get, deny, "user is not a member of required groups: staff"},
		"a user in required groups by an issuer of a tenant":  {"bytenant", issued("bytenant"), get, deny, "user is not a member of required groups: staff"},
		"the status of a binding":                             {"a", &user.DefaultInfo{Name: "alice"}, status, deny, "only the server may write the status"},
		"the status of a binding, for masters":                {"a", member(user.SystemPrivilegedGroup), status, allow, ""},
		"a scoped administrator outside of the scope":         {"a", &user.DefaultInfo{Name: "u", Groups: []string{AdminGroup}, Extra: map[string][]string{ScopesKey: {"cluster:b"}}}, get, noOpinion, "access"},
		"a service account of another cluster that is in the group of administrators": {"a", &user.DefaultInfo{Name: "system:serviceaccount:ns:bot",
			Groups: []string{AdminGroup}, Extra: map[string][]string{"authentication.kcp.io/cluster-name": {"b"}}}, get, noOpinion, "access"},
		"... in that of masters": {"a", &user.DefaultInfo{Name: "system:serviceaccount:ns:bot",
			Groups: []string{user.SystemPrivilegedGroup}, Extra: map[string][]string{"authentication.kcp.io/cluster-name": {"b"}}}, get, noOpinion, "access"},
		"... in that of administrators of logical clusters": {"a", &user.DefaultInfo{Name: "system:serviceaccount:ns:bot",
			Groups: []string{LogicalClusterAdminGroup}, Extra: map[string][]string{"authentication.kcp.io/cluster-name": {"b"}}}, get, noOpinion, "access"},
		"a forged member of the cluster's administrators": {"a", &user.DefaultInfo{Name: LogicalClusterAdminGroup}, get, noOpinion, "access"},
		"no user": {"a", nil, get, noOpinion, "no user"},
	} {
		c.a.User = c.user
		decision, reason, err := chain.Authorize(logicalcluster.WithName(context.Background(), c.cluster), c.a)
		if err != nil || decision != c.want || !strings.Contains(reason, c.reason) {
			t.Errorf("%s: got %v, %q (%v), want %v, %q", name, decision, reason, err, c.want, c.reason)
		}
	}
}

func TestAlwaysAllowedPathsCanEndWithAnAsterisk(t *testing.T) {
	set := sets.New[string]()
	chain, err := New(Config{Order: []string{AlwaysAllowPaths}, AlwaysAllowPaths: []string{"/readyz", "/healthz/*"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/readyz", "/readyz/etcd", "/healthz/ping", "/metrics"} {
		a := authorizer.AttributesRecord{User: &user.DefaultInfo{Name: user.Anonymous}, Verb: "get", Path: path}
		if decision, _, _ := chain.Authorize(context.Background(), a); decision == allow {
			set.Insert(path)
		}
	}
	if !set.Equal(sets.New("/readyz", "/healthz/ping")) {
		t.Errorf("allowed %v", set.UnsortedList())
	}
	for _, config := range []Config{{Order: []string{"Magic"}}, {AlwaysAllowPaths: []string{"/a*b"}}} {
		if _, err := New(config); err == nil {
			t.Errorf("%v is accepted", config)
		}
	}
}

func TestTheFirstDecisionOfARequestIsInTheAuditLog(t *testing.T) {
	chain := world(t, logicalClusterIn("a", corev1alpha1.LogicalClusterPhaseReady, "staff"))
	ctx := audit.WithAuditContext(logicalcluster.WithName(context.Background(), "a"))
	ask := func(verb string, groups ...string) {
		a := authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "u", Groups: groups}, Verb: verb, Resource: "groups", Name: "x", ResourceRequest: true}
		if _, _, err := chain.Authorize(ctx, a); err != nil {
			t.Fatal(err)
		}
	}
	ask("impersonate", user.SystemPrivilegedGroup)
	ask("get", "devs")
	ask("get", user.SystemPrivilegedGroup)
	annotated(t, ctx, map[string]string{
		"alwaysallowgroups-decision": "Delegated", "rbac-decision": "Denied", "01-requiredgroups-decision": "Denied",
		"01-requiredgroups-reason": "user is not a member of required groups: staff",
	})
}

// annotated fails the test unless the audit event of ctx has these annotations. Readers of audit logs depend on their
// names.
func annotated(t *testing.T, ctx context.Context, want map[string]string) {
	t.Helper()
	for key, value := range want {
		if got, _ := audit.AuditContextFrom(ctx).GetEventAnnotation("request.auth.kcp.io/" + key); got != value {
			t.Errorf("%s: got %q, want %q", key, got, value)
		}
	}
}

func TestEachStepOfAuthorizationIsInTheAuditLog(t *testing.T) {
	chain := world(t, logicalClusterIn("a", corev1alpha1.LogicalClusterPhaseReady, ""), binding("a", "cluster-admin", userSubject("alice")))
	for name, want := range map[string]struct {
		user      user.Info
		bootstrap string
		local     string
	}{
		"by the bootstrap policy": {&user.DefaultInfo{Name: "u", Groups: []string{AdminGroup}}, "Allowed", ""},
		"by the workspace":        {&user.DefaultInfo{Name: "alice"}, "Delegated", "Allowed"},
	} {
		ctx := audit.WithAuditContext(logicalcluster.WithName(t.Context(), "a"))
		if decision, _, err := chain.Authorize(ctx, authorizer.AttributesRecord{User: want.user, Verb: "get", Resource: "secrets", ResourceRequest: true}); decision != allow || err != nil {
			t.Errorf("%s: %v, %v", name, decision, err)
		}
		annotated(t, ctx, map[string]string{
			"01-requiredgroups-decision": "Delegated", "02-content-decision": "Delegated", "03-systemcrd-decision": "Delegated",
			"04-maxpermissionpolicy-decision": "Delegated", "05-bootstrap-decision": want.bootstrap, "05-local-decision": want.local,
		})
	}
}

func TestDeepReviewsAreForMastersThatCreateReviews(t *testing.T) {
	create := request.RequestInfo{IsResourceRequest: true, Verb: "create", APIGroup: "authorization.k8s.io", Resource: "subjectaccessreviews"}
	other := create
	other.Resource = "selfsubjectaccessreviews"
	for name, c := range map[string]struct {
		header string
		groups []string
		info   request.RequestInfo
		want   bool
	}{
		"requested by a member of system:masters": {"true", []string{user.SystemPrivilegedGroup}, create, true},
		"not requested":                  {"", []string{user.SystemPrivilegedGroup}, create, false},
		"requested by another user":      {"true", []string{AdminGroup}, create, false},
		"requested for another resource": {"true", []string{user.SystemPrivilegedGroup}, other, false},
		"requested with another value":   {"yes", []string{user.SystemPrivilegedGroup}, create, false},
	} {
		var got bool
		h := WithDeepReview(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = IsDeepReview(r.Context()) }))
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set(DeepReviewHeader, c.header)
		h.ServeHTTP(nil, r.WithContext(request.WithRequestInfo(request.WithUser(r.Context(), &user.DefaultInfo{Groups: c.groups}), &c.info)))
		if got != c.want {
			t.Errorf("%s: got %t, want %t", name, got, c.want)
		}
	}
}

func TestADeepReviewSkipsTheGates(t *testing.T) {
	chain := world(t, logicalClusterIn("guarded", corev1alpha1.LogicalClusterPhaseReady, "staff"), binding("guarded", "view", userSubject("viewer")))
	ctx := context.WithValue(logicalcluster.WithName(context.Background(), "guarded"), deepReviewKey{}, true)
	for verb, want := range map[string]bool{"get": true, "delete": false} {
		a := authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "viewer"}, Verb: verb, Resource: "configmaps", Namespace: "x", ResourceRequest: true}
		decision, reason, err := chain.Authorize(ctx, a)
		if err != nil || (decision == allow) != want {
			t.Errorf("%s: allowed %t, want %t (%s, %v)", verb, decision == allow, want, reason, err)
		}
	}
}

func TestRulesForListsThoseOfAllIdentities(t *testing.T) {
	role := &rbacv1.ClusterRole{ObjectMeta: at("a", "painter", nil), Rules: []rbacv1.PolicyRule{rule([]string{"art"}, []string{"pictures"}, "paint")}}
	rules := NewRules(setOf(t, role, binding("a", "painter", userSubject("vincent"))))
	has := func(cluster logicalcluster.Name, u user.Info) bool {
		resources, _, incomplete, err := Resolver{rules}.RulesFor(logicalcluster.WithName(context.Background(), cluster), u, "")
		if err != nil || incomplete {
			t.Errorf("rules in %s: %v", cluster, err)
		}
		for _, r := range resources {
			if strings.Join(r.GetVerbs(), "") == "paint" {
				return true
			}
		}
		return false
	}
	vincent, patron := &user.DefaultInfo{Name: "vincent"}, &user.DefaultInfo{Name: "theo", Extra: map[string][]string{WarrantKey: {`{"user":"vincent"}`}}}
	if !has("a", vincent) || !has("a", patron) || has("b", vincent) || has("a", &user.DefaultInfo{Name: "paul"}) {
		t.Error("the wrong people may paint")
	}
	if _, _, _, err := (Resolver{rules}).RulesFor(context.Background(), vincent, ""); err == nil {
		t.Error("rules without a logical cluster")
	}
}

func FuzzRequiredGroups(f *testing.F) {
	f.Add("a,b;c", "a")
	f.Add(";", "")
	f.Add("a,,b", "a")
	f.Fuzz(func(t *testing.T, required, group string) {
		if holdsRequired(sets.New[string](), required) {
			t.Errorf("%q lets everybody in", required)
		}
		if held := holdsRequired(sets.New(group), required); held && (group == "" || !strings.Contains(";"+required+";", ";"+group)) {
			t.Errorf("%q lets members of %q in", required, group)
		}
	})
}
