package authentication

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/utils/clock"

	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/internal/auth/clientcertificates"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/shards/peers/peerstest"
	"github.com/kcplane/kcp/server/logicalcluster"
)

var testHeaders = &authenticatorfactory.RequestHeaderConfig{
	UsernameHeaders: headerrequest.StaticStringSlice{"X-Remote-User"}, UIDHeaders: headerrequest.StaticStringSlice{"X-Remote-Uid"},
	GroupHeaders: headerrequest.StaticStringSlice{"x-remote-group"}, ExtraHeaderPrefixes: headerrequest.StaticStringSlice{"X-Remote-Extra-"},
}

// described authenticates a request with headers and a certificate with URIs, and returns the user; nil if there is none.
func described(t *testing.T, headers http.Header, uris ...string) *struct {
	groups string
	extra  map[string][]string
} {
	t.Helper()
	upstream := headerrequest.NewDynamic(testHeaders.UsernameHeaders, testHeaders.UIDHeaders, testHeaders.GroupHeaders, testHeaders.ExtraHeaderPrefixes)
	r := requestAt("a")
	for name, values := range headers {
		for _, v := range values {
			r.Header.Add(name, v)
		}
	}
	certificate := &x509.Certificate{}
	for _, text := range uris {
		uri, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		certificate.URIs = append(certificate.URIs, uri)
	}
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{certificate}}
	response, ok, err := FromProxies(upstream, testHeaders).AuthenticateRequest(r)
	if err != nil {
		t.Fatal(err)
	}
	if !ok {
		return nil
	}
	groups := slices.Clone(response.User.GetGroups())
	slices.Sort(groups)
	return &struct {
		groups string
		extra  map[string][]string
	}{strings.Join(groups, " "), response.User.GetExtra()}
}

func TestProxiesCannotDescribePrivilegedUsers(t *testing.T) {
	got := described(t, http.Header{
		"X-Remote-User": {"alice"},
		"X-Remote-Group": {
			"team", "system:authenticated", "system:masters", "system:kcp:admin", "system:kcp:logical-cluster-admin", "system:kcp:external-logical-cluster-admin",
			"system:kcp:tenancy:workspace-bootstrapper", "system:kcp:initializer:root:t", "system:kcp:terminator:root:t", "apis.kcp.io:binding:system:masters",
		},
		"X-Remote-Extra-Color":                                    {"red"},
		"X-Remote-Extra-Authorization.kcp.io%2fwarrant":           {`{"user":"root","groups":["system:masters"]}`},
		"X-Remote-Extra-Authorization.kcp.io/warrant":             {`{"user":"root","groups":["system:masters"]}`},
		"X-Remote-Extra-Authorization%2ekcp%2eio%2fwarrant":       {`{"user":"root","groups":["system:masters"]}`},
		"X-Remote-Extra-Impersonation.kcp.io%2Frequested-Cluster": {"b"},
		"X-Remote-Extra-Authentication.kcp.io%2Fscopes":           {"cluster:a"},
		"X-Remote-Extra-Authentication.kcp.io%2Fcluster-Name":     {"a"},
	})
	if got.groups != "system:authenticated team" {
		t.Errorf("got groups %s", got.groups)
	}
	if len(got.extra) != 3 || got.extra["color"] == nil || got.extra[authorization.ScopesKey] == nil || got.extra[logicalcluster.UserExtraKey] == nil {
		t.Errorf("got extra %v", got.extra)
	}
}

