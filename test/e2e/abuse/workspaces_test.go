package abuse

import (
	"context"
	"fmt"
	"net/http"
)

// Attacks with workspaces and mounts.
var workspaceAttacks = []attack{{
	name: "Workspaces are created, entered and deleted without a pause",
	run: func(ctx context.Context, a *attacker) error {
		a.flood(ctx, 8, 1000, func(ctx context.Context, c *client, i int) {
			name := fmt.Sprintf("churned-%d", i)
			_, _, _ = c.post(ctx, workspacePath, fmt.Sprintf(`{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace","metadata":{"name":%q}}`, name))
			inside := &client{url: c.url + ":" + name, token: c.token, http: c.http, answered: c.answered}
			for j := range 5 {
				_, _, _ = inside.post(ctx, configMapPath, configMap(fmt.Sprintf("x-%d", j), 100))
			}
			_, _, _ = c.delete(ctx, workspacePath+"/"+name)
		})
		return nil
	},
	codes: []int{http.StatusCreated, http.StatusOK, http.StatusForbidden, http.StatusNotFound, http.StatusConflict, http.StatusTooManyRequests, http.StatusServiceUnavailable},
}, {
	name: "Mounts refer to a host that never responds",
	prepare: func(ctx context.Context, a *attacker) error {
		for i := range 5 {
			name := fmt.Sprintf("mounted-%d", i)
			err := a.create(ctx, crdPath, openDefinition("things"), thingPath("things"), thing("things", name, "{}"))
			if err == nil {
				err = a.status(ctx, thingPath("things")+"/"+name, fmt.Sprintf(`{"phase":"Ready","URL":"https://%s"}`, a.Hanging))
			}
			if err == nil {
				err = a.create(ctx, workspacePath, fmt.Sprintf(`{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace","metadata":{"name":%q},"spec":{"mount":{"ref":{"apiVersion":"example.com/v1","kind":"Kthings","name":%q}}}}`, name, name))
			}
			if err == nil {
				_, err = a.field(ctx, workspacePath+"/"+name, "Ready", "status", "phase")
			}
			if err != nil {
				return err
			}
		}
		return nil
	},
	run: func(ctx context.Context, a *attacker) error {
		together(ctx, func(ctx context.Context) {
			a.flood(ctx, 500, unbounded, func(ctx context.Context, c *client, i int) {
				mounted := &client{url: fmt.Sprintf("%s:mounted-%d", c.url, i%5), token: c.token, http: c.http, answered: c.answered}
				_, _, _ = mounted.get(ctx, configMapPath)
			})
		}, a.gets(1, func(int) string { return configMapPath }))
		return nil
	},
	codes: []int{http.StatusTooManyRequests, http.StatusOK, http.StatusBadGateway, http.StatusGatewayTimeout, http.StatusServiceUnavailable},
}}
