package abuse

import (
	"context"
	"fmt"
	"net/http"
	"strings"
)

// Attacks with stored objects.
var writeAttacks = []attack{{
	name: "Events are created as fast as possible",
	run: func(ctx context.Context, a *attacker) error {
		a.posts(20, 100_000, "/api/v1/namespaces/default/events", func(i int) string {
			return fmt.Sprintf(`{"apiVersion":"v1","kind":"Event","metadata":{"name":"event-%d"},"involvedObject":{"kind":"ConfigMap","namespace":"default","name":"x-%d"},"reason":"R%d","message":%q,"type":"Warning"}`,
				i, i, i, strings.Repeat("m", 1000))
		})(ctx)
		return nil
	},
	codes: []int{http.StatusCreated, http.StatusForbidden, http.StatusTooManyRequests},
}, {
	name: "Objects have thousands of labels, annotations and finalizers, all of which differ",
	run: func(ctx context.Context, a *attacker) error {
		a.flood(ctx, 8, 2000, func(ctx context.Context, c *client, i int) {
			var labels, annotations, finalizers []string
			for j := range 1000 {
				labels = append(labels, fmt.Sprintf(`"l-%d-%d.example.com/x":"v-%d"`, i, j, j))
				annotations = append(annotations, fmt.Sprintf(`"a-%d-%d.example.com/x":"v-%d"`, i, j, j))
				finalizers = append(finalizers, fmt.Sprintf(`"f-%d-%d.example.com/x"`, i, j))
			}
			name := fmt.Sprintf("labelled-%d", i)
			_, _, _ = c.post(ctx, configMapPath, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"labels":{%s},"annotations":{%s},"finalizers":[%s]}}`,
				name, strings.Join(labels, ","), strings.Join(annotations, ","), strings.Join(finalizers, ",")))
			_, _, _ = c.delete(ctx, configMapPath+"/"+name)
		})
		return nil
	},
	codes: []int{http.StatusCreated, http.StatusOK, http.StatusNotFound, http.StatusTooManyRequests, http.StatusForbidden, http.StatusUnprocessableEntity},
}, {
	name: "ConfigMaps are created up to the limit of objects, and beyond",
	run: func(ctx context.Context, a *attacker) error {
		a.posts(30, unbounded, configMapPath, func(i int) string { return configMap(fmt.Sprintf("many-%d", i), 10) })(ctx)
		return nil
	},
	codes: []int{http.StatusCreated, http.StatusForbidden, http.StatusTooManyRequests},
}, {
	name: "Namespaces full of objects with finalizers that are never removed are deleted, and collections repeatedly",
	run: func(ctx context.Context, a *attacker) error {
		a.flood(ctx, 8, 500, func(ctx context.Context, c *client, i int) {
			name := fmt.Sprintf("churned-%d", i)
			_, _, _ = c.post(ctx, "/api/v1/namespaces", fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, name))
			for j := range 20 {
				_, _, _ = c.post(ctx, "/api/v1/namespaces/"+name+"/configmaps", fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c-%d","finalizers":["example.com/never"]}}`, j))
			}
			_, _, _ = c.delete(ctx, "/api/v1/namespaces/"+name)
			for range 5 {
				_, _, _ = c.delete(ctx, "/api/v1/namespaces/"+name+"/configmaps")
			}
		})
		return nil
	},
	codes: []int{http.StatusCreated, http.StatusOK, http.StatusConflict, http.StatusForbidden, http.StatusNotFound, http.StatusTooManyRequests},
}, {
	name: "Many clients create, delete and recreate one object, and update the objects of each other",
	run: func(ctx context.Context, a *attacker) error {
		a.flood(ctx, 20, unbounded, func(ctx context.Context, c *client, i int) {
			name := fmt.Sprintf("contended-%d", i%3)
			_, _, _ = c.post(ctx, configMapPath, configMap(name, 100))
			_, _, _ = c.send(ctx, http.MethodPatch, configMapPath+"/"+name, fmt.Sprintf(`{"data":{"i":"%d"}}`, i), mediaType("application/merge-patch+json"))
			_, _, _ = c.delete(ctx, configMapPath+"/"+name)
		})
		return nil
	},
	codes: []int{http.StatusCreated, http.StatusOK, http.StatusConflict, http.StatusNotFound, http.StatusTooManyRequests},
}}
