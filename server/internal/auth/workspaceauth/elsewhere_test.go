package workspaceauth

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/internal/tenancy/pathindex"
	"github.com/kcplane/kcp/server/internal/tenancy/references"
	"github.com/kcplane/kcp/server/internal/tenancy/workspacetypes"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// holder is the shard that holds the workspace root:far, with a type and its configuration.
type holder struct {
	err   error
	asked []string
}

func (h *holder) Locate(_ context.Context, path string) (logicalcluster.Name, bool, error) {
	return "far", path == "root:far", h.err
}

func (h *holder) Has(_ context.Context, _ logicalcluster.Name, resource schema.GroupResource, name string) (bool, error) {
	h.asked = append(h.asked, resource.Resource+" "+name)
	return false, h.err
}

// A token of an issuer whose configuration this shard has not received is not invalid.
func TestATokenIsNotInvalidWhileTheTypeIsNotKnown(t *testing.T) {
	late := references.Unavailable("late")
	for name, c := range map[string]struct {
		typed string
		known bool // the type
		err   error
		asked string
		code  int
	}{
		"the type does not exist":          {typed: "root:far:tenanted", asked: "workspacetypes tenanted", code: 401},
		"the type is not known":            {typed: "root:far:tenanted", err: late, code: 503},
		"the configuration does not exist": {typed: "root:far:tenanted", known: true, asked: "workspaceauthenticationconfigurations jwt", code: 401},
		"the configuration is not known":   {typed: "root:far:tenanted", known: true, err: late, code: 503},
		"no type":                          {err: late, code: 401},
	} {
		lc := objecttest.In("team", &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{
			Name: corev1alpha1.LogicalClusterName, Annotations: map[string]string{tenancyv1alpha1.TypeAnnotation: c.typed},
		}})
		objects := []objecttest.Object{lc}
		o := objecttest.New(t, objects...)
		index := pathindex.New(o.Set)
		types, h := workspacetypes.New(o.Set, index), &holder{err: c.err}
		shared := references.New(o.Set, index)
		shared.Share(h)
		types.Share(shared)
		if c.known {
			far := objecttest.In("far", lc.DeepCopy())
			wt := objecttest.In("far", &tenancyv1alpha1.WorkspaceType{ObjectMeta: metav1.ObjectMeta{Name: "tenanted"}})
			wt.Spec.AuthenticationConfigurations = []tenancyv1alpha1.AuthenticationConfigurationReference{{Name: "jwt"}}
			o.Share(func(cluster logicalcluster.Name) (string, []logicalcluster.Name) {
				return map[logicalcluster.Name]string{"far": "us", "root": "root"}[cluster], nil
			})
			o.Offer("us", far)
			o.Offer("us", wt)
			o.Offer("root", objecttest.In("root", lc.DeepCopy()))
			o.Offer("root", objecttest.In("root", &tenancyv1alpha1.Workspace{
				ObjectMeta: metav1.ObjectMeta{Name: "far"}, Spec: tenancyv1alpha1.WorkspaceSpec{Cluster: "far"},
				Status: tenancyv1alpha1.WorkspaceStatus{Phase: corev1alpha1.LogicalClusterPhaseReady},
			}))
		}
		issuers := New(o.Set, types, nil, nil, nil)
		issuers.Share(shared)
		handler := authorization.WithUndecided(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, ok, _ := issuers.AuthenticateToken(r.Context(), "token"); !ok { // as upstream's filter does
				http.Error(w, "Unauthorized", http.StatusUnauthorized)
			}
		}), scheme.Codecs)
		got := httptest.NewRecorder()
		handler.ServeHTTP(got, httptest.NewRequest(http.MethodGet, "/api", nil).WithContext(logicalcluster.WithName(t.Context(), "team")))
		if got.Code != c.code || (c.code == 503) != (got.Header().Get("Retry-After") == "1") {
			t.Errorf("%s: got %d %s", name, got.Code, got.Body)
		}
		if c.err == nil && strings.Join(h.asked, ",") != c.asked {
			t.Errorf("%s: the questions are %v, want %s", name, h.asked, c.asked)
		}
	}
}
