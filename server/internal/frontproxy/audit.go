package frontproxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"

	"github.com/kcplane/kcp/server/internal/frontproxy/mapping"
	"github.com/kcplane/kcp/server/internal/request/path"
)

// refusals is the audit log of the requests that the proxy refuses. Shards record those that they get, with who sent them.
type refusals struct {
	policy  audit.PolicyRuleEvaluator
	backend audit.Backend
}

// newRefusals returns the audit log of options; nil if they select no events.
func newRefusals(o *genericoptions.AuditOptions) (*refusals, error) {
	config := &genericapiserver.Config{}
	if err := o.ApplyTo(config); err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	if config.AuditBackend == nil || config.AuditPolicyRuleEvaluator == nil {
		return nil, nil
	}
	return &refusals{config.AuditPolicyRuleEvaluator, config.AuditBackend}, nil
}

// run starts the log. The returned function writes what is left of it.
func (a *refusals) run() (stop func(), err error) {
	if a == nil {
		return func() {}, nil
	}
	stopped := make(chan struct{})
	if err := a.backend.Run(stopped); err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	return func() {
		close(stopped)
		a.backend.Shutdown()
	}, nil
}

// record writes an event about a request that was refused. u is nil if the proxy has not authenticated it.
func (a *refusals) record(w http.ResponseWriter, r *http.Request, u user.Info, received time.Time, refusal error) {
	if a == nil {
		return
	}
	ctx := audit.WithAuditContext(audited(r, u))
	attributes, err := filters.GetAuthorizerAttributes(ctx)
	if err != nil {
		return // audited has set all of them
	}
	event, id := audit.AuditContextFrom(ctx), uuid.NewString()
	audit.WithAuditID(ctx, types.UID(id))
	if err := event.Init(a.policy.EvaluatePolicyRule(attributes), a.backend); err != nil || !event.Enabled() {
		return
	}
	audit.LogRequestMetadata(ctx, r, received, attributes)
	status := statusOf(refusal)
	event.LogResponseObject(&status, nil)
	w.Header().Set(auditinternal.HeaderAuditID, id)
	event.ProcessEventStage(ctx, auditinternal.StageResponseComplete)
}

// statusOf returns the Status with which the proxy responds.
func statusOf(err error) metav1.Status {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return status.Status()
	}
	return apierrors.NewInternalError(err).Status()
}

var requestInfo = request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// audited returns the context of a request with what the rules of an audit policy select by: the user, and what the path below the logical
// cluster names.
func audited(r *http.Request, u user.Info) context.Context {
	named := &http.Request{Method: r.Method, Header: r.Header, URL: r.URL}
	if strings.HasPrefix(r.URL.Path, mapping.Clusters) {
		if _, rest, err := path.Split(r.URL); err == nil {
			named.URL = &url.URL{Path: rest, RawQuery: r.URL.RawQuery}
		}
	}
	info, err := requestInfo.NewRequestInfo(named)
	if err != nil {
		info = &request.RequestInfo{Path: r.URL.Path, Verb: r.Method}
	}
	ctx := request.WithRequestInfo(r.Context(), info)
	if u != nil {
		ctx = request.WithUser(ctx, u)
	}
	return ctx
}
