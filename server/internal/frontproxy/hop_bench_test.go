package frontproxy

import (
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

// BenchmarkHop measures a request through a front proxy, and to the shard itself: the difference is what the proxy costs. Client, proxy and
// shard are in one process, and us/op is its processor time.
func BenchmarkHop(b *testing.B) {
	w := newWorld(b)
	f := w.start(nil)
	object := strings.Repeat("x", 1500)
	w.serveTwo(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(rw, object)
	})
	for _, c := range []struct {
		name, url, token string
		client           *http.Client
	}{
		{"shard", w.shards["two"].server.URL, "secret", f.client("")},
		{"token", f.url, "secret", f.client("")},
		{"certificate", f.url, "", f.client("alice")},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			before := processorTime(b)
			for b.Loop() {
				get(b, c.client, c.url+"/clusters/team0/api/v1/namespaces/default/configmaps/one", c.token)
			}
			b.ReportMetric(float64((processorTime(b)-before).Microseconds())/float64(b.N), "us/op")
		})
	}
}

func get(t testing.TB, client *http.Client, url, token string) {
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "bench")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != http.StatusOK {
		t.Fatal(response.Status, err)
	}
}

func processorTime(t testing.TB) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