func TestOnlyProxiesAmongThePeersDescribeUsers(t *testing.T) {
	headers := http.Header{"X-Remote-User": {"alice"}}
	for name, c := range map[string]struct {
		uris []string
		want bool
	}{
		"a proxy":                       {[]string{"kcp://proxy/p"}, true},
		"a certificate that is no peer": {nil, true}, // upstream checks its authority and name
		"... with another URI":          {[]string{"spiffe://x/y"}, true},
		"a shard":                       {[]string{"kcp://shard/eu"}, false},
		"a shard that is a proxy too":   {[]string{"kcp://proxy/p", "kcp://shard/eu"}, false},
		"a peer of an unknown kind":     {[]string{"kcp://other/p"}, false},
		"a proxy with an invalid name":  {[]string{"kcp://proxy/P"}, false},
	} {
		if got := described(t, headers, c.uris...); (got != nil) != c.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestHeadersCountOnlyFromNamedCertificatesOfTheAuthorityOfProxies(t *testing.T) {
	proxies, others := peerstest.NewAuthority(t), peerstest.NewAuthority(t)
	headers := *testHeaders
	headers.AllowedClientNames = headerrequest.StaticStringSlice{"front"}
	verifier := peers.NewVerifier(proxies, clock.RealClock{})
	stated := Stated(&headers, verifier, authenticator.Audiences{"kcp"})
	for name, c := range map[string]struct {
		certificates []*x509.Certificate
		user         string
		want         bool
	}{
		"a proxy that is named":     {[]*x509.Certificate{proxies.Peer(t, peers.Proxy, "front").Leaf}, "alice", true},
		"a proxy without a user":    {[]*x509.Certificate{proxies.Peer(t, peers.Proxy, "front").Leaf}, "", false},
		"a proxy that is not named": {[]*x509.Certificate{proxies.Peer(t, peers.Proxy, "back").Leaf}, "alice", false},
		"another authority":         {[]*x509.Certificate{others.Peer(t, peers.Proxy, "front").Leaf}, "alice", false},
		"no certificate":            {nil, "alice", false},
	} {
		r := requestAt("a")
		r.TLS = &tls.ConnectionState{PeerCertificates: c.certificates}
		if c.user != "" {
			r.Header.Set("X-Remote-User", c.user)
		}
		response, ok, err := stated.AuthenticateRequest(r)
		if err != nil || ok != c.want {
			t.Errorf("%s: got %t, %v", name, ok, err)
			continue
		}
		if ok && (response.User.GetName() != c.user || len(response.Audiences) != 0) {
			t.Errorf("%s: got %+v", name, response)
		}
	}
}

func TestCertificatesAreForwardedOnlyByNamedProxies(t *testing.T) {
	proxies, others, clusters := peerstest.NewAuthority(t), peerstest.NewAuthority(t), peerstest.NewNamedAuthority(t, "kcp-logical-cluster-clients")
	headers := *testHeaders
	headers.AllowedClientNames = headerrequest.StaticStringSlice{"front"}
	forwarded := func(name string, uris ...string) string {
		value, err := clientcertificates.Format(clusters.Certificate(t, name, uris...).Leaf)
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	value := forwarded("carol", "kcp-logical-cluster:here:1")
	for name, c := range map[string]struct {
		connection []*x509.Certificate
		header     string
		want       string // the name in the certificate that is authenticated
		fails      bool
	}{
		"a proxy that is named": {[]*x509.Certificate{proxies.Peer(t, peers.Proxy, "front").Leaf}, value, "carol", false},
		"a user of a cluster on another shard": {
			[]*x509.Certificate{proxies.Peer(t, peers.Proxy, "front").Leaf}, forwarded("carol", "kcp-logical-cluster:there:1"), "", false,
		},
		"a certificate without a cluster": {[]*x509.Certificate{proxies.Peer(t, peers.Proxy, "front").Leaf}, forwarded("carol"), "carol", false},
		"a proxy without a header":        {[]*x509.Certificate{proxies.Peer(t, peers.Proxy, "front").Leaf}, "", "front", false},
		"a proxy with another header":     {[]*x509.Certificate{proxies.Peer(t, peers.Proxy, "front").Leaf}, "Zm9v", "", true},
		"a header that is too long":       {[]*x509.Certificate{proxies.Peer(t, peers.Proxy, "front").Leaf}, strings.Repeat("A", 11_000), "", true},
		"a proxy that is not named":       {[]*x509.Certificate{proxies.Peer(t, peers.Proxy, "back").Leaf}, value, "back", false},
		"another authority":               {[]*x509.Certificate{others.Peer(t, peers.Proxy, "front").Leaf}, value, "front", false},
		"a shard":                         {[]*x509.Certificate{proxies.Peer(t, peers.Shard, "front").Leaf}, value, "front", false},
		"no certificate":                  {nil, value, "", false},
	} {
		got := ""
		inner := authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
			if r.Header.Get(clientcertificates.Header) != "" {
				t.Errorf("%s: the header is still there", name)
			}
			if len(r.TLS.PeerCertificates) > 0 {
				got = r.TLS.PeerCertificates[0].Subject.CommonName
			}
			return nil, false, nil
		})
		r := requestAt("a")
		r.TLS = &tls.ConnectionState{PeerCertificates: c.connection}
		if c.header != "" {
			r.Header.Set(clientcertificates.Header, c.header)
		}
		_, _, err := Forwarded(inner, &headers, peers.NewVerifier(proxies, clock.RealClock{}), func(cluster logicalcluster.Name) bool {
			return cluster == "here"
		}).AuthenticateRequest(r)
		if (err != nil) != c.fails || got != c.want {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, c.want)
		}
		if !slices.Equal(r.TLS.PeerCertificates, c.connection) {
			t.Errorf("%s: other authenticators see %v", name, r.TLS.PeerCertificates)
		}
	}
}

// A request that a front proxy sends on without a user has the credentials of the user, or none.
func TestTheCertificateOfAProxyIsNotThatOfAUser(t *testing.T) {
	for name, c := range map[string]struct {
		uri, user string
		want      int
	}{
		"a proxy without a user": {"kcp://proxy/p", "", 0},
		"a proxy with a user":    {"kcp://proxy/p", "alice", 1},
		"a shard":                {"kcp://shard/s", "", 1},
		"a user":                 {"spiffe://x/y", "", 1},
	} {
		uri, err := url.Parse(c.uri)
		if err != nil {
			t.Fatal(err)
		}
		r := requestAt("a")
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{URIs: []*url.URL{uri}}}}
		if c.user != "" {
			r.Header.Set("X-Remote-User", c.user)
		}
		got := -1
		_, _, _ = FromProxies(authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
			got = len(r.TLS.PeerCertificates)
			return nil, false, nil
		}), testHeaders).AuthenticateRequest(r)
		if got != c.want || len(r.TLS.PeerCertificates) != 1 {
			t.Errorf("%s: got %d certificates, want %d", name, got, c.want)
		}
	}
}
