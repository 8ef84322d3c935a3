package pods

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kcplane/kcp/fleet/internal/tunnel"
	"github.com/kcplane/kcp/server/virtual"
	"github.com/kcplane/kcp/server/virtual/stream"
)

// maxErrorBytes of the body of an error are read.
const maxErrorBytes = 16 << 10

// stream forwards a request for a subresource of a pod to the agent of the cluster where the pod is.
func (p *Pods) stream(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) {
	if info.APIGroup != "" || info.Resource != resource.Resource || info.APIVersion != resource.Version || len(info.Parts) != 3 ||
		!tunnel.Subresources.Has(info.Subresource) {
		virtual.Fail(w, r, apierrors.NewNotFound(resource.GroupResource(), info.Name))
		return
	}
	o, err := p.of(r.Context(), info.Namespace)
	if err != nil {
		virtual.Fail(w, r, err)
		return
	}
	s, _, err := o.find(r.Context(), info.Name)
	if err != nil {
		virtual.Fail(w, r, err)
		return
	}
	for _, c := range []struct {
		count *count
		key   string
	}{{&p.streams.ofWorkspace, o.workspace}, {&p.streams.ofCluster, s.cluster}} {
		done, err := c.count.begin(c.key)
		if err != nil {
			virtual.Fail(w, r, err)
			return
		}
		defer done()
	}
	transport, err := p.config.To(s.cluster)
	if err != nil {
		virtual.Fail(w, r, unreachable(s, read, err))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), streamTimeout)
	defer cancel()
	path := s.path() + "/api/v1/pods/" + info.Name + "/" + info.Subresource
	to := &url.URL{Scheme: "http", Host: "cluster", Path: path, RawQuery: r.URL.RawQuery}
	proxy := httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1,
		Rewrite: func(out *httputil.ProxyRequest) {
			out.Out.URL, out.Out.Host, out.Out.Header = to, "", stream.Header(out.Out.Header)
		},
		ModifyResponse: func(response *http.Response) error { return checked(response) },
		ErrorHandler:   func(w http.ResponseWriter, r *http.Request, err error) { virtual.Fail(w, r, unreachable(s, read, err)) },
	}
	proxy.ServeHTTP(w, r.WithContext(ctx))
}

// checked returns the error of a response that is not successful.
func checked(response *http.Response) error {
	if response.StatusCode == http.StatusOK || response.StatusCode == http.StatusSwitchingProtocols {
		return nil
	}
	content, err := io.ReadAll(io.LimitReader(response.Body, maxErrorBytes))
	if err != nil {
		return err
	}
	status := metav1.Status{}
	if json.Unmarshal(content, &status) != nil || status.Status != metav1.StatusFailure || int(status.Code) != response.StatusCode {
		return fmt.Errorf("the cluster responds with %s", response.Status)
	}
	if status.Code == http.StatusInternalServerError { // of the node
		return errors.New(status.Message)
	}
	return &apierrors.StatusError{ErrStatus: status}
}
