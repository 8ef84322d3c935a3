package abuse

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// Attacks with responses of tenants' hosts.
var outsideAttacks = []attack{{
	name: "A webhook responds with a gigabyte in a megabyte of gzip",
	prepare: func(ctx context.Context, a *attacker) error {
		host, err := bomb()
		if err != nil {
			return err
		}
		return a.create(ctx, policyPath+"/validatingwebhookconfigurations", webhook(host, 10))
	},
	run: func(ctx context.Context, a *attacker) error {
		a.posts(8, unbounded, configMapPath, func(i int) string { return configMap(fmt.Sprintf("judged-%d", i), 10) })(ctx)
		return nil
	},
	codes: []int{http.StatusInternalServerError, http.StatusTooManyRequests},
}, {
	name: "A conversion webhook responds with a gigabyte in a megabyte of gzip",
	prepare: func(ctx context.Context, a *attacker) error {
		host, err := bomb()
		if err != nil {
			return err
		}
		definition := strings.Replace(openDefinition("things"), `"versions":[`, fmt.Sprintf(`"conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"url":%q,"caBundle":%q}}},
"versions":[{"name":"v2","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}},`, host.URL, authority(host)), 1)
		return a.create(ctx, crdPath, definition, thingPath("things"), thing("things", "one", "{}"))
	},
	run: func(ctx context.Context, a *attacker) error {
		a.gets(8, func(i int) string {
			return []string{"/apis/example.com/v2/things", "/apis/example.com/v2/things/one"}[i%2]
		})(ctx)
		return nil
	},
	codes: []int{http.StatusInternalServerError, http.StatusTooManyRequests},
}, {
	name: "The issuer of a workspace type responds with a gigabyte in a megabyte of gzip",
	prepare: func(ctx context.Context, a *attacker) error {
		host, err := bomb()
		if err != nil {
			return err
		}
		issuer := &kcptest.Issuer{Server: host}
		configuration, workspaceType, _ := strings.Cut(issuer.TrustedBy("tenanted", issuer.CA()), "---\n")
		if err := a.create(ctx, "/apis/tenancy.kcp.io/v1alpha1/workspaceauthenticationconfigurations", configuration, "/apis/tenancy.kcp.io/v1alpha1/workspacetypes", workspaceType); err != nil {
			return err
		}
		_, err = a.workspaceOf(ctx, "trusting", "tenanted", a.Target.connections())
		a.issuer = issuer
		return err
	},
	run: func(ctx context.Context, a *attacker) error {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return err
		}
		a.flood(ctx, 8, unbounded, func(ctx context.Context, c *client, i int) {
			token, err := kcptest.SignToken(key, a.issuer.Claims(map[string]any{"sub": fmt.Sprint(i)}))
			if err == nil {
				user := &client{url: c.url + ":trusting", token: token, http: c.http, answered: c.answered}
				_, _, _ = user.get(ctx, configMapPath)
			}
		})
		return nil
	},
	codes: []int{http.StatusUnauthorized, http.StatusTooManyRequests},
}, {
	name: "Webhooks of five workspaces hang, with four hundred concurrent creations in each",
	prepare: func(ctx context.Context, a *attacker) error {
		host := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { waitFor(r.Context(), time.Hour) }))
		for i := range 5 {
			hung, err := a.workspace(ctx, fmt.Sprintf("hung-%d", i), a.Target.connections())
			if err == nil {
				err = hung.create(ctx, policyPath+"/validatingwebhookconfigurations", webhook(host, 5))
			}
			if err != nil {
				return err
			}
		}
		return nil
	},
	run: func(ctx context.Context, a *attacker) error {
		var floods []func(context.Context)
		for workspace := range 5 {
			floods = append(floods, func(ctx context.Context) {
				c := &client{url: fmt.Sprintf("%s:hung-%d", a.url, workspace), token: a.Token, http: a.Target.connections(), answered: a.count}
				a.flood(ctx, 400, unbounded, func(ctx context.Context, _ *client, i int) {
					_, _, _ = c.post(ctx, configMapPath, configMap(fmt.Sprintf("hung-%d", i), 10))
				})
			})
		}
		together(ctx, floods...)
		return nil
	},
	codes: []int{http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusGatewayTimeout},
}}

// bomb is a host whose small responses decompress to large ones.
func bomb() (*httptest.Server, error) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	zeros := make([]byte, mebibyte)
	for range 1024 {
		if _, err := w.Write(zeros); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(packed.Bytes())
	})), nil
}

// authority returns the CA of a host, as API objects contain it.
func authority(host *httptest.Server) string {
	return base64.StdEncoding.EncodeToString((&kcptest.Issuer{Server: host}).CA())
}

// webhook returns a configuration that sends creations to a host.
func webhook(host *httptest.Server, seconds int) string {
	return fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"host"},"webhooks":[{
"name":"host.example.com","clientConfig":{"url":%q,"caBundle":%q},"failurePolicy":"Fail","sideEffects":"None","admissionReviewVersions":["v1"],"timeoutSeconds":%d,
"rules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]}]}`, host.URL, authority(host), seconds)
}
