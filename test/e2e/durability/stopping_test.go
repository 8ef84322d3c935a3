package durability

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// TestStoppingServerRefusesNoTokens stops servers while clients use the token of a service account. Clients retry with another server
// when a connection is closed or the server is unavailable, but not when their token is refused.
func TestStoppingServerRefusesNoTokens(t *testing.T) {
	dir := t.TempDir()
	var name, token string
	var answered atomic.Int64
	for life := range 3 {
		server := kcptest.StartIn(t, dir)
		if life == 0 {
			name, token = newToken(t, server)
		}
		config := rest.AnonymousClientConfig(server.Config(kcptest.Masters))
		config.Host += "/clusters/" + name
		config.BearerToken, config.QPS = token, -1
		ctx, cancel := context.WithCancel(kcptest.Context(t))
		var clients sync.WaitGroup
		var ready sync.WaitGroup
		for range 24 {
			ready.Add(1)
			client := kubernetes.NewForConfigOrDie(config)
			clients.Go(func() {
				warm := sync.OnceFunc(ready.Done)
				defer warm()
				for {
					_, err := client.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{Limit: 1})
					var status apierrors.APIStatus
					switch {
					case err == nil:
						answered.Add(1)
						warm()
					case errors.As(err, &status) && status.Status().Code < 500 && status.Status().Code != 429:
						t.Errorf("while the server stops: %v", err)
						return
					default:
						return
					}
				}
			})
		}
		ready.Wait()
		err := server.Stop()
		cancel()
		clients.Wait()
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d requests were answered", answered.Load())
}

// newToken returns a token of a service account with permission to list, and its cluster.
func newToken(t *testing.T, server *kcptest.Server) (cluster, token string) {
	t.Helper()
	ctx, c := kcptest.Context(t), server.Cluster(t)
	c.Kubectl(t, "create", "clusterrolebinding", "robot", "--clusterrole=view", "--serviceaccount=default:robot")
	core := c.Kube(t, kcptest.Masters).CoreV1()
	if _, err := core.ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	request, err := core.ServiceAccounts(namespace).CreateToken(ctx, "robot", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	bearer := kcptest.User{Name: "robot", Token: request.Status.Token}
	kcptest.Eventually(t, "the token can list", func(ctx context.Context) error {
		_, err := c.Kube(t, bearer).CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return fmt.Errorf("listing: %w", err)
		}
		return nil
	})
	return c.Name, request.Status.Token
}
