package security

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// webhooks is a server with an authorization webhook and an audit webhook.
type webhooks struct {
	*httptest.Server

	mu      sync.Mutex
	reviews []authorizationv1.SubjectAccessReviewSpec
	audited []auditv1.Event
}

// clusterOf is the extra with the logical cluster of a request.
const clusterOf = "authorization.kcp.io/cluster-name"

func newWebhooks(ca *kcptest.Authority, dir string) (*webhooks, error) {
	w := &webhooks{}
	mux := http.NewServeMux()
	mux.HandleFunc("/authorize", w.authorize)
	mux.HandleFunc("/audit", w.audit)
	w.Server = httptest.NewUnstartedServer(mux)
	var err error
	if w.TLS, err = ca.TLSConfig(dir, "webhooks"); err != nil {
		return nil, err
	}
	w.StartTLS()
	return w, nil
}

// authorize allows requests for the ConfigMap that has the name of the request's logical cluster.
func (w *webhooks) authorize(out http.ResponseWriter, r *http.Request) {
	review := &authorizationv1.SubjectAccessReview{}
	if err := json.NewDecoder(r.Body).Decode(review); err != nil {
		http.Error(out, err.Error(), http.StatusBadRequest)
		return
	}
	w.mu.Lock()
	w.reviews = append(w.reviews, review.Spec)
	w.mu.Unlock()
	asked, extra := review.Spec.ResourceAttributes, review.Spec.Extra[clusterOf]
	review.Status.Allowed = asked != nil && asked.Resource == "configmaps" && len(extra) == 1 && asked.Name == "of-"+extra[0]
	_ = json.NewEncoder(out).Encode(review)
}

func (w *webhooks) audit(_ http.ResponseWriter, r *http.Request) {
	list := &auditv1.EventList{}
	if err := json.NewDecoder(r.Body).Decode(list); err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.audited = append(w.audited, list.Items...)
}

// kubeconfig writes a kubeconfig for one of the webhooks.
func (w *webhooks) kubeconfig(ca *kcptest.Authority, dir, path string) (file string, err error) {
	file = filepath.Join(dir, path+".kubeconfig")
	return file, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"webhook": {Server: w.URL + "/" + path, CertificateAuthority: ca.File}},
		Contexts:       map[string]*clientcmdapi.Context{"webhook": {Cluster: "webhook"}},
		CurrentContext: "webhook",
	}, file)
}

// grantAccess permits Alice to enter a cluster, where only the webhook gives her permissions.
func grantAccess(t *testing.T, c *kcptest.Cluster) {
	t.Helper()
	c.Kubectl(t, "create", "clusterrolebinding", "alice", "--clusterrole="+kcptest.EntryRole, "--user="+kcptest.Alice.Name)
	kcptest.Eventually(t, "Alice can enter", func(ctx contextType) error {
		_, err := c.Kube(t, kcptest.Alice).AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		return err
	})
}

func TestAuthorizationWebhookDecidesRequestsWithoutOtherDecision(t *testing.T) {
	one, other := environment.server.Cluster(t), environment.server.Cluster(t)
	ctx := kcptest.Context(t)
	grantAccess(t, one)
	grantAccess(t, other)
	name := "of-" + one.Name
	for _, c := range []*kcptest.Cluster{one, other} {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := c.Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default").Create(ctx, object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// Request twice: a cached decision for one cluster must not be used for another.
	for range 2 {
		if _, err := one.Kube(t, kcptest.Alice).CoreV1().ConfigMaps("default").Get(ctx, name, metav1.GetOptions{}); err != nil {
			t.Errorf("a request that the webhook allows is refused: %v", err)
		}
		_, err := other.Kube(t, kcptest.Alice).CoreV1().ConfigMaps("default").Get(ctx, name, metav1.GetOptions{})
		kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	}
	environment.webhooks.mu.Lock()
	defer environment.webhooks.mu.Unlock()
	for _, review := range environment.webhooks.reviews {
		if clusters := review.Extra[clusterOf]; len(clusters) != 1 {
			t.Errorf("the webhook got a request of %s with clusters %v, want one", review.User, clusters)
		}
	}
}

func TestUserCannotForgeClusterForAuthorizationWebhook(t *testing.T) {
	one, other := environment.server.Cluster(t), environment.server.Cluster(t)
	grantAccess(t, other)
	config := other.Config(kcptest.Masters)
	config.Impersonate.UserName = kcptest.Alice.Name
	config.Impersonate.Extra = map[string][]string{clusterOf: {one.Name}}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.CoreV1().ConfigMaps("default").Get(kcptest.Context(t), "of-"+one.Name, metav1.GetOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
}

func TestAuditWebhookReceivesEvents(t *testing.T) {
	c := environment.server.Cluster(t)
	c.Kubectl(t, "create", "configmap", "told")
	kcptest.Eventually(t, "the webhook has the event", func(contextType) error {
		environment.webhooks.mu.Lock()
		defer environment.webhooks.mu.Unlock()
		for _, e := range environment.webhooks.audited {
			if e.ObjectRef != nil && e.ObjectRef.Name == "told" && e.Annotations["kcp.io/cluster"] == c.Name {
				return nil
			}
		}
		return fmt.Errorf("none of %d events matches", len(environment.webhooks.audited))
	})
}
