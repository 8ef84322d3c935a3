package health

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/mux"

	"github.com/kcplane/kcp/server/logicalcluster"
)

func TestUsersWhoMayReadMetricsSeeWhyACheckFails(t *testing.T) {
	broken := errors.New("etcd does not respond:\nconnection refused")
	all := []healthz.HealthChecker{
		healthz.PingHealthz, healthz.NamedCheck("etcd", func(*http.Request) error { return broken }),
	}
	var checks Checks
	checks.Remember(all)
	all = append(all, healthz.NamedCheck("poststarthook/slow", func(*http.Request) error { return errors.New("not finished") }))
	served := mux.NewPathRecorderMux("test")
	healthz.InstallReadyzHandler(served, all...)
	asked := 0
	allowed := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		asked++
		if a.GetUser().GetName() == "monitor" && a.GetPath() == "/metrics" && a.GetVerb() == "get" && !a.IsResourceRequest() {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	})
	h := checks.WithReasons(served, allowed)
	in := func(ctx context.Context, name, path string) (int, string) {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r.WithContext(request.WithUser(ctx, &user.DefaultInfo{Name: name})))
		return w.Code, w.Body.String()
	}
	get := func(name, path string) (int, string) { return in(t.Context(), name, path) }
	code, got := get("monitor", "/readyz")
	if code != http.StatusInternalServerError || !strings.Contains(got, "[-]etcd failed: etcd does not respond:; connection refused\n") || !strings.Contains(got, "[-]poststarthook/slow failed: not finished\n") || !strings.Contains(got, "[+]ping ok\n") {
		t.Errorf("a user who may read metrics gets %d %s", code, got)
	}
	if code, got := get("stranger", "/readyz"); code != http.StatusInternalServerError || !strings.Contains(got, "[-]etcd failed: reason withheld\n") || strings.Contains(got, "connection refused") {
		t.Errorf("another user gets %d %s", code, got)
	}
	if _, got := in(logicalcluster.WithName(t.Context(), "ours"), "monitor", "/readyz"); strings.Contains(got, "connection refused") {
		t.Errorf("an administrator of a logical cluster gets %s", got)
	}
	asked = 0
	if _, got := get(user.Anonymous, "/readyz"); strings.Contains(got, "connection refused") || asked > 0 {
		t.Errorf("authorization was asked %d times about a probe, which gets %s", asked, got)
	}
	broken = nil
	if code, got := get("monitor", "/readyz/etcd"); code != http.StatusOK || got != "ok" || asked > 0 {
		t.Errorf("a check that passes: %d %s, and authorization was asked %d times", code, got, asked)
	}
}
