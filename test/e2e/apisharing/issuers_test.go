package apisharing

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// developers have all permissions for the content of the export of widgets, and can read the bindings of the workspace.
const developers = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: developers}
rules:
- {apiGroups: [apis.kcp.io], resources: [apiexports/content], resourceNames: [widgets], verbs: ["*"]}
- {apiGroups: [apis.kcp.io], resources: [apibindings], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: developers}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: developers}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: developers}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: access}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:kcp:workspace:access}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: developers}
`

// trusting is an organization with three types of workspaces: two that trust an issuer each, and one that trusts none.
type trusting struct {
	org     *kcptest.Cluster
	issuers map[string]*kcptest.Issuer
}

func newTrusting(t *testing.T) trusting {
	t.Helper()
	o := trusting{server.Named("root").CreateWorkspace(t, kcptest.Masters, kcptest.Workspace("trusting-"+kcptest.Suffix(), "", "")), map[string]*kcptest.Issuer{}}
	for _, name := range []string{"providers", "consumers"} {
		issuer, err := kcptest.NewIssuer(nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(issuer.Close)
		o.org.Apply(t, issuer.TrustedBy(name, issuer.CA()))
		o.issuers[name] = issuer
	}
	return o
}

// workspace creates a workspace of a type, and returns its logical cluster.
func (o trusting) workspace(t *testing.T, name, workspaceType string) *kcptest.Cluster {
	t.Helper()
	o.org.CreateWorkspace(t, kcptest.Masters, kcptest.Workspace(name, "", workspaceType))
	c := server.Named(o.org.GetWorkspace(t, name).Spec.Cluster)
	c.Apply(t, developers)
	return c
}

// user returns a user with claims of the issuer of a type.
func (o trusting) user(t *testing.T, workspaceType string, claims map[string]any) kcptest.User {
	t.Helper()
	issuer := o.issuers[workspaceType]
	token, err := issuer.Token(issuer.Claims(claims))
	if err != nil {
		t.Fatal(err)
	}
	return kcptest.User{Name: "user of " + workspaceType, Token: token}
}

func TestIssuerOfWorkspaceIsTrustedOnlyInItsViews(t *testing.T) {
	t.Parallel()
	o := newTrusting(t)
	p, plain := o.workspace(t, "provider", "providers"), o.workspace(t, "plain", "universal")
	consumer := o.workspace(t, "consumer", "consumers")
	for _, provider := range []*kcptest.Cluster{p, plain} {
		provider.Apply(t, widgetSchema("v1", 100)+"---"+export("v1"))
		waitForIdentity(t, provider, "widgets")
	}
	bind(t, consumer, p)
	create(t, consumer, "one")
	list := func(ctx context.Context, user kcptest.User, provider *kcptest.Cluster, cluster string) error {
		found, err := view(t, user, provider, cluster).Resource(widgets).List(ctx, metav1.ListOptions{})
		if err == nil && (len(found.Items) != 1 || found.Items[0].GetName() != "one") {
			err = fmt.Errorf("got %v", found.Items)
		}
		return err
	}
	jane := o.user(t, "providers", nil)
	for _, cluster := range []string{consumer.Name, "*"} {
		kcptest.Eventually(t, "a user of the issuer can use the view", func(ctx context.Context) error { return list(ctx, jane, p, cluster) })
	}
	ctx := kcptest.Context(t)
	mine := view(t, jane, p, consumer.Name).Resource(widgets).Namespace("default")
	if _, err := mine.Create(ctx, widget("two", 2), metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	if err := mine.Delete(ctx, "two", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}

	// The issuer has the same limits in a view.
	masters := o.user(t, "providers", map[string]any{"groups": []string{"system:masters", "system:kcp:admin"}})
	kcptest.WantReason(t, list(ctx, masters, p, consumer.Name), metav1.StatusReasonForbidden)
	kcptest.WantReason(t, list(ctx, o.user(t, "providers", map[string]any{"sub": "system:admin"}), p, consumer.Name), metav1.StatusReasonUnauthorized)
	// The users are unknown elsewhere: at a provider of another type, and in the cluster that the view shows.
	john := o.user(t, "consumers", nil)
	for what, err := range map[string]error{
		"the issuer at a provider of another type": list(ctx, jane, plain, consumer.Name),
		"the issuer of the consumer":               list(ctx, john, p, consumer.Name),
		"the issuer of the provider, directly":     direct(ctx, t, jane, consumer),
	} {
		t.Log(what)
		kcptest.WantReason(t, err, metav1.StatusReasonUnauthorized)
	}

	// The view with the schemas of a consumer's bindings belongs to the consumer.
	schemasOf := func(user kcptest.User) error {
		_, err := server.DynamicAt(t, user, "/services/apiresourceschema/"+consumer.Name).Resource(schemas).List(ctx, metav1.ListOptions{})
		return err
	}
	kcptest.Eventually(t, "a user of the consumer reads the schemas", func(context.Context) error { return schemasOf(john) })
	kcptest.WantReason(t, schemasOf(jane), metav1.StatusReasonUnauthorized)
}

func direct(ctx context.Context, t *testing.T, user kcptest.User, c *kcptest.Cluster) error {
	_, err := c.Dynamic(t, user).Resource(widgets).List(ctx, metav1.ListOptions{})
	return err
}
