package endpoints

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/internal/process/fairqueue"
	"github.com/kcplane/kcp/server/internal/process/outbound"
	"github.com/kcplane/kcp/server/logicalcluster"
	"github.com/kcplane/kcp/server/virtual"
	"github.com/kcplane/kcp/server/virtual/stream"
)

const (
	// mostErrorBytes of the body of an error reach the client.
	mostErrorBytes = 16 << 10
	// tokenProtocol is the prefix of a websocket protocol that contains the token of a user.
	tokenProtocol = "base64url.bearer.authorization.k8s.io."

	protocolsHeader = "Sec-Websocket-Protocol"
)

var (
	errUnexpected = errors.New("the virtual workspace of the provider returned an unexpected response")
	// returnedHeaders are the headers of responses that pass: those of streams and upgraded connections. Others could have effects on
	// clients of this server.
	returnedHeaders = []string{"Content-Length", "Content-Type", "Connection", "Upgrade", "Sec-Websocket-Accept", protocolsHeader,
		"X-Stream-Protocol-Version"}
)

// streams are the transports of forwarded requests: one with HTTP/2, and one for requests that upgrade their connection.
type streams struct{ plain, upgrade *http.Transport }

func newStreams(config *tls.Config) streams {
	plain := outbound.Transport(config)
	plain.ResponseHeaderTimeout, plain.MaxResponseHeaderBytes = headerTimeout, mostHeaderBytes
	return streams{plain, outbound.ForUpgrades(plain)}
}

// Forward forwards a request to a path in the virtual workspace at a URL, in the logical cluster of its context. It streams the response,
// and upgrades the connection if the client requests it.
func (e *Endpoints) Forward(w http.ResponseWriter, r *http.Request, at *url.URL, path string) {
	cluster, err := logicalcluster.NameFrom(r.Context())
	if err != nil {
		virtual.Fail(w, r, apierrors.NewBadRequest(err.Error()))
		return
	}
	upgrades, err := outbound.Upgrade(r)
	if err != nil {
		virtual.Fail(w, r, apierrors.NewBadRequest(err.Error()))
		return
	}
	transport := e.streams.plain
	if upgrades {
		transport = e.streams.upgrade
	}
	fairqueue.From(r.Context()).Wait() // until it ends
	proxy := httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1,
		Rewrite: func(out *httputil.ProxyRequest) {
			out.Out.URL = &url.URL{Scheme: "https", Host: at.Host, Path: at.Path + "/clusters/" + string(cluster) + path, RawQuery: r.URL.RawQuery}
			out.Out.Host = ""
			out.Out.Header = header(out.Out.Header, r)
		},
		ModifyResponse: func(response *http.Response) error { return checkResponse(r.Context(), response) },
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, _ error) {
			virtual.Fail(w, r, apierrors.NewServiceUnavailable(errUnexpected.Error()))
		},
	}
	proxy.ServeHTTP(w, r)
}

// header returns the header of a forwarded request. out has the headers of the request r that a proxy passes on.
func header(out http.Header, r *http.Request) http.Header {
	sent := stream.Header(out)
	sent["User-Agent"] = []string{"kcp"}
	sent[customresources.HopsHeader] = []string{strconv.Itoa(customresources.Hops(r.Context()) + 1)}
	var protocols []string
	for _, value := range sent[protocolsHeader] {
		for protocol := range strings.SplitSeq(value, ",") {
			if protocol = strings.TrimSpace(protocol); !strings.HasPrefix(protocol, tokenProtocol) {
				protocols = append(protocols, protocol)
			}
		}
	}
	delete(sent, protocolsHeader)
	if len(protocols) > 0 {
		sent.Set(protocolsHeader, strings.Join(protocols, ", "))
	}
	return sent
}

// checkResponse removes headers from a response, and returns an error if consumers must not get it.
func checkResponse(ctx context.Context, response *http.Response) error {
	passed := http.Header{}
	for _, name := range returnedHeaders {
		if values := response.Header[name]; len(values) > 0 {
			passed[name] = values
		}
	}
	response.Header = passed
	code := response.StatusCode
	if code == http.StatusServiceUnavailable && response.Header.Get("Content-Type") == "application/json" {
		code = http.StatusBadRequest // the virtual workspace explains it
	}
	switch code {
	case http.StatusSwitchingProtocols:
	case http.StatusOK:
		response.Body = outbound.Stream{ReadCloser: response.Body, Context: ctx}
	case http.StatusBadRequest, http.StatusNotFound, http.StatusGone, http.StatusTooManyRequests:
		delete(passed, "Content-Length")
		response.Body = limitedBody{io.LimitReader(response.Body, mostErrorBytes), response.Body}
	default:
		return errUnexpected
	}
	return nil
}

type limitedBody struct {
	io.Reader
	io.Closer
}
