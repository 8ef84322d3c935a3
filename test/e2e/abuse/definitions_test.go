package abuse

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

func parse(content []byte, into any) error { return json.Unmarshal(content, into) }

// Attacks with definitions and policies, which cost the server processor time.
var definitionAttacks = []attack{{
	name: "A hundred definitions and their objects are created and deleted repeatedly",
	run: func(ctx context.Context, a *attacker) error {
		a.flood(ctx, 8, 20_000, func(ctx context.Context, c *client, i int) {
			plural := fmt.Sprintf("churned%d", i%100)
			_, _, _ = c.post(ctx, crdPath, openDefinition(plural))
			_, _, _ = c.post(ctx, thingPath(plural), thing(plural, "one", "{}"))
			_, _, _ = c.get(ctx, thingPath(plural))
			_, _, _ = c.delete(ctx, crdPath+"/"+plural+".example.com")
		})
		return nil
	},
	codes: []int{http.StatusCreated, http.StatusOK, http.StatusConflict, http.StatusNotFound, http.StatusTooManyRequests, http.StatusMethodNotAllowed, http.StatusForbidden},
}, {
	name: "Definitions of resources that the server serves itself are created and deleted",
	run: func(ctx context.Context, a *attacker) error {
		names := [][2]string{{"workspaces", "tenancy.kcp.io"}, {"logicalclusters", "core.kcp.io"}, {"apibindings", "apis.kcp.io"}, {"configmaps", ""}, {"roles", "rbac.authorization.k8s.io"}}
		a.flood(ctx, 4, unbounded, func(ctx context.Context, c *client, i int) {
			n := names[i%len(names)]
			definition := strings.NewReplacer("example.com", n[1], "things", n[0]).Replace(openDefinition("things"))
			_, _, _ = c.post(ctx, crdPath, definition)
			_, _, _ = c.delete(ctx, crdPath+"/"+n[0]+"."+n[1])
			_, _, _ = a.as(a.organization).get(ctx, workspacePath)
		})
		return nil
	},
	codes: []int{http.StatusUnprocessableEntity, http.StatusOK, http.StatusForbidden, http.StatusNotFound, http.StatusTooManyRequests},
}, {
	name: "Each write is validated by forty policies with twenty expressions, each with three nested loops",
	prepare: func(ctx context.Context, a *attacker) error {
		loops := `{"expression":"object.data.all(a, object.data.all(b, object.data.all(c, a != b || b != c || true)))"}`
		for i := range 40 {
			if err := a.create(ctx,
				policyPath+"/validatingadmissionpolicies", fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"loops-%d"},"spec":{"failurePolicy":"Ignore",
					"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]},"validations":[%s]}}`, i, strings.Repeat(loops+",", 19)+loops),
				policyPath+"/validatingadmissionpolicybindings", fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":"loops-%d"},"spec":{"policyName":"loops-%d","validationActions":["Deny"]}}`, i, i),
			); err != nil {
				return err
			}
		}
		return nil
	},
	run: func(ctx context.Context, a *attacker) error {
		var data []string
		for i := range 200 {
			data = append(data, fmt.Sprintf(`"key-%d":"v"`, i))
		}
		together(ctx, a.posts(16, unbounded, configMapPath, func(i int) string {
			return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"judged-%d"},"data":{%s}}`, i, strings.Join(data, ","))
		}), a.gets(1, func(int) string { return configMapPath }))
		return nil
	},
	// The attack lasts until the policies have judged a write, which takes seconds. The reads of the attacker wait behind its own writes.
	codes: []int{http.StatusForbidden, http.StatusOK, http.StatusTooManyRequests},
}, {
	name: "A policy writes a megabyte of an object a thousand times into the same object",
	prepare: func(ctx context.Context, a *attacker) error {
		var fields []string
		for i := range 1000 {
			fields = append(fields, fmt.Sprintf("'k%d': object.data.a", i))
		}
		return a.create(ctx,
			policyPath+"/mutatingadmissionpolicies", fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"MutatingAdmissionPolicy","metadata":{"name":"grow"},"spec":{"failurePolicy":"Fail","reinvocationPolicy":"IfNeeded",
				"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]},
				"mutations":[{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":%q}}]}}`, "Object{data: {"+strings.Join(fields, ",")+"}}"),
			policyPath+"/mutatingadmissionpolicybindings", `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"MutatingAdmissionPolicyBinding","metadata":{"name":"grow"},"spec":{"policyName":"grow"}}`,
		)
	},
	run: func(ctx context.Context, a *attacker) error {
		a.posts(4, unbounded, configMapPath, func(i int) string {
			return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"grown-%d"},"data":{"a":%q}}`, i, strings.Repeat("x", 150_000))
		})(ctx)
		return nil
	},
	codes: []int{http.StatusForbidden, http.StatusTooManyRequests},
}, {
	name: "A hundred unreachable webhooks are called for each write of 150 kB",
	prepare: func(ctx context.Context, a *attacker) error {
		var webhooks []string
		for i := range 100 {
			webhooks = append(webhooks, fmt.Sprintf(`{"name":"w%d.example.com","clientConfig":{"url":"https://127.0.0.1:1/"},"failurePolicy":"Fail","sideEffects":"None","admissionReviewVersions":["v1"],
				"rules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]}`, i))
		}
		return a.create(ctx, policyPath+"/validatingwebhookconfigurations",
			fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"hundred"},"webhooks":[%s]}`, strings.Join(webhooks, ",")))
	},
	run: func(ctx context.Context, a *attacker) error {
		a.posts(16, unbounded, configMapPath, func(i int) string {
			return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"sent-%d"},"data":{"a":%q}}`, i, strings.Repeat("x", 150_000))
		})(ctx)
		return nil
	},
	codes: []int{http.StatusInternalServerError, http.StatusTooManyRequests, http.StatusForbidden},
}}

const policyPath = "/apis/admissionregistration.k8s.io/v1"
