package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
	"github.com/kcplane/kcp/fleet/internal/tunnel"
	"github.com/kcplane/kcp/server/virtual/stream"
)

// serveTunnel keeps the tunnel of the cluster open until ctx ends. Through it, the fleet reads and deletes pods and connects to them, in
// the namespaces of assignments only.
func (s *syncer) serveTunnel(ctx context.Context) {
	handler, err := s.podHandler()
	if err != nil {
		klog.Background().Error(err, "Pods are not served")
		return
	}
	fleet := rest.CopyConfig(s.fleetConfig)
	fleet.NextProtos = []string{"http/1.1"} // which can be upgraded
	transport, err := rest.TransportFor(fleet)
	if err != nil {
		klog.Background().Error(err, "Pods are not served")
		return
	}
	wait := newBackoff(pause, longestPause)
	for ctx.Err() == nil {
		begun := time.Now()
		if err := tunnel.Run(ctx, transport, s.options.URL+"/tunnel", handler); err != nil && ctx.Err() == nil {
			klog.Background().Info("The tunnel ended, opening another one", "error", err.Error())
		}
		sleep(ctx, wait.after(time.Since(begun) < worked))
	}
}

// podHandler serves /assignments/<name>/api/v1/pods[/<pod>[/<subresource>]]: pods in the namespace of an assignment. All other paths do not
// exist.
func (s *syncer) podHandler() (http.Handler, error) {
	plain, err := rest.TransportFor(s.localConfig)
	if err != nil {
		return nil, err
	}
	config := rest.CopyConfig(s.localConfig)
	config.NextProtos = []string{"http/1.1"}
	upgrading, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	host, _, err := rest.DefaultServerUrlFor(s.localConfig)
	if err != nil {
		return nil, err
	}
	forward := func(transport http.RoundTripper) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			to, err := s.podPath(r)
			if err != nil {
				fail(w, err)
				return
			}
			proxy := httputil.ReverseProxy{
				Transport: transport, FlushInterval: -1,
				Rewrite: func(out *httputil.ProxyRequest) {
					out.Out.URL = &url.URL{Scheme: host.Scheme, Host: host.Host, Path: to, RawQuery: r.URL.RawQuery}
					out.Out.Host, out.Out.Header = "", stream.Header(out.Out.Header)
					if r.Method == http.MethodDelete {
						out.Out.Header.Set("Content-Type", "application/json") // of its options
					}
				},
				ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
					fail(w, apierrors.NewServiceUnavailable(err.Error()))
				},
			}
			proxy.ServeHTTP(w, r)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /assignments/{assignment}/api/v1/pods", forward(plain))
	mux.HandleFunc("GET /assignments/{assignment}/api/v1/pods/{pod}", forward(plain))
	mux.HandleFunc("DELETE /assignments/{assignment}/api/v1/pods/{pod}", forward(plain))
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		mux.HandleFunc(method+" /assignments/{assignment}/api/v1/pods/{pod}/{subresource}", forward(upgrading))
	}
	return mux, nil
}

// fail responds with an error.
func fail(w http.ResponseWriter, err error) {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
	}
	status := known.Status()
	status.Kind, status.APIVersion = "Status", "v1"
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status) // the client may be away
}

// podPath returns the path at the API server of the cluster for a request through the tunnel.
func (s *syncer) podPath(r *http.Request) (string, error) {
	namespace, err := s.assignedNamespace(r.PathValue("assignment"))
	if err != nil {
		return "", err
	}
	to := "/api/v1/namespaces/" + namespace + "/pods"
	if pod := r.PathValue("pod"); pod != "" {
		if len(content.IsPathSegmentName(pod)) > 0 {
			return "", apierrors.NewBadRequest(fmt.Sprintf("%q is not the name of a pod", pod))
		}
		to += "/" + pod
	}
	if subresource := r.PathValue("subresource"); subresource != "" {
		if !tunnel.Subresources.Has(subresource) {
			return "", apierrors.NewNotFound(corev1.Resource("pods/"+subresource), r.PathValue("pod"))
		}
		to += "/" + subresource
	}
	return to, nil
}

// assignedNamespace returns the namespace of an assignment on the cluster, if the agent has created it.
func (s *syncer) assignedNamespace(assignment string) (string, error) {
	missing := apierrors.NewNotFound(v1alpha1.SchemeGroupVersion.WithResource("assignments").GroupResource(), assignment)
	_, a, err := stored[v1alpha1.Assignment](s.assignments, assignment)
	if err != nil || a == nil {
		return "", missing
	}
	name := namespaceName(a)
	_, namespace, err := stored[corev1.Namespace](s.namespaces, name)
	if err != nil || namespace == nil || namespace.Annotations[ownerAnnotation] != s.owner(assignment) {
		return "", missing
	}
	return name, nil
}
