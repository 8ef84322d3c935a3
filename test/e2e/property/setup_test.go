package property

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// Kinds that the test needs besides those of the operations.
var (
	resourceQuotas      = &kind{name: "ResourceQuota", version: "v1", plural: "resourcequotas", namespaced: true}
	clusterRoleBindings = &kind{name: "ClusterRoleBinding", group: "rbac.authorization.k8s.io", version: "v1", plural: "clusterrolebindings"}
)

// A quota that is never reached counts the objects in one namespace of each tenant.
const (
	quotaName = "p-quota"
	counted   = "p-two"
)

var quotaHard = map[string]any{"count/configmaps": "100000", "count/secrets": "100000", "count/widgets." + customGroup: "100000"}

// definition returns the definition of widgets. The marker is in a description and in a default, so both documents about the schema and
// objects show to which tenant it belongs.
func definition(marker string) map[string]any {
	properties := func(fields map[string]any) map[string]any {
		return map[string]any{"type": "object", "properties": fields}
	}
	schema := properties(map[string]any{
		"spec": properties(map[string]any{
			"value":  map[string]any{"type": "string", "description": "As " + marker + " describes it."},
			"origin": map[string]any{"type": "string", "default": marker},
		}),
		"status": properties(map[string]any{"note": map[string]any{"type": "string"}}),
	})
	return map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": widgets.plural + "." + customGroup},
		"spec": map[string]any{
			"group": customGroup, "scope": "Namespaced",
			"names": map[string]any{"plural": widgets.plural, "singular": "widget", "kind": widgets.name},
			"versions": []any{map[string]any{
				"name": widgets.version, "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": schema}, "subresources": map[string]any{"status": map[string]any{}},
				"additionalPrinterColumns": []any{map[string]any{"name": "Value", "type": "string", "jsonPath": ".spec.value"}},
			}},
		},
	}
}

// until repeats a request until the response has a code.
func (t *tenant) until(ctx context.Context, c *client, r request, code int) error {
	ctx, cancel := context.WithTimeout(ctx, 2*kcptest.Timeout)
	defer cancel()
	r.method = or(r.method, http.MethodGet)
	for {
		a, err := c.do(ctx, t, r)
		if err != nil {
			return fmt.Errorf("%s as %s: %w", r, r.as.name, err)
		}
		if a.code == code {
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%s as %s: want %d, still get %s", r, r.as.name, code, a)
		}
	}
}
