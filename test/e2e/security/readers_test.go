package security

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// ofServer returns the response of the server for a path.
func ofServer(t *testing.T, path string) string {
	t.Helper()
	code, body := environment.server.Named("root").Raw(t, kcptest.Masters, http.MethodGet, path, nil, "")
	if code != http.StatusOK {
		t.Fatalf("%s returned %d: %.300s", path, code, body)
	}
	return string(body)
}

var liveBytes = regexp.MustCompile(`(?m)^# HeapAlloc = (\d+)$`)

// liveHeap returns the size of the server's heap that is in use, in bytes.
func liveHeap(t *testing.T) int {
	t.Helper()
	ofServer(t, "/debug/pprof/heap?gc=1&debug=1") // objects with finalizers are freed by the second collection
	found := liveBytes.FindStringSubmatch(ofServer(t, "/debug/pprof/heap?gc=1&debug=1"))
	if found == nil {
		t.Fatal("the profile of the heap does not contain its size")
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestWatchesThatClientsDoNotReadAreEnded(t *testing.T) {
	org := environment.server.Organization(t, kcptest.Alice)
	maps := org.Kube(t, kcptest.Alice).CoreV1().ConfigMaps("default")
	labels := map[string]string{"a": "", "b": "", "c": "", "d": ""}
	const updates, limit = 150, 256 << 20
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "large", Labels: labels}, Data: map[string]string{"data": strings.Repeat("x", 900<<10)}}
	object, err := maps.Create(kcptest.Context(t), object, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	read, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: object.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	seen := make(chan error, 1)
	go func() {
		for n := range updates {
			if e, open := <-read.ResultChan(); !open || e.Type != watch.Modified {
				seen <- fmt.Errorf("event %d is %v", n, e.Type)
				return
			}
		}
		seen <- nil
	}()
	before := liveHeap(t)
	var unread []*http.Response
	for label := range labels {
		client, err := rest.HTTPClientFor(environment.server.Config(kcptest.Alice))
		if err != nil {
			t.Fatal(err)
		}
		path := fmt.Sprintf("%s/clusters/%s/api/v1/namespaces/default/configmaps?watch=true&labelSelector=%s&resourceVersion=%s",
			environment.server.URL, org.Name, label, object.ResourceVersion)
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Fatalf("the watch returned %s", response.Status)
		}
		unread = append(unread, response)
	}
	for n := range updates {
		object.Annotations = map[string]string{"update": strconv.Itoa(n)}
		if object, err = maps.Update(ctx, object, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-seen; err != nil {
		t.Errorf("the watch of a reading client: %v", err)
	}
	after := liveHeap(t)
	t.Logf("the live heap is %d MiB after %d updates of 900 KiB, and was %d MiB", after>>20, updates, before>>20)
	if after > before+limit {
		t.Errorf("the live heap grew from %d to %d MiB; want %d more at the most", before>>20, after>>20, limit>>20)
	}
	for _, response := range unread {
		n, err := io.Copy(io.Discard, io.LimitReader(response.Body, updates*900<<10))
		t.Logf("a watch that was not read delivered %d MiB, then %v", n>>20, err)
		if err == nil && n == updates*900<<10 {
			t.Errorf("a watch that was not read delivered everything: %d bytes", n)
		}
	}
	if !regexp.MustCompile(`(?m)^kcp_watches_ended_total\{.*\} [1-9]`).MatchString(ofServer(t, "/metrics")) {
		t.Error("the metrics do not count the ended watch")
	}
}
