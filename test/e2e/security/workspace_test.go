package security

import (
	"fmt"
	"os"
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// whoIs returns the user of a token in a cluster.
func whoIs(t *testing.T, c *kcptest.Cluster, token string) (authenticationv1.UserInfo, error) {
	t.Helper()
	kube := c.Kube(t, kcptest.User{Name: "token", Token: token})
	review, err := kube.AuthenticationV1().SelfSubjectReviews().Create(kcptest.Context(t), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	return review.Status.UserInfo, nil
}

func TestIssuerOfTypeIsTrustedOnlyInWorkspacesOfThatType(t *testing.T) {
	e := &environment
	third, err := newIssuer(e.dir, "issuer-three")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(third.Close)
	org := e.server.Named("root").CreateWorkspace(t, kcptest.Masters, kcptest.Workspace("issuers-"+kcptest.Suffix(), "", ""))
	ca, err := os.ReadFile(e.ca.File)
	if err != nil {
		t.Fatal(err)
	}
	org.Apply(t, third.TrustedBy("tenanted", ca))
	team := org.CreateWorkspace(t, kcptest.Masters, kcptest.Workspace("team", "", "tenanted"))
	plain := org.CreateWorkspace(t, kcptest.Masters, kcptest.Workspace("plain", "", "universal"))
	name := org.GetWorkspace(t, "team").Spec.Cluster
	token := func(replaced map[string]any) string {
		signed, err := third.Token(third.Claims(replaced))
		if err != nil {
			t.Fatal(err)
		}
		return signed
	}
	jane := token(map[string]any{"groups": []string{"developers", "system:masters", "system:kcp:admin"}})
	// The server knows the user, who has the permissions that RBAC in the workspace gives.
	user := kcptest.User{Name: "jane", Token: jane}
	_, err = team.Kube(t, user).CoreV1().ConfigMaps("default").List(kcptest.Context(t), metav1.ListOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	team.Kubectl(t, "create", "clusterrolebinding", "developers", "--clusterrole=cluster-admin", "--group=developers")
	kcptest.Eventually(t, "the user has the permissions of their group", func(ctx contextType) error {
		_, err := team.Kube(t, user).CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
		return err
	})
	who, err := whoIs(t, team, jane)
	if err != nil || who.Username != "jane" || !slices.Equal(who.Groups, []string{"developers", "system:authenticated"}) {
		t.Errorf("got user %+v: %v", who, err)
	}
	if scopes := who.Extra["authentication.kcp.io/scopes"]; !slices.Equal(scopes, []string{"cluster:" + name}) {
		t.Errorf("got scopes %v", scopes)
	}
	for _, elsewhere := range []*kcptest.Cluster{org, plain, e.server.Named("root")} {
		if _, err := whoIs(t, elsewhere, jane); err == nil {
			t.Errorf("the token is accepted in %s", elsewhere.Name)
		}
	}
	_, err = whoIs(t, team, token(map[string]any{"sub": "system:apiserver"}))
	kcptest.WantReason(t, err, metav1.StatusReasonUnauthorized)

	// A TokenReview accepts the token there.
	for c, want := range map[*kcptest.Cluster]bool{team: true, plain: false} {
		review, err := c.Kube(t, kcptest.Masters).AuthenticationV1().TokenReviews().Create(kcptest.Context(t),
			&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: jane}}, metav1.CreateOptions{})
		if err != nil || review.Status.Authenticated != want {
			t.Errorf("%s: TokenReview: got %+v: %v", c.Name, review.Status, err)
		}
	}

	org.Kubectl(t, "delete", "workspaceauthenticationconfiguration", "tenanted")
	kcptest.Eventually(t, "the token is refused everywhere after its configuration is deleted", func(contextType) error {
		if _, err := whoIs(t, team, jane); err == nil {
			return fmt.Errorf("the token is still accepted")
		}
		return nil
	})
}

// A workspace trusts the issuers of its type, which it names by a path. Another workspace can have that path later.
func TestNewTypeAtSamePathDoesNotChangeTrustedIssuers(t *testing.T) {
	e := &environment
	ca, err := os.ReadFile(e.ca.File)
	if err != nil {
		t.Fatal(err)
	}
	org := e.server.Named("root").CreateWorkspace(t, kcptest.Masters, kcptest.Workspace("types-"+kcptest.Suffix(), "", ""))
	tokens := map[string]string{}
	for _, name := range []string{"first", "second"} {
		issuer, err := newIssuer(e.dir, "issuer-"+name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(issuer.Close)
		if tokens[name], err = issuer.Token(issuer.Claims(nil)); err != nil {
			t.Fatal(err)
		}
		types := org.CreateWorkspace(t, kcptest.Masters, kcptest.Workspace("types", "", ""))
		types.Apply(t, issuer.TrustedBy("tenanted", ca))
		team := org.CreateWorkspace(t, kcptest.Masters, kcptest.Workspace(name, types.Name, "tenanted"))
		kcptest.Eventually(t, "the issuer is trusted in workspaces that were created with its type", func(contextType) error {
			if _, err := whoIs(t, team, tokens[name]); apierrors.IsUnauthorized(err) {
				return err // other errors are expected
			}
			return nil
		})
		if name == "first" {
			org.Kubectl(t, "delete", "workspace", "types")
		}
	}
	for _, token := range tokens {
		_, err = whoIs(t, e.server.Named(org.Name+":first"), token)
		kcptest.WantReason(t, err, metav1.StatusReasonUnauthorized)
	}
}
