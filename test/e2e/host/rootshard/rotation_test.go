package rootshard

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kcplane/kcp/test/e2e/host/hosttest"
)

func TestKeysAreRotatedAccordingToRunbook(t *testing.T) {
	n := install(t)
	client, kubeconfig := n.made(t, "managed.yaml")
	t.Run("the key of service accounts", func(t *testing.T) { n.rotateServiceAccounts(t, client, n.Config(t, kubeconfig, "root:team")) })
	t.Run("authorities", func(t *testing.T) { n.rotateAuthorities(t, kubeconfig) })
}

func (n *installed) rotateServiceAccounts(t *testing.T, client kubernetes.Interface, config *rest.Config) {
	const section = "The key of service accounts"
	asToken := func(token string) *rest.Config {
		anonymous := rest.AnonymousClientConfig(config)
		anonymous.BearerToken, anonymous.QPS = token, -1
		return anonymous
	}
	ofSecret := tokenInSecret(t, client)
	before := asToken(newToken(t.Context(), t, client))
	n.Undisturbed(t, hosttest.ClientOf(t, before), hosttest.Disturbance{Name: "the key of service accounts is rotated", By: func() {
		end := newTokensAreAccepted(t, client, config)
		n.Follow(t, section, 0)
		end()
	}})
	for what, token := range map[string]string{"in a Secret": ofSecret, "from now": newToken(t.Context(), t, client)} {
		if _, err := hosttest.ClientOf(
			t,
			asToken(token),
		).CoreV1().ConfigMaps(
			"default",
		).List(
			t.Context(),
			metav1.ListOptions{Limit: 1},
		); err != nil {
			t.Errorf("token %s: %v", what, err)
		}
	}
	after := asToken(newToken(t.Context(), t, client))
	n.Undisturbed(
		t,
		hosttest.ClientOf(t, after),
		hosttest.Disturbance{Name: "the former key of service accounts is accepted no more", By: func() { n.Follow(t, section, 1) }},
	)
	for what, token := range map[string]string{"from before": before.BearerToken, "in a Secret": ofSecret} {
		if _, err := hosttest.ClientOf(
			t,
			asToken(token),
		).CoreV1().ConfigMaps(
			"default",
		).List(
			t.Context(),
			metav1.ListOptions{},
		); !apierrors.IsUnauthorized(
			err,
		) {
			t.Errorf("after the rotation, token %s: got %v", what, err)
		}
	}
}

// tokenInSecret gives the service account default the role cluster-admin, and returns a token of it that does not expire.
func tokenInSecret(t *testing.T, client kubernetes.Interface) string {
	t.Helper()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "default"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "default"}},
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "token", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}
	if _, err := client.CoreV1().Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token := ""
	// If a process of kcp was killed before, its lease lasts for a minute, during which no replica runs the controllers.
	if err := wait.PollUntilContextTimeout(t.Context(), time.Second, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		read, err := client.CoreV1().Secrets("default").Get(ctx, secret.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		token = string(read.Data[corev1.ServiceAccountTokenKey])
		return token != "", nil
	}); err != nil {
		t.Fatalf("the Secret has no token: %v", err)
	}
	return token
}

func newToken(ctx context.Context, t *testing.T, client kubernetes.Interface) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(3600))}}
	made, err := client.CoreV1().ServiceAccounts("default").CreateToken(ctx, "default", request, metav1.CreateOptions{})
	if err != nil {
		if ctx.Err() == nil {
			t.Errorf("creating a token: %v", err)
		}
		return ""
	}
	return made.Status.Token
}

