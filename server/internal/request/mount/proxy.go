package mount

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/streaming/pkg/httpstream"

	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/internal/process/fairqueue"
	"github.com/kcplane/kcp/server/internal/process/outbound"
	"github.com/kcplane/kcp/server/internal/process/spans"
)

const (
	// hopsHeader counts the mounts that a request has gone through: one may lead to the next, and back to the first.
	hopsHeader = "X-Kcp-Mount-Hops"
	maxHops    = 4
)

// withheld are the beginnings of headers that do not leave this server: identities that a server could believe it because
// of its client certificate, and cookies, which are for this host.
var withheld = []string{"X-Remote-", impersonation, "Cookie"}

const (
	// idlePerHost and maxIdle are how many connections are kept to a host, and to all together.
	idlePerHost, maxIdle = 25, 1024
	// maxHeaderBytes of an answer are read. The rest of it goes to the client as it comes, and is not kept.
	maxHeaderBytes = 64 << 10
)

// Config of a Proxy.
type Config struct {
	// Hosts are where requests may go.
	Hosts *Hosts
	// Workspaces are read to end requests with the mounts that they go through.
	Workspaces informers.Lister[*tenancyv1alpha1.Workspace]
	// Files are for calling other hosts. ServingCertificate of this server, PEM, is trusted besides the authorities of these.
	Files              outbound.Files
	ServingCertificate []byte
	// Serializer encodes errors.
	Serializer runtime.NegotiatedSerializer
}

// Proxy passes requests on.
type Proxy struct {
	config      Config
	connections *connections
	// own reaches this installation, without a certificate that would authenticate its clients there; others reaches
	// the other hosts.
	own, others transports
}

// transports are one for requests, and one without HTTP/2 for those that upgrade their connection.
type transports struct{ plain, upgrade *http.Transport }

// NewProxy returns a proxy.
func NewProxy(config Config) (*Proxy, error) {
	others, err := config.Files.TLS()
	if err != nil {
		return nil, err
	}
	others.RootCAs.AppendCertsFromPEM(config.ServingCertificate)
	own := others.Clone()
	own.GetClientCertificate = nil
	return &Proxy{config: config, connections: newConnections(config.Workspaces), own: newTransports(own), others: newTransports(others)}, nil
}

func newTransports(config *tls.Config) transports {
	plain := outbound.Transport(config)
	plain.Proxy, plain.MaxIdleConnsPerHost, plain.MaxIdleConns = http.ProxyFromEnvironment, idlePerHost, maxIdle
	plain.MaxResponseHeaderBytes = maxHeaderBytes
	upgrade := plain.Clone()
	upgrade.ForceAttemptHTTP2, upgrade.TLSNextProto = false, map[string]func(string, *tls.Conn) http.RoundTripper{}
	return transports{plain, upgrade}
}

// WithMounts answers requests for mounted workspaces, and passes all others to next. It stands behind authentication and
// authorization, so that they are audited and limited as others are.
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
				apierrors.NewServiceUnavailable(fmt.Sprintf("the workspace %s is mounted from the URL %q, which is not used: %v", t.path, t.url, err)),
			)
			return
		}
		followed, done, ok := p.connections.follow(r, t)
		defer done()
		if !ok {
			p.refuse(
				w,
				r,
				apierrors.NewServiceUnavailable(fmt.Sprintf("the workspace %s is mounted from somewhere else just now; try again", t.path)),
			)
			return
		}
		fairqueue.From(r.Context()).Wait() // until it ends
		ctx, span := spans.Start(followed.Context(), "Proxy to the mounted server")
		defer span.End(nil)
		p.forward(w, followed.WithContext(ctx), t, location, own, hops+1)
	})
}

// hopsOf returns how many mounts a request has gone through, or an error if it must not go through one more.
func hopsOf(header http.Header) (int, error) {
	text := header.Get(hopsHeader)
	if text == "" {
		return 0, nil
	}
	hops, err := strconv.Atoi(text)
	if err != nil || hops < 0 || hops >= maxHops {
		return 0, fmt.Errorf("the request has gone through %d mounts already; it seems that they lead to each other in a circle", maxHops)
	}
	return hops, nil
}

// upgrades are the protocols that Kubernetes upgrades connections to. In HTTP of another version, for one, a client could send
// requests that nobody takes anything out of, on a connection that was opened with the certificate of this server.
var upgrades = []string{"websocket", "spdy/3.1"}

// errRedirect keeps clients from being sent, with their credentials, to where a mount may not lead.
var errRedirect = errors.New("it answers with a redirect, which mounts do not follow")

func (p *Proxy) forward(w http.ResponseWriter, r *http.Request, t target, location *url.URL, own bool, hops int) {
	choice := p.others
	if own {
		choice = p.own
	}
	transport := choice.plain
	if httpstream.IsUpgradeRequest(r) {
		if protocol := r.Header.Get("Upgrade"); !slices.Contains(upgrades, strings.ToLower(protocol)) {
			p.refuse(w, r, apierrors.NewBadRequest(fmt.Sprintf("mounts upgrade connections to %s, and not to %q",
				strings.Join(upgrades, " and "), protocol)))
			return
		}
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
			response.Header.Del("Set-Cookie") // it would be for this host
			if info, ok := request.RequestInfoFrom(r.Context()); ok && info.Verb == "watch" && response.StatusCode == http.StatusOK {
				response.Body = watchBody{response.Body, r.Context()}
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			decisionlog.ForFailure(r.Context(), t.workspace.Cluster).Info("Mounted server failed", decisionlog.Cluster, t.workspace.Cluster,
				decisionlog.Workspace, t.path, decisionlog.URL, t.url, decisionlog.Reason, err)
			reason := "it does not answer as it should"
			if errors.Is(err, errRedirect) {
				reason = err.Error()
			}
			p.refuse(w, r, apierrors.NewServiceUnavailable(fmt.Sprintf("the server that is mounted at %s is not available: %s", t.path, reason)))
		},
	}
	proxy.ServeHTTP(w, r)
}

// watchBody ends when its context does. Without it, every watch that somebody leaves would be logged as a failure.
type watchBody struct {
	io.ReadCloser
	ctx context.Context
}

func (b watchBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	if err != nil && b.ctx.Err() != nil {
		err = io.EOF
	}
	return n, err
}

// rewriteHeader makes the header of a request what the mounted server gets: the credentials of the client and no other claim
// of an identity.
func rewriteHeader(header http.Header, authorization []string, hops int) {
	for name := range header {
		for _, prefix := range withheld {
			if strings.HasPrefix(name, prefix) {
				delete(header, name) // whatever its spelling
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
