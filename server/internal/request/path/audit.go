package path

import (
	"net/http"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"

	"github.com/kcplane/kcp/server/internal/request/mount"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// The annotations of audit events with the location of a request. The URI of an event does not include the cluster.
const (
	auditCluster   = "kcp.io/cluster"
	auditPath      = "kcp.io/path"
	auditWorkspace = "tenancy.kcp.io/workspace"
)

// WithAuditAnnotations adds the logical cluster of each request, which must be in its context, and its path, which pathOf returns, to the
// audit log. A mounted workspace has only a path.
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

// WithoutAudit prevents that requests collect audit annotations if there is no audit log: upstream collects them until a policy excludes
// the event.
func WithoutAudit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := audit.WithAuditContext(r.Context())
		_ = audit.AuditContextFrom(ctx).Init(audit.RequestAuditConfig{Level: auditinternal.LevelNone}, nil) // fails if it is initialized already
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}
