package objectlimit

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// once returns a client that does not retry after a Retry-After header.
func once(t *testing.T, c *kcptest.Cluster, user kcptest.User) kubernetes.Interface {
	t.Helper()
	config := c.Config(user)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return withoutRetry{next} })
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

type withoutRetry struct{ next http.RoundTripper }

func (w withoutRetry) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := w.next.RoundTrip(r)
	if err == nil && response.StatusCode == http.StatusTooManyRequests && response.Header.Get("Retry-After") == "1" {
		response.Header.Del("Retry-After")
	}
	return response, err
}

func TestRequestsOfClusterAreLimited(t *testing.T) {
	t.Parallel()
	small := kcptest.StartIn(t, t.TempDir(), "--logical-cluster-max-requests-inflight=2", "--logical-cluster-max-watches=3")
	ours, theirs := small.Cluster(t), small.Cluster(t)
	for _, c := range []*kcptest.Cluster{ours, theirs} {
		c.Grant(t, kcptest.Alice, "cluster-admin")
	}
	ctx, end := context.WithCancel(kcptest.Context(t))
	defer end()

	var watches []watch.Interface
	open := func(c *kcptest.Cluster) error {
		w, err := once(t, c, kcptest.Alice).CoreV1().ConfigMaps("default").Watch(ctx, metav1.ListOptions{})
		if err == nil {
			watches = append(watches, w)
		}
		return err
	}
	for range 3 {
		if err := open(ours); err != nil {
			t.Fatal(err)
		}
	}
	if err := open(ours); !apierrors.IsTooManyRequests(err) {
		t.Errorf("another watch: %v", err)
	}
	if err := open(theirs); err != nil {
		t.Errorf("a watch of another cluster: %v", err)
	}
	watches[0].Stop()
	kcptest.Eventually(t, "another watch is accepted", func(context.Context) error { return open(ours) })

	// Requests whose bodies are never sent.
	release := make(chan struct{})
	client, err := rest.HTTPClientFor(ours.Config(kcptest.Alice))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		go func() {
			for code := http.StatusTooManyRequests; code == http.StatusTooManyRequests; {
				body, writer := io.Pipe() // the client closes it when the request is refused
				go func() {
					<-release
					writer.Close()
				}()
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, ours.URL()+"/api/v1/namespaces/default/configmaps", body)
				if err != nil {
					return
				}
				response, err := client.Do(r)
				if err != nil {
					return
				}
				response.Body.Close()
				code = response.StatusCode
			}
		}()
	}
	get := func(c *kcptest.Cluster, user kcptest.User) error {
		_, err := once(t, c, user).CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
		return err
	}
	kcptest.Eventually(t, "the cluster has reached its limit of requests", func(context.Context) error {
		if err := get(ours, kcptest.Alice); !apierrors.IsTooManyRequests(err) {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
	if err := get(ours, kcptest.Stranger); !apierrors.IsForbidden(err) {
		t.Errorf("a user without access: got %v", err)
	}
	for who, err := range map[string]error{"another cluster": get(theirs, kcptest.Alice), "an administrator": get(ours, kcptest.Masters)} {
		if err != nil {
			t.Errorf("%s: %v", who, err)
		}
	}
	_, err = theirs.Kube(t, kcptest.Alice).CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "one"}}, metav1.CreateOptions{})
	if err != nil {
		t.Errorf("another cluster: %v", err)
	}
	close(release)
	kcptest.Eventually(t, "requests are accepted again", func(context.Context) error { return get(ours, kcptest.Alice) })
}