// newTokensAreAccepted creates one token after another until end is called, and uses each at once on a new connection, which may go to
// any pod.
func newTokensAreAccepted(t *testing.T, client kubernetes.Interface, config *rest.Config) (end func()) {
	t.Helper()
	trust, err := rest.TLSConfigFor(rest.AnonymousClientConfig(config))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	used := 0
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			token := newToken(ctx, t, client)
			if status, err := use(ctx, trust, config.Host+"/api/v1/namespaces/default/configmaps?limit=1", token); ctx.Err() == nil {
				used++
				if err != nil || status != http.StatusOK {
					t.Errorf("a new token: got %d %v", status, err)
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	return func() {
		cancel()
		running.Wait()
		t.Logf("%d new tokens were used", used)
	}
}

func use(ctx context.Context, trust *tls.Config, url, token string) (status int, err error) {
	transport := &http.Transport{TLSClientConfig: trust.Clone(), DisableKeepAlives: true}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := transport.RoundTrip(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%.500s", body)
	}
	return response.StatusCode, err
}

func (n *installed) rotateAuthorities(t *testing.T, first string) {
	const section = "Authorities"
	user := func(kubeconfig string) kubernetes.Interface { return n.Client(t, kubeconfig, "root:team") }
	n.Undisturbed(t, user(first), hosttest.Disturbance{Name: "every authority has a new key", By: func() { n.Follow(t, section, 0) }})
	second := n.Trusting(t, "admin-kubeconfig", 2)
	// Both are created again from the volumes, the CAs, and the former CAs that are still trusted.
	n.survives(
		t,
		second,
		"the EtcdCluster is deleted while two authorities are trusted",
		func() { n.Kubectl(t, "delete", theEtcd, "--timeout=3m") },
	)
	n.Undisturbed(t, user(second), hosttest.Disturbance{Name: "what the former authorities have signed is renewed", By: func() {
		n.Follow(t, "Leaf certificates", 0)
		n.Follow(t, section, 1)
	}})
	n.survives(t, second, "the RootShard is deleted when everything is renewed", func() {
		n.Kubectl(t, "delete", "rootshard/kcp", "--cascade=foreground", "--timeout=5m")
		n.Manifest(t, "managed.yaml")
	})
	third := n.Trusting(t, "admin-kubeconfig", 2)
	n.Undisturbed(
		t,
		user(third),
		hosttest.Disturbance{Name: "the former authorities are trusted no more", By: func() { n.Follow(t, section, 2) }},
	)
	fourth := n.Trusting(t, "admin-kubeconfig", 1)
	for what, test := range map[string]struct {
		kubeconfig string
		want       string // of the error
	}{
		"only trusts the former CA": {first, "certificate signed by unknown authority"}, "has a certificate of the former CA": {second, "Unauthorized"},
		"trusts both CAs": {third, ""}, "trusts the current CA": {fourth, ""},
	} {
		_, err := user(test.kubeconfig).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{Limit: 1})
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("a client that %s: got %v", what, err)
		}
	}
}

// survives deletes an object during a rotation. The test fails if a kubeconfig that trusts both CAs cannot use kcp when it is Ready
// again, if acknowledged data is lost, or if the rotation changes its phase.
func (n *installed) survives(t *testing.T, kubeconfig, name string, deletes func()) {
	t.Helper()
	phases := func() string {
		return n.Kubectl(t, "get", theEtcd, "rootshard/kcp",
			`--output=jsonpath={range .items[*]}{.kind}={range .status.conditions[?(@.type=="Rotating")]}{.status}/{.reason}{end} {end}`)
	}
	f := hosttest.StartTraffic(t, n.Client(t, kubeconfig, "root:team"))
	f.Take(t)
	f.Stop()
	before, begun := phases(), time.Now()
	deletes()
	n.Kubectl(t, "wait", "--for=create", theEtcd, "--timeout=2m")
	n.Ready(t, theEtcd, "rootshard/kcp", "kubeconfig/admin")
	f.Client = n.Client(t, kubeconfig, "root:team") // the address of the Service can change
	if lost := f.Lost(t); len(lost) > 0 {
		t.Errorf("%s: writes are lost: %v", name, lost)
	}
	if err := f.Write(t.Context()); err != nil {
		t.Errorf("%s: a write fails after everything is Ready: %v", name, err)
	}
	if after := phases(); after != before {
		t.Errorf("%s: the phase of the rotation was %s and is %s", name, before, after)
	}
	t.Logf("%s: ready after %.0f s, the rotation is %s", name, time.Since(begun).Seconds(), before)
}
