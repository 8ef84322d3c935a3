// Package health shows the reason of a failed health check to users who may read the metrics of the server. Others see only that it fails.
package health

import (
	"bytes"
	"net/http"
	"strings"
	"sync"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/healthz"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// withheld is the text that upstream writes after the name of a failed check.
const withheld = " failed: reason withheld"

// Checks keeps the last error of each check. The zero value is ready for use.
type Checks struct{ failed sync.Map } // name → error

// Remember wraps checks to remember their errors.
func (c *Checks) Remember(checks []healthz.HealthChecker) {
	for i, check := range checks {
		checks[i] = remembered{check, c}
	}
}

type remembered struct {
	healthz.HealthChecker
	checks *Checks
}

// Check implements healthz.HealthChecker.
func (r remembered) Check(request *http.Request) error {
	err := r.HealthChecker.Check(request)
	if err == nil {
		r.checks.failed.Delete(r.Name())
	} else {
		r.checks.failed.Store(r.Name(), err)
	}
	return err
}

// reason returns the last error of a check.
func (c *Checks) reason(name string) (string, bool) {
	if err, ok := c.failed.Load(name); ok {
		return err.(error).Error(), true
	}
	switch {
	case strings.HasPrefix(name, "poststarthook/"):
		return "not finished", true
	case name == "shutdown":
		return "the server is stopping", true
	}
	return "", false
}

// WithReasons adds the reasons to the responses of /healthz, /livez and /readyz for users that the authorizer a allows to get /metrics.
func (c *Checks) WithReasons(next http.Handler, a authorizer.Authorizer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !Below(r.URL.Path, Paths) {
			next.ServeHTTP(w, r)
			return
		}
		held := &answer{header: w.Header(), code: http.StatusOK}
		next.ServeHTTP(held, r)
		body := held.body.Bytes()
		if held.code != http.StatusOK && mayKnow(r, a) {
			body = c.explain(body)
			w.Header().Del("Content-Length")
		}
		w.WriteHeader(held.code)
		_, _ = w.Write(body)
	})
}

// Paths are the paths of health checks, including everything below.
var Paths = []string{"/healthz", "/livez", "/readyz"}

// Below reports whether a path is one of prefixes, or below one.
func Below(path string, prefixes []string) bool {
	for _, prefix := range prefixes {
		if rest, ok := strings.CutPrefix(path, prefix); ok && (rest == "" || rest[0] == '/') {
			return true
		}
	}
	return false
}

// mayKnow reports whether a request is for the server itself, from a user who may get its metrics. Administrators of a logical cluster
// may get any path there, therefore requests in a cluster never qualify. Anonymous requests do not qualify either: probes must not wait
// for an authorization webhook.
func mayKnow(r *http.Request, a authorizer.Authorizer) bool {
	if _, inCluster := logicalcluster.From(r.Context()); inCluster {
		return false
	}
	u, ok := request.UserFrom(r.Context())
	if !ok || u.GetName() == user.Anonymous {
		return false
	}
	decision, _, err := a.Authorize(r.Context(), authorizer.AttributesRecord{User: u, Verb: "get", Path: "/metrics"})
	return err == nil && decision == authorizer.DecisionAllow
}

// explain replaces "reason withheld" with the reasons.
func (c *Checks) explain(body []byte) []byte {
	lines := strings.Split(string(body), "\n")
	for i, line := range lines {
		name, ok := strings.CutSuffix(line, withheld)
		if !ok {
			continue
		}
		if reason, known := c.reason(strings.TrimPrefix(name, "[-]")); known {
			lines[i] = name + " failed: " + strings.ReplaceAll(reason, "\n", "; ")
		}
	}
	return []byte(strings.Join(lines, "\n"))
}

// answer buffers a response.
type answer struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(code int)        { a.code = code }
func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }
