package hosttest

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
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
)

// Tenant is a workspace whose service accounts have tokens.
type Tenant struct {
	Name   string               // empty if there is one only
	Client kubernetes.Interface // of its administrator
	Config *rest.Config         // with its address
}

// as returns the configuration of a client with a token.
func (n Tenant) as(token string) *rest.Config {
	anonymous := rest.AnonymousClientConfig(n.Config)
	anonymous.BearerToken, anonymous.QPS = token, -1
	return anonymous
}

// list reads objects of the workspace with a token.
func (n Tenant) list(t *testing.T, token string) error {
	t.Helper()
	_, err := ClientOf(t, n.as(token)).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{Limit: 1})
	return err
}

// RotateServiceAccounts rotates the keys of service accounts in two steps, while service accounts read and write. The test fails if a
// request with a valid token fails, and if tokens of the former keys are accepted at the end.
func RotateServiceAccounts(t *testing.T, tenants []Tenant, rotate, forget Disturbance) {
	t.Helper()
	type tokens struct{ ofSecret, before, after string }
	held := make([]tokens, len(tenants))
	users := make([]User, len(tenants))
	for i, n := range tenants {
		held[i] = tokens{ofSecret: tokenInSecret(t, n.Client), before: newToken(t.Context(), t, n.Client)}
		users[i] = User{Name: n.Name, Client: ClientOf(t, n.as(held[i].before)), Check: NoneFails}
	}
	During(t, users, Disturbance{Name: rotate.Name, By: func() {
		for _, n := range tenants {
			defer newTokensAreAccepted(t, n)()
		}
		rotate.By()
	}})
	for i, n := range tenants {
		held[i].after = newToken(t.Context(), t, n.Client)
		for what, token := range map[string]string{"in a Secret": held[i].ofSecret, "from now": held[i].after} {
			if err := n.list(t, token); err != nil {
				t.Errorf("workspace %q: token %s: %v", n.Name, what, err)
			}
		}
		users[i].Client = ClientOf(t, n.as(held[i].after))
	}
	During(t, users, forget)
	for i, n := range tenants {
		for what, token := range map[string]string{"from before": held[i].before, "in a Secret": held[i].ofSecret} {
			if err := n.list(t, token); !apierrors.IsUnauthorized(err) {
				t.Errorf("workspace %q: after the rotation, token %s: got %v", n.Name, what, err)
			}
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

// newToken returns a token of the service account default that expires in an hour, or an empty string if the context has ended.
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
func newTokensAreAccepted(t *testing.T, n Tenant) (end func()) {
	t.Helper()
	trust, err := rest.TLSConfigFor(rest.AnonymousClientConfig(n.Config))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	used := 0
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			token := newToken(ctx, t, n.Client)
			if status, err := use(ctx, trust, n.Config.Host+"/api/v1/namespaces/default/configmaps?limit=1", token); ctx.Err() == nil {
				used++
				if err != nil || status != http.StatusOK {
					t.Errorf("workspace %q: a new token: got %d %v", n.Name, status, err)
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
		t.Logf("workspace %q: %d new tokens were used", n.Name, used)
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
