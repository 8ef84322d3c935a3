package mount

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"

	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/internal/process/fairqueue"
	"github.com/kcplane/kcp/server/internal/process/outbound"
	"github.com/kcplane/kcp/server/internal/process/spans"
)

const (
	// hopsHeader counts the mounts that a request has passed: mounts can form a loop.
	hopsHeader = "X-Kcp-Mount-Hops"
	maxHops    = 4
)

// withheld are the prefixes of headers that the proxy removes: identities that the other server could trust because of the client
// certificate of this server, and cookies, which are for this host.
var withheld = []string{"X-Remote-", impersonation, "Cookie"}

const (
	// idlePerHost and maxIdle are the maximum numbers of idle connections to a host, and to all hosts.
	idlePerHost, maxIdle = 25, 1024
	// maxHeaderBytes is the maximum size of the header of a response. The body is streamed to the client.
	maxHeaderBytes = 64 << 10
)

// Config of a Proxy.
type Config struct {
	// Hosts are the hosts that requests may be sent to.
	Hosts *Hosts
	// Workspaces are read to end requests when their mounts end.
	Workspaces informers.Lister[*tenancyv1alpha1.Workspace]
	// Files are for calls to other hosts. The ServingCertificate of this server, PEM, is trusted in addition to their authorities.
	Files              outbound.Files
	ServingCertificate []byte
	// Authorities, PEM, are trusted for this installation in addition: they have signed the certificates of front proxies.
	Authorities []byte
	// Serializer encodes errors.
	Serializer runtime.NegotiatedSerializer
}

// Proxy forwards requests.
type Proxy struct {
	config      Config
	connections *connections
	// own calls this installation, without the client certificate, which would authenticate all clients there. others calls other hosts.
	own, others transports
}

// transports are a transport for requests, and one without HTTP/2 for requests that upgrade their connection.
type transports struct{ plain, upgrade *http.Transport }

// NewProxy returns a proxy.
func NewProxy(config Config) (*Proxy, error) {
	others, err := config.Files.TLS()
	if err != nil {
		return nil, err
	}
	others.RootCAs.AppendCertsFromPEM(config.ServingCertificate)
	own := others.Clone()
	own.GetClientCertificate, own.RootCAs = nil, others.RootCAs.Clone()
	own.RootCAs.AppendCertsFromPEM(config.Authorities)
	return &Proxy{config: config, connections: newConnections(config.Workspaces), own: newTransports(own), others: newTransports(others)}, nil
}

func newTransports(config *tls.Config) transports {
	plain := outbound.Transport(config)
	plain.Proxy, plain.MaxIdleConnsPerHost, plain.MaxIdleConns = http.ProxyFromEnvironment, idlePerHost, maxIdle
	plain.MaxResponseHeaderBytes = maxHeaderBytes
	return transports{plain, outbound.ForUpgrades(plain)}
}

// WithMounts serves requests for mounted workspaces, and passes all others to next. It must be called after authentication and
// authorization: requests for mounts are audited and limited like all others.
func (p *Proxy) WithMounts(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t, mounted := r.Context().Value(contextKey{}).(target)
		if !mounted {
			next.ServeHTTP(w, r)
			return
		}
		hops, err := hopsOf(r.Header)
		if err != nil {
			p.refuse(w, r, apierrors.NewInternalError(fmt.Errorf("workspace %s: %w", t.path, err)))
			return
		}
		location, own, err := p.config.Hosts.Check(t.url)
		if err != nil {
			p.refuse(
				w,
				r,
				apierrors.NewServiceUnavailable(fmt.Sprintf("the workspace %s is mounted from the URL %q, which is not allowed: %v", t.path, t.url,
					err)),
			)
			return
		}
		followed, done, ok := p.connections.follow(r, t)
		defer done()
		if !ok {
			p.refuse(
				w,
				r,
				apierrors.NewServiceUnavailable(fmt.Sprintf("the mount of the workspace %s has just changed; try again", t.path)),
			)
			return
		}
		fairqueue.From(r.Context()).Wait() // until it ends
		ctx, span := spans.Start(followed.Context(), "Proxy to the mounted server")
		defer span.End(nil)
		p.forward(w, followed.WithContext(ctx), t, location, own, hops+1)
	})
}

// hopsOf returns the number of mounts that a request has passed, or an error if it must not pass another one.
func hopsOf(header http.Header) (int, error) {
	text := header.Get(hopsHeader)
	if text == "" {
		return 0, nil
	}
	hops, err := strconv.Atoi(text)
	if err != nil || hops < 0 || hops >= maxHops {
		return 0, fmt.Errorf("the request has passed %d mounts, which is the limit; the mounts probably form a loop", maxHops)
	}
	return hops, nil
}

// errRedirect prevents that clients are redirected, with their credentials, to hosts that mounts may not use.
var errRedirect = errors.New("it responds with a redirect, which mounts do not follow")

func (p *Proxy) forward(w http.ResponseWriter, r *http.Request, t target, location *url.URL, own bool, hops int) {
	choice := p.others
	if own {
		choice = p.own
	}
	transport := choice.plain
	upgrades, err := outbound.Upgrade(r)
	if err != nil {
		p.refuse(w, r, apierrors.NewBadRequest(fmt.Sprintf("the workspace %s is mounted: %v", t.path, err)))
		return
	}
	if upgrades {
		transport = choice.upgrade
	}
	proxy := httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(out *httputil.ProxyRequest) {
			u := *location
			u.Path, u.RawQuery = strings.TrimSuffix(location.Path, "/")+r.URL.Path, r.URL.RawQuery
			out.Out.URL, out.Out.Host = &u, ""
			rewriteHeader(out.Out.Header, t.authorization, hops)
		},
		ModifyResponse: func(response *http.Response) error {
			if response.StatusCode >= 300 && response.StatusCode < 400 && response.Header.Get("Location") != "" {
				return errRedirect
			}
			response.Header.Del("Set-Cookie") // the cookie would be for this host
			if info, ok := request.RequestInfoFrom(r.Context()); ok && info.Verb == "watch" && response.StatusCode == http.StatusOK {
				response.Body = outbound.Stream{ReadCloser: response.Body, Context: r.Context()}
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			decisionlog.ForFailure(r.Context(), t.workspace.Cluster).Info("Mounted server failed", decisionlog.Cluster, t.workspace.Cluster,
				decisionlog.Workspace, t.path, decisionlog.URL, t.url, decisionlog.Reason, err)
			reason := "it does not respond as expected"
			if errors.Is(err, errRedirect) {
				reason = err.Error()
			}
			p.refuse(w, r, apierrors.NewServiceUnavailable(fmt.Sprintf("the server that is mounted at %s is not available: %s", t.path, reason)))
		},
	}
	proxy.ServeHTTP(w, r)
}

// rewriteHeader changes the header of a request for the mounted server: it keeps the credentials of the client and removes all other
// identities.
func rewriteHeader(header http.Header, authorization []string, hops int) {
	for name := range header {
		for _, prefix := range withheld {
			if strings.HasPrefix(name, prefix) {
				delete(header, name) // in any spelling
			}
		}
	}
	header.Del("Authorization")
	for _, value := range authorization {
		header.Add("Authorization", value)
	}
	header.Set(hopsHeader, strconv.Itoa(hops))
}

func (p *Proxy) refuse(w http.ResponseWriter, r *http.Request, err error) {
	responsewriters.ErrorNegotiated(err, p.config.Serializer, schema.GroupVersion{Version: "v1"}, w, r)
}
