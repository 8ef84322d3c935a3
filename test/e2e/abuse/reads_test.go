package abuse

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Attacks with reads, and with responses that are not read.
var readAttacks = []attack{{
	name: "Fifty clients are busy",
	run: func(ctx context.Context, a *attacker) error {
		a.flood(ctx, 50, unbounded, func(ctx context.Context, c *client, i int) {
			name := fmt.Sprintf("busy-%d", i)
			_, _, _ = c.post(ctx, configMapPath, configMap(name, 1000))
			_, _, _ = c.get(ctx, configMapPath+"/"+name)
			_, _, _ = c.delete(ctx, configMapPath+"/"+name)
			_, _, _ = c.get(ctx, configMapPath)
		})
		return nil
	},
	codes: []int{http.StatusOK, http.StatusCreated, http.StatusNotFound, http.StatusTooManyRequests},
}, {
	name: "Watches start in the past, and end at once",
	prepare: func(ctx context.Context, a *attacker) error {
		for i := range 500 {
			if err := a.create(ctx, configMapPath, configMap(fmt.Sprintf("past-%d", i), 1000)); err != nil {
				return err
			}
		}
		return nil
	},
	run: func(ctx context.Context, a *attacker) error {
		from, err := a.field(ctx, configMapPath+"/past-0", "", "metadata", "resourceVersion")
		if err != nil {
			return err
		}
		a.gets(20, func(i int) string {
			return fmt.Sprintf("%s?watch=true&timeoutSeconds=1&resourceVersion=%s", configMapPath, []string{from, "1", "0", "99999999999", ""}[i%5])
		})(ctx)
		return nil
	},
	codes: []int{http.StatusOK, http.StatusTooManyRequests, http.StatusGone, http.StatusGatewayTimeout},
}, {
	name: "Watches start with all existing objects, and end at once",
	prepare: func(ctx context.Context, a *attacker) error {
		for i := range 500 {
			if err := a.create(ctx, configMapPath, configMap(fmt.Sprintf("existing-%d", i), 1000)); err != nil {
				return err
			}
		}
		return nil
	},
	run: func(ctx context.Context, a *attacker) error {
		a.flood(ctx, 40, unbounded, func(ctx context.Context, c *client, i int) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			response, err := c.open(ctx, http.MethodGet, configMapPath+"?watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan", "", nil)
			if err == nil {
				defer response.Body.Close()
				_, _ = io.ReadFull(response.Body, make([]byte, 100))
			}
		})
		return nil
	},
	codes: []int{http.StatusOK, http.StatusTooManyRequests},
}, {
	name: "Thousands of objects are listed in pages, without filters, and with selectors of a megabyte",
	prepare: func(ctx context.Context, a *attacker) error {
		for i := range 1000 {
			if err := a.create(ctx, configMapPath, configMap(fmt.Sprintf("listed-%d", i), 2000)); err != nil {
				return err
			}
		}
		return nil
	},
	run: func(ctx context.Context, a *attacker) error {
		selector := "a+in+(" + strings.TrimSuffix(strings.Repeat("abcdefgh,", 100_000), ",") + ")"
		together(ctx,
			a.gets(8, func(int) string { return configMapPath + "?resourceVersion=0" }),
			a.gets(4, func(int) string { return configMapPath + "?limit=1" }),
			a.gets(4, func(int) string { return "/api/v1/configmaps?fieldSelector=metadata.name%3Dnothing" }),
			a.gets(2, func(int) string { return configMapPath + "?labelSelector=" + selector }),
			a.gets(2, func(i int) string {
				return configMapPath + "?labelSelector=" + selector[:900_000] + fmt.Sprint(i) + ")"
			}))
		return nil
	},
	codes: []int{http.StatusOK, http.StatusTooManyRequests, http.StatusRequestURITooLong, http.StatusRequestHeaderFieldsTooLarge, http.StatusBadRequest, noAnswer},
}, {
	name: "Discovery and OpenAPI are read repeatedly, while definitions change them",
	prepare: func(ctx context.Context, a *attacker) error {
		return a.create(ctx, crdPath, openDefinition("things"))
	},
	run: func(ctx context.Context, a *attacker) error {
		paths := []string{"/openapi/v2", "/openapi/v3", "/openapi/v3/apis/example.com/v1", "/apis", "/api", "/apis/example.com/v1", "/openapi/v3/api/v1"}
		together(ctx,
			a.gets(20, func(i int) string { return fmt.Sprintf("%s?timeout=32s&hash=%d", paths[i%len(paths)], i) }),
			func(ctx context.Context) {
				a.flood(ctx, 1, 2000, func(ctx context.Context, c *client, i int) {
					plural := fmt.Sprintf("others%d", i%5)
					_, _, _ = c.post(ctx, crdPath, openDefinition(plural))
					waitFor(ctx, 10_000_000)
					_, _, _ = c.delete(ctx, crdPath+"/"+plural+".example.com")
				})
			})
		return nil
	},
	codes: []int{http.StatusOK, http.StatusCreated, http.StatusConflict, http.StatusNotFound, http.StatusTooManyRequests},
}, {
	name: "Forty lists of 27 MB are not read",
	prepare: func(ctx context.Context, a *attacker) error {
		for i := range 27 {
			if err := a.create(ctx, configMapPath, configMap(fmt.Sprintf("large-%d", i), 1_000_000)); err != nil {
				return err
			}
		}
		return nil
	},
	run: func(ctx context.Context, a *attacker) error {
		a.flood(ctx, 40, 40, func(ctx context.Context, c *client, i int) {
			_, _ = c.open(a.life, http.MethodGet, configMapPath, "", nil)
		})
		a.gets(1, func(int) string { return "/api/v1/namespaces/default" })(ctx)
		return nil
	},
	codes: []int{http.StatusOK, http.StatusTooManyRequests, noAnswer},
}, {
	name: "Two thousand watches receive every event",
	run: func(ctx context.Context, a *attacker) error {
		shared := a.as(a.client)
		together(ctx, func(ctx context.Context) {
			for i := 0; i < 2000 && ctx.Err() == nil; i++ {
				a.watch(shared, fmt.Sprintf("%s?watch=true&labelSelector=a!%%3D%d", configMapPath, i), true)
			}
		}, a.changes(2, 1000))
		return nil
	},
	codes: []int{http.StatusOK, http.StatusCreated, http.StatusTooManyRequests, http.StatusConflict, http.StatusNotFound},
}, {
	name: "Watches of large objects are not read",
	run: func(ctx context.Context, a *attacker) error {
		for i := range 40 {
			a.watch(a.as(a.client), fmt.Sprintf("%s?watch=true&labelSelector=a!%%3D%d", configMapPath, i), false)
		}
		a.changes(2, 1_000_000)(ctx)
		return nil
	},
	codes: []int{http.StatusOK, http.StatusCreated, http.StatusTooManyRequests, http.StatusConflict, http.StatusNotFound, noAnswer},
}}

// changes updates objects with a value of a size.
func (a *attacker) changes(clients, size int) func(context.Context) {
	return func(ctx context.Context) {
		a.flood(ctx, clients, 64_000_000/size*16, func(ctx context.Context, c *client, i int) {
			name := fmt.Sprintf("changed-%d", i%4)
			if code, _, _ := c.send(ctx, http.MethodPut, configMapPath+"/"+name, configMap(name, size+i%100), nil); code == http.StatusNotFound {
				_, _, _ = c.post(ctx, configMapPath, configMap(name, size))
			}
		})
	}
}
