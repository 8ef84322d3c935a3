package abuse

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
)

// Attacks with identities and reviews.
var identityAttacks = []attack{{
	name: "Service accounts are created, and their tokens requested, reviewed and used",
	prepare: func(ctx context.Context, a *attacker) error {
		return a.create(ctx, "/api/v1/namespaces/default/serviceaccounts", `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"one"}}`)
	},
	run: func(ctx context.Context, a *attacker) error {
		together(ctx,
			a.posts(2, 5000, "/api/v1/namespaces/default/serviceaccounts", func(i int) string {
				return fmt.Sprintf(`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"account-%d"}}`, i)
			}),
			func(ctx context.Context) {
				a.flood(ctx, 8, unbounded, func(ctx context.Context, c *client, i int) {
					answer := struct{ Status struct{ Token string } }{}
					_, content, _ := c.post(ctx, "/api/v1/namespaces/default/serviceaccounts/one/token", `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"expirationSeconds":600}}`)
					if parse(content, &answer) != nil || answer.Status.Token == "" {
						return
					}
					_, _, _ = c.post(ctx, "/apis/authentication.k8s.io/v1/tokenreviews", fmt.Sprintf(`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":%q}}`, answer.Status.Token))
					theirs := &client{url: c.url, token: answer.Status.Token, http: c.http, answered: c.answered}
					_, _, _ = theirs.get(ctx, configMapPath)
				})
			})
		return nil
	},
	codes: []int{http.StatusCreated, http.StatusForbidden, http.StatusTooManyRequests},
}, {
	name: "Certificates are requested as fast as possible",
	run: func(ctx context.Context, a *attacker) error {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return err
		}
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:admin", Organization: []string{"system:masters"}}}, key)
		if err != nil {
			return err
		}
		encoded := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
		signers := []string{"kubernetes.io/kube-apiserver-client", "example.com/own", "kubernetes.io/kubelet-serving"}
		a.posts(20, 50_000, "/apis/certificates.k8s.io/v1/certificatesigningrequests", func(i int) string {
			return fmt.Sprintf(`{"apiVersion":"certificates.k8s.io/v1","kind":"CertificateSigningRequest","metadata":{"name":"csr-%d"},"spec":{"request":%q,"signerName":%q,"usages":["client auth"]}}`, i, encoded, signers[i%3])
		})(ctx)
		return nil
	},
	codes: []int{http.StatusCreated, http.StatusForbidden, http.StatusTooManyRequests, http.StatusUnprocessableEntity},
}, {
	name: "Administrators of a workspace impersonate the server, its groups, and service accounts of other workspaces",
	run: func(ctx context.Context, a *attacker) error {
		identities := []http.Header{
			{"Impersonate-User": {"system:apiserver"}},
			{"Impersonate-User": {"other-user"}, "Impersonate-Group": {"system:masters"}},
			{"Impersonate-User": {"other-user"}, "Impersonate-Group": {"system:kcp:admin"}},
			{"Impersonate-User": {"system:serviceaccount:default:default"}, "Impersonate-Group": {"system:kcp:admin"}, "Impersonate-Extra-Authentication.kcp.io%2fcluster-name": {"root"}},
			{"Impersonate-User": {"other-user"}, "Impersonate-Extra-Authorization.kcp.io%2fwarrant": {`{"user":"root-of-trust","groups":["system:masters"]}`}},
		}
		a.flood(ctx, 8, unbounded, func(ctx context.Context, c *client, i int) {
			where := []string{a.url, a.Target.URL + "/clusters/root", a.Target.URL + "/clusters/" + victims + ":team", a.Target.URL + "/clusters/*"}[i/len(identities)%4]
			impersonator := &client{url: where, token: c.token, http: c.http, answered: c.answered}
			_, _, _ = impersonator.send(ctx, http.MethodGet, configMapPath, "", identities[i%len(identities)])
		})
		return nil
	},
	codes: []int{http.StatusForbidden, http.StatusTooManyRequests, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusBadRequest},
}}
