package abuse

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

func parse(content []byte, into any) error { return json.Unmarshal(content, into) }

// What definitions and policies make the server compute.
var definitionAttacks = []attack{{
	name: "A hundred definitions are created and deleted again and again, together with objects of theirs",
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
}}

const policyPath = "/apis/admissionregistration.k8s.io/v1"
