//go:build fleethosts

package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// counters is an application whose pods have volumes, logs, a port, and a container that repeats its input.
const counters = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 5
      containers:
      - name: counter
        image: localhost/counter:test
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
        volumeMounts: [{name: data, mountPath: /data}]
      - {name: echo, image: localhost/counter:test, args: [echo], stdin: true, stdinOnce: true}
      volumes: [{name: data, emptyDir: {}}]
`

func (f *onHosts) reachesKubelets(t *testing.T) {
	w := f.consumer(t, on("west"))
	w.Apply(t, counters)
	w.Command(t, "kubectl", kcptest.Masters).Within(patience).Run(t, "rollout", "status", "deployment/web", "--namespace=default", "--timeout=9m")
	pod := strings.Fields(w.Kubectl(t, "get", "pods", "--namespace=default", "--selector=app=web", "--output=jsonpath={.items[*].metadata.name}"))[0]
	if out := w.Kubectl(t, "get", "pods", "--namespace=default"); !strings.Contains(out, "Running") || !strings.Contains(out, "west") {
		t.Errorf("kubectl get pods: %s", out)
	}
	if out := w.Kubectl(t, "logs", "--namespace=default", pod, "--container=counter"); !strings.Contains(out, "started 1 times") {
		t.Errorf("kubectl logs: %q", out)
	}
	if out := w.Kubectl(t, "exec", "--namespace=default", pod, "--container=counter", "--", "/counter", "ask", "http://localhost:8080"); out != "1" {
		t.Errorf("kubectl exec: %q", out)
	}
	attach := w.Command(t, "kubectl", kcptest.Masters).Input("hello\n")
	if out := attach.Run(t, "attach", "--namespace=default", pod, "--container=echo", "--stdin", "--quiet"); !strings.Contains(out, "hello") {
		t.Errorf("kubectl attach: %q", out)
	}
	conn := forwarded(t, w, pod, 8080)
	fmt.Fprint(conn, "GET / HTTP/1.0\r\n\r\n")
	if content, err := io.ReadAll(conn); !strings.HasPrefix(string(content), "HTTP/1.0 200 OK") || !strings.HasSuffix(string(content), "1") {
		t.Errorf("the port responds with %q: %v", content, err)
	}
}

// answers reports whether a ready pod of an application on a cluster responds.
func (f *onHosts) answers(ctx context.Context, cluster string, w *kcptest.Cluster) error {
	pods, err := f.clusters[cluster].kube.CoreV1().Pods(w.Name+"-default").List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		return err
	}
	errs := []error{fmt.Errorf("%s has %d pods", cluster, len(pods.Items))}
	for i := range pods.Items {
		for _, c := range pods.Items[i].Status.Conditions {
			if c.Type != corev1.PodReady || c.Status != corev1.ConditionTrue {
				continue
			}
			err := get(ctx, "http://"+pods.Items[i].Status.PodIP+":8080")
			if err == nil {
				return nil
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// get fails if there is no response soon: a pod that ends may leave a connection without an answer.
func get(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	return nil
}

// probed asks both clusters while an application moves, the former one first: if its copy is gone by then, the new one is ready.
func (f *onHosts) probed(t *testing.T, w *kcptest.Cluster, from, to string, move func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	var rounds, both int
	var failures []error
	go func() {
		defer close(ended)
		for ; ctx.Err() == nil; rounds++ {
			former := f.answers(ctx, from, w)
			next := f.answers(ctx, to, w)
			switch {
			case former != nil && next != nil && ctx.Err() == nil:
				failures = append(failures, errors.Join(former, next))
			case former == nil && next == nil:
				both++
			}
		}
	}()
	start := time.Now()
	move()
	soon(t, "the application runs on "+to, func(ctx context.Context) error {
		found, err := f.copies(ctx, w, "web")
		if err == nil && names(found) != to {
			err = fmt.Errorf("it runs on %q; assignments: %s", names(found), f.describe(ctx, w))
		}
		return err
	})
	took := time.Since(start)
	stop()
	<-ended
	if rounds < 20 {
		t.Errorf("there were only %d rounds", rounds)
	}
	if len(failures) > 0 {
		t.Errorf("in %d of %d rounds no ready copy answered, such as: %v", len(failures), rounds, failures[0])
	}
	t.Logf("%s to %s: moved in %s; %d rounds, in %d of which both copies answered, and in %d none", from, to, took, rounds, both, len(failures))
}

func (f *onHosts) movesUnderProbe(t *testing.T) {
	w := f.consumer(t, on("east"))
	w.Apply(t, counters)
	soon(t, "the application answers", func(ctx context.Context) error { return f.answers(ctx, "east", w) })
	f.probed(t, w, "east", "west", func() {
		w.Apply(t, "apiVersion: fleet.kcp.io/v1alpha1\nkind: Placement\nmetadata: {name: all}\nspec: "+on("west"))
	})
	w.Kubectl(t, "patch", "placement", "all", "--type=merge", `--patch={"spec":{"clusterSelector":null}}`)
	f.probed(t, w, "west", "east", func() { f.fleetctl(t).Run(t, "fleet", "drain", "west") })
	f.fleetctl(t).Run(t, "fleet", "uncordon", "west")
	w.Kubectl(t, "delete", "placement", "all")
}

// survivesCluster kills all processes of the cluster west, with its data.
func (f *onHosts) survivesCluster(t *testing.T) {
	w := f.consumer(t, "{clusterSelector: {matchLabels: {region: west}}, tolerations: [{key: fleet.kcp.io/not-ready, effect: NoExecute, tolerationSeconds: 5}]}")
	w.Apply(t, counters)
	soon(t, "the application answers", func(ctx context.Context) error { return f.answers(ctx, "west", w) })
	w.Kubectl(t, "patch", "placement", "all", "--type=merge", `--patch={"spec":{"clusterSelector":null}}`)
	start := time.Now()
	if err := f.hosts["west"].Down(); err != nil {
		t.Fatal(err)
	}
	soon(t, "the application answers on east", func(ctx context.Context) error { return f.answers(ctx, "east", w) })
	t.Logf("the application answered on east %s after west was killed, with lostAfter=10s and tolerationSeconds=5", time.Since(start))
	w.Command(t, "kubectl", kcptest.Masters).Within(patience).Run(t, "rollout", "status", "deployment/web", "--namespace=default", "--timeout=9m")
}
