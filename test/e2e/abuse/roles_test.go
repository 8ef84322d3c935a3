package abuse

import (
	"context"
	"fmt"
	"net/http"
	"strings"
)

const (
	rolePath    = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
	bindingPath = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
	accessRole  = "system:kcp:workspace:access"
)

// mallory is a user of the attacker's workspace with few permissions.
var mallory = http.Header{"Impersonate-User": {"mallory"}}

// Attacks with roles, which cost the server processor time and memory.
var roleAttacks = []attack{{
	name: "Two hundred role bindings of a user refer to a role that aggregates a hundred roles",
	prepare: func(ctx context.Context, a *attacker) error {
		for i := range 100 {
			if err := a.create(ctx, rolePath, clusterRole(fmt.Sprintf("part-%d", i), `{"rbac.authorization.k8s.io/aggregate-to-view":"true"}`, 100)); err != nil {
				return err
			}
		}
		for i := range 200 {
			if err := a.create(ctx, bindingPath, clusterRoleBinding(fmt.Sprintf("view-%d", i), "view")); err != nil {
				return err
			}
		}
		return a.create(ctx, bindingPath, clusterRoleBinding("access", accessRole))
	},
	run: func(ctx context.Context, a *attacker) error {
		a.flood(ctx, 20, unbounded, func(ctx context.Context, c *client, _ int) {
			_, _, _ = c.send(ctx, http.MethodGet, "/api/v1/namespaces/default/secrets", "", mallory)
		})
		return nil
	},
	codes: []int{http.StatusForbidden, http.StatusTooManyRequests},
}, {
	name: "A user without permission to escalate writes roles that grant millions of permissions",
	prepare: func(ctx context.Context, a *attacker) error {
		return a.create(ctx,
			rolePath, `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"writer"},"rules":[{"apiGroups":["rbac.authorization.k8s.io"],"resources":["clusterroles"],"verbs":["create"]}]}`,
			bindingPath, clusterRoleBinding("writer", "writer"), bindingPath, clusterRoleBinding("access", accessRole))
	},
	run: func(ctx context.Context, a *attacker) error {
		list := `["a` + strings.Repeat(`","a`, 199) + `"]`
		role := fmt.Sprintf(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"large"},"rules":[{"apiGroups":%[1]s,"resources":%[1]s,"verbs":%[1]s}]}`, list)
		a.flood(ctx, 4, unbounded, func(ctx context.Context, c *client, _ int) {
			_, _, _ = c.send(ctx, http.MethodPost, rolePath, role, mallory)
		})
		return nil
	},
	codes: []int{http.StatusForbidden, http.StatusTooManyRequests},
}, {
	name: "Roles have twelve thousand rules each, and are aggregated",
	prepare: func(ctx context.Context, a *attacker) error {
		for i := range 5 {
			if err := a.create(ctx, rolePath, fmt.Sprintf(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"all-%d"},"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"part":"yes"}}]},"rules":[]}`, i)); err != nil {
				return err
			}
		}
		return nil
	},
	run: func(ctx context.Context, a *attacker) error {
		a.posts(4, unbounded, rolePath, func(i int) string { return clusterRole(fmt.Sprintf("part-%d", i), `{"part":"yes"}`, 12_000) })(ctx)
		return nil
	},
	codes: []int{http.StatusCreated, http.StatusForbidden, http.StatusTooManyRequests},
}}

// clusterRole returns a ClusterRole with a number of rules that no other role has.
func clusterRole(name, labels string, rules int) string {
	var b strings.Builder
	for i := range rules {
		fmt.Fprintf(&b, `,{"apiGroups":["%s.example.com"],"resources":["r%d"],"verbs":["get"]}`, name, i)
	}
	return fmt.Sprintf(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":%q,"labels":%s},"rules":[%s]}`, name, labels, b.String()[1:])
}

// clusterRoleBinding returns a ClusterRoleBinding that gives mallory a role.
func clusterRoleBinding(name, role string) string {
	return fmt.Sprintf(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":%q},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":%q},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"mallory"}]}`, name, role)
}
