package path

import (
	"net/http"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"

	"github.com/kcplane/kcp/server/internal/request/mount"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// The annotations of audit events that tell where a request went. The URI of an event begins behind the cluster.
const (
	auditCluster   = "kcp.io/cluster"
	auditPath      = "kcp.io/path"
	auditWorkspace = "tenancy.kcp.io/workspace"
)

// WithAuditAnnotations makes the audit log tell the logical cluster of each request, which must be in its context, and
// the path of that, which pathOf returns. A mounted workspace has a path only.
func WithAuditAnnotations(next http.Handler, pathOf func(logicalcluster.Name) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if cluster, ok := logicalcluster.From(r.Context()); ok {
			ctx := audit.WithAuditContext(r.Context())
			where := cluster.String()
			audit.AddAuditAnnotations(ctx, auditCluster, where, auditWorkspace, where)
			if !cluster.Wildcard {
				audit.AddAuditAnnotation(ctx, auditPath, pathOf(cluster.Name))
			}
			r = r.WithContext(ctx)
		} else if path, mounted := mount.PathFrom(r.Context()); mounted {
			ctx := audit.WithAuditContext(r.Context())
			audit.AddAuditAnnotation(ctx, auditPath, path)
			r = r.WithContext(ctx)
		}
		next.ServeHTTP(w, r)
	})
}

// WithoutAudit keeps requests from collecting what an audit log would tell, where there is none: upstream believes that
// every event may be wanted until a policy says otherwise.
func WithoutAudit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := audit.WithAuditContext(r.Context())
		_ = audit.AuditContextFrom(ctx).Init(audit.RequestAuditConfig{Level: auditinternal.LevelNone}, nil) // fails where it is decided already
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}
