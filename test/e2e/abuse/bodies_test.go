package abuse

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
)

// The size limit of request bodies.
const largest = 3 * mebibyte

// Attacks with the bodies of requests.
var bodyAttacks = []attack{{
	name: "Bodies have the maximum size, and more",
	run: func(ctx context.Context, a *attacker) error {
		together(ctx,
			a.posts(4, unbounded, configMapPath, func(int) string { return configMap("too-large", largest-200) }), // a ConfigMap can contain a third of this
			a.posts(4, unbounded, configMapPath, func(int) string { return configMap("too-large", largest+1) }),
			a.posts(4, 300, configMapPath, func(i int) string { return configMap(fmt.Sprintf("large-%d", i), 1_000_000) }))
		return nil
	},
	codes: []int{http.StatusCreated, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity, http.StatusTooManyRequests, noAnswer},
}, {
	name: "Documents are nested ten thousand deep, in JSON and in YAML, and YAML aliases expand to billions of values",
	prepare: func(ctx context.Context, a *attacker) error {
		return a.create(ctx, crdPath, openDefinition("things"))
	},
	run: func(ctx context.Context, a *attacker) error {
		aliases := &strings.Builder{}
		aliases.WriteString("a0: &a0 [x" + strings.Repeat(", x", 9) + "]\n")
		for i := 1; i < 12; i++ {
			fmt.Fprintf(aliases, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10), ", "))
		}
		depth := func(i int) int { return 100 * (1 + i%100) }
		inJSON := func(i int) string {
			return fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Kthings","metadata":{"name":"deep-%d"},"spec":%s1%s}`, i%1000, strings.Repeat(`{"a":`, depth(i)), strings.Repeat(`}`, depth(i)))
		}
		documents := []struct{ body, kind string }{
			{aliases.String(), "application/yaml"},
			{strings.Repeat("[", 1<<20), "application/yaml"},
			{strings.Repeat("[", 1<<20), "application/json"},
			{strings.Repeat(`{"a":`, 200_000), "application/json"},
			{strings.Repeat("- ", 100_000), "application/yaml"},
			{strings.Repeat("? ", 100_000), "application/yaml"},
		}
		together(ctx, a.posts(2, 2000, thingPath("things"), inJSON),
			func(ctx context.Context) {
				a.flood(ctx, 4, unbounded, func(ctx context.Context, c *client, i int) {
					d := documents[i%len(documents)]
					_, _, _ = c.send(ctx, http.MethodPost, []string{configMapPath, thingPath("things")}[i/len(documents)%2], d.body, mediaType(d.kind))
				})
			})
		return nil
	},
	codes: []int{http.StatusBadRequest, http.StatusCreated, http.StatusConflict, http.StatusUnprocessableEntity, http.StatusTooManyRequests, http.StatusRequestEntityTooLarge},
}, {
	name: "One object has two thousand field managers, each with a thousand fields",
	prepare: func(ctx context.Context, a *attacker) error {
		return a.create(ctx, crdPath, openDefinition("things"), thingPath("things"), thing("things", "one", `{}`))
	},
	run: func(ctx context.Context, a *attacker) error {
		var sent atomic.Int64
		a.flood(ctx, 4, unbounded, func(ctx context.Context, c *client, i int) {
			fields := &strings.Builder{}
			for j := range 1000 {
				fmt.Fprintf(fields, `"f%d":1,`, (i*7+j)%5000)
			}
			body := fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Kthings","metadata":{"name":"one"},"spec":{%s"a":1}}`, fields)
			sent.Add(1)
			_, _, _ = c.send(ctx, http.MethodPatch, fmt.Sprintf("%s/one?fieldManager=manager-%d&force=true", thingPath("things"), i%2000), body, mediaType("application/apply-patch+yaml"))
		})
		return nil
	},
	codes: []int{http.StatusOK, http.StatusConflict, http.StatusTooManyRequests, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity},
}}

// openDefinition returns the definition of a resource whose schema preserves unknown fields.
func openDefinition(plural string) string {
	return fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"%[1]s.example.com"},"spec":{
"group":"example.com","scope":"Cluster","names":{"plural":"%[1]s","singular":"%[1]s","kind":"K%[1]s","listKind":"K%[1]sList"},
"versions":[{"name":"v1","served":true,"storage":true,"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`, plural)
}

func thingPath(plural string) string { return "/apis/example.com/v1/" + plural }

func thing(plural, name, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"K%s","metadata":{"name":%q},"spec":%s}`, plural, name, spec)
}
