package pods

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
	"github.com/kcplane/kcp/fleet/internal/tunnel"
	"github.com/kcplane/kcp/server/virtual"
)

// assigned are the Assignments of two workspaces.
func assigned(context.Context, string) ([]v1alpha1.Assignment, error) {
	var all []v1alpha1.Assignment
	for _, text := range []string{"one/default/east", "one/default/west", "two/default/east"} {
		parts := strings.Split(text, "/")
		a := v1alpha1.Assignment{Spec: v1alpha1.AssignmentSpec{Workspace: parts[0], Namespace: parts[1], Cluster: parts[2]}}
		a.Name, a.UID = strings.ReplaceAll(text, "/", "-"), "uid"
		all = append(all, a)
	}
	return all, nil
}

// toServer sends all requests to a server.
type toServer struct{ url *url.URL }

// RoundTrip implements http.RoundTripper.
func (s toServer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host, r.Host = s.url.Scheme, s.url.Host, ""
	return http.DefaultTransport.RoundTrip(r)
}

// podsOf returns pods on clusters whose agents are a handler. The agents of away are not connected.
func podsOf(t *testing.T, handler http.HandlerFunc, away ...string) *Pods {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	location, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(Config{Assignments: assigned, To: func(cluster string) (http.RoundTripper, error) {
		for _, name := range away {
			if name == cluster {
				return nil, tunnel.ErrAway
			}
		}
		return toServer{location}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// listOf responds with a list of one pod, which has the name of the assignment.
func listOf(w http.ResponseWriter, r *http.Request) {
	name := strings.Split(r.URL.Path, "/")[2]
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"apiVersion":"v1","kind":"PodList","metadata":{"resourceVersion":"7"},"items":[{"apiVersion":"v1","kind":"Pod",
		"metadata":{"name":%q,"namespace":"elsewhere"}}]}`, name)
}

func TestAListHasThePodsOfOneWorkspaceOnAllItsClusters(t *testing.T) {
	p := podsOf(t, listOf)
	list, err := objects{Pods: p, workspace: "one"}.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, u := range list.Items {
		got = append(got, u.GetNamespace()+"/"+u.GetName()+" "+u.GetAnnotations()[v1alpha1.ClusterLabel])
	}
	if want := "default/one-default-east east,default/one-default-west west"; strings.Join(got, ",") != want {
		t.Errorf("got %v", got)
	}
	if list, err = (objects{Pods: p, workspace: "three"}).List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) > 0 {
		t.Errorf("another workspace has %v: %v", list, err)
	}
}

func TestAListIsCompleteOrNamesTheClusterThatIsAway(t *testing.T) {
	p := podsOf(t, listOf, "west")
	_, err := objects{Pods: p, workspace: "one"}.List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "cluster west") {
		t.Errorf("got %v", err)
	}
	if _, err := (objects{Pods: p, workspace: "two"}).List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("a workspace without a namespace on the cluster: %v", err)
	}
}

func TestLargeResponsesAreRefused(t *testing.T) {
	p := podsOf(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		page := []byte(strings.Repeat(" ", 1<<20))
		for range maxBytes>>20 + 1 {
			_, _ = w.Write(page)
		}
	})
	if _, err := (objects{Pods: p, workspace: "two"}).List(t.Context(), metav1.ListOptions{}); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("got %v", err)
	}
}

func TestResourceVersionsBelongToTheirWorkspaceAndClusters(t *testing.T) {
	v := newVersions()
	east, west := source{"a", "1", "east", "default"}, source{"b", "2", "west", "default"}
	text := v.add("one", map[source]string{east: "7"})
	if got, ok := v.find("one", text, []source{east}); !ok || got[east] != "7" {
		t.Errorf("got %v, %t", got, ok)
	}
	for name, find := range map[string]func() bool{
		"another workspace": func() bool { _, ok := v.find("two", text, []source{east}); return ok },
		"another cluster":   func() bool { _, ok := v.find("one", text, []source{west}); return ok },
		"fewer clusters":    func() bool { _, ok := v.find("one", text, nil); return ok },
		"more clusters":     func() bool { _, ok := v.find("one", text, []source{east, west}); return ok },
		"an unknown one":    func() bool { _, ok := v.find("one", "7", []source{east}); return ok },
	} {
		if find() {
			t.Errorf("%s: the version is used", name)
		}
	}
}

func TestAWorkspaceHasALimitOfItsOwn(t *testing.T) {
	c := count{what: "workspace", most: 2}
	var done []func()
	for range 2 {
		end, err := c.begin("one")
		if err != nil {
			t.Fatal(err)
		}
		done = append(done, end)
	}
	if _, err := c.begin("one"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("a third request: %v", err)
	}
	if end, err := c.begin("two"); err != nil {
		t.Errorf("another workspace: %v", err)
	} else {
		end()
	}
	for _, end := range done {
		end()
		end()
	}
	if len(c.open) != 0 {
		t.Errorf("%v is kept", c.open)
	}
}

func TestOnlyTheCertificateOfKcpReadsPods(t *testing.T) {
	chain := []*x509.Certificate{{Subject: pkix.Name{CommonName: "kcp-storage"}}}
	for name, want := range map[string]bool{"kcp-storage": true, "other": false, "": false} {
		if _, ok, err := Reader(name).User(chain); ok != want || err != nil {
			t.Errorf("%q: got %t, %v", name, ok, err)
		}
	}
	for name, want := range map[string]authorizer.Decision{reader: authorizer.DecisionAllow, "fleet:cluster:east": authorizer.DecisionDeny,
		"admin": authorizer.DecisionDeny} {
		a := authorizer.AttributesRecord{User: &user.DefaultInfo{Name: name, Groups: []string{"system:masters"}}}
		if got, _, err := (view{}).Authorize(t.Context(), a); got != want || err != nil {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
}

func TestErrorsOfDeletionsSayWhoRefusesThem(t *testing.T) {
	for name, test := range map[string]struct {
		code         int
		reason, said string
		want         func(error) bool
		message      string
	}{
		"RBAC": {http.StatusForbidden, "Forbidden", `pods "web" is forbidden: User "agent" cannot delete resource "pods"`,
			apierrors.IsServiceUnavailable, "the pods on cluster east cannot be deleted: its agent has no permission"},
		"a policy": {http.StatusUnprocessableEntity, "Invalid", "ValidatingAdmissionPolicy 'keep' denied request", apierrors.IsForbidden,
			"cluster east refuses the deletion: ValidatingAdmissionPolicy 'keep' denied request"},
		"a webhook": {http.StatusForbidden, "Forbidden", `admission webhook "keep" denied the request`, apierrors.IsForbidden,
			`cluster east refuses the deletion: admission webhook "keep" denied the request`},
		"a failure": {http.StatusInternalServerError, "InternalError", "broken", apierrors.IsServiceUnavailable,
			"the pods on cluster east cannot be deleted: broken"},
	} {
		p := podsOf(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if r.Method == http.MethodGet {
				fmt.Fprint(w, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"elsewhere"}}`)
				return
			}
			w.WriteHeader(test.code)
			fmt.Fprintf(w, `{"apiVersion":"v1","kind":"Status","status":"Failure","code":%d,"reason":%q,"message":%q}`,
				test.code, test.reason, test.said)
		})
		err := objects{Pods: p, workspace: "two", namespace: "default"}.delete(t.Context(), "web", metav1.DeleteOptions{})
		if !test.want(err) || !strings.HasPrefix(err.Error(), test.message) {
			t.Errorf("%s: got %v", name, err)
		}
		if apierrors.IsForbidden(err) != apierrors.HasStatusCause(err, virtual.CauseDeletionRefused) {
			t.Errorf("%s: kcp does not return the error to users: %v", name, err)
		}
	}
}
