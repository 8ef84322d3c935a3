package apisharing

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// A consumer decides about impersonation in its workspace, and the provider about the users that its policy trusts.
func TestImpersonationDoesNotBypassPolicyOfProvider(t *testing.T) {
	t.Parallel()
	p, consumer := provider(t), server.Cluster(t)
	bind(t, consumer, p)
	consumer.Grant(t, kcptest.Alice, "cluster-admin")
	limit(t, p, consumer)
	p.Apply(t, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules: [{apiGroups: [example.org], resources: [widgets], verbs: [list]}]
`)
	p.Kubectl(t, "create", "clusterrolebinding", "reader", "--clusterrole=reader", "--group=apis.kcp.io:binding:trusted", "--user=apis.kcp.io:binding:"+kcptest.Bob.Name)
	consumer.Kubectl(t, "create", "clusterrolebinding", "trusted", "--clusterrole=cluster-admin", "--group=trusted", "--user="+kcptest.Bob.Name)
	list := func(user kcptest.User, header http.Header) int {
		code, _ := consumer.Raw(t, user, http.MethodGet, "/clusters/"+consumer.Name+"/apis/example.org/v1/widgets", header, "")
		return code
	}
	member := http.Header{"Impersonate-User": {"tina"}, "Impersonate-Group": {"trusted"}}
	kcptest.Eventually(t, "the policy trusts the group, and Bob", func(context.Context) error {
		if masters, bob := list(kcptest.Masters, member), list(kcptest.Bob, member); masters != http.StatusOK || bob != http.StatusOK {
			return fmt.Errorf("a member got %d, Bob as a member got %d", masters, bob)
		}
		return nil
	})
	for what, header := range map[string]http.Header{
		"herself":                             nil,
		"impersonating a member of the group": member,
		"impersonating a user with a warrant of a member":   {"Impersonate-User": {"tina"}, "Impersonate-Extra-Authorization.kcp.io%2fwarrant": {`{"user":"tina","groups":["trusted"]}`}},
		"impersonating a trusted user":                      {"Impersonate-User": {kcptest.Bob.Name}},
		"impersonating a member, scoped to another cluster": {"Impersonate-User": {"tina"}, "Impersonate-Group": {"trusted"}, "Impersonate-Extra-Authentication.kcp.io%2fscopes": {"cluster:" + p.Name + ",cluster:" + consumer.Name}},
	} {
		if code := list(kcptest.Alice, header); code != http.StatusForbidden {
			t.Errorf("Alice %s: got %d", what, code)
		}
	}
	if code := list(kcptest.Bob, http.Header{"Impersonate-User": {kcptest.Alice.Name}}); code != http.StatusForbidden {
		t.Errorf("Bob impersonating Alice: got %d", code)
	}
	// Reviews must give the result that a request would have, for the user itself, also impersonated, and for other users.
	widgets := &authorizationv1.ResourceAttributes{Group: "example.org", Resource: "widgets", Verb: "list"}
	review := func(resource string, header http.Header, object any) bool {
		body, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		sent := header.Clone()
		if sent == nil {
			sent = http.Header{}
		}
		sent.Set("Content-Type", "application/json")
		code, answer := consumer.Raw(t, kcptest.Alice, http.MethodPost, "/clusters/"+consumer.Name+"/apis/authorization.k8s.io/v1/"+resource, sent, string(body))
		var answered authorizationv1.SubjectAccessReview
		if err := json.Unmarshal(answer, &answered); err != nil || code != http.StatusCreated {
			t.Fatalf("%s: %d %s", resource, code, answer)
		}
		return answered.Status.Allowed
	}
	meta := metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectAccessReview"}
	if review("selfsubjectaccessreviews", member, &authorizationv1.SelfSubjectAccessReview{TypeMeta: meta, Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: widgets}}) {
		t.Error("a review says that Alice impersonating a member is allowed")
	}
	meta.Kind = "SubjectAccessReview"
	if !review("subjectaccessreviews", nil, &authorizationv1.SubjectAccessReview{TypeMeta: meta, Spec: authorizationv1.SubjectAccessReviewSpec{User: "tina", Groups: []string{"trusted"}, ResourceAttributes: widgets}}) {
		t.Error("a review of Alice says that a member is not allowed")
	}
}

func TestWritesToAllConsumersAreRefused(t *testing.T) {
	t.Parallel()
	p, consumer := provider(t), server.Cluster(t)
	bind(t, consumer, p)
	all := "/services/apiexport/" + p.Name + "/widgets/clusters/*/apis/example.org/v1/namespaces/default/widgets"
	header := http.Header{"Content-Type": {"application/json"}}
	for method, path := range map[string]string{http.MethodPost: all, http.MethodDelete: all, http.MethodPut: all + "/one", http.MethodGet: all + "/one"} {
		if code, body := p.Raw(t, kcptest.Masters, method, path, header, `{"apiVersion":"example.org/v1","kind":"Widget","metadata":{"name":"one"}}`); code != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d %.300s", method, code, body)
		}
	}
}
