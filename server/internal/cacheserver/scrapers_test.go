package cacheserver

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"testing"

	authenticationx509 "k8s.io/apiserver/pkg/authentication/request/x509"

	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/shards/peers/peerstest"
)

func TestTheMetricsUserReadsNothingElse(t *testing.T) {
	scrapers := peerstest.NewAuthority(t)
	options, _ := scrapers.VerifyOptions()
	options.KeyUsages = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	s := start(t, func(c *Config) {
		c.Scrapers = authenticationx509.New(options, authenticationx509.CommonNameUserConversion)
	})
	metrics := s.handler.ForScrapers(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	read := func(certificates ...tls.Certificate) int {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
		r.TLS = &tls.ConnectionState{}
		for _, certificate := range certificates {
			leaf, err := x509.ParseCertificate(certificate.Certificate[0])
			if err != nil {
				t.Fatal(err)
			}
			r.TLS.PeerCertificates = append(r.TLS.PeerCertificates, leaf)
		}
		w := httptest.NewRecorder()
		metrics.ServeHTTP(w, r)
		return w.Code
	}
	viewer := scrapers.Certificate(t, Scraper)
	for name, c := range map[string]struct {
		got, want int
	}{
		"the metrics user":                      {read(viewer), http.StatusOK},
		"another user of its authority":         {read(scrapers.Certificate(t, "someone")), http.StatusUnauthorized},
		"the metrics user of another authority": {read(s.peers.Certificate(t, Scraper)), http.StatusUnauthorized},
		"a shard":                               {read(s.peers.Peer(t, peers.Shard, "alpha")), http.StatusForbidden},
		"a client without a certificate":        {read(), http.StatusUnauthorized},
	} {
		if c.got != c.want {
			t.Errorf("%s: got %d, want %d", name, c.got, c.want)
		}
	}
	config := s.as(t, viewer)
	config.CAData = s.peers.PEM
	if code, message, _ := send(t, config, http.MethodGet, "/services/cache/shards/*/clusters/*"+exportsPath, ""); code != http.StatusUnauthorized {
		t.Errorf("the metrics user reads objects: %d %s", code, message)
	}
}
