// Package lifecycle tests that a server starts, stops, restarts and fails as operators expect.
package lifecycle

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

func TestServerPrintsNextCommands(t *testing.T) {
	server := kcptest.StartIn(t, t.TempDir())
	kcptest.Eventually(t, "the server prints its message", func(ctx context.Context) error {
		log, err := os.ReadFile(server.Log)
		if err != nil {
			return err
		}
		for _, want := range []string{"kcp is ready at https://", "export KUBECONFIG=", "admin.kubeconfig", "kubectl"} {
			if !strings.Contains(string(log), want) {
				return fmt.Errorf("%q is missing in its output", want)
			}
		}
		return nil
	})
	if err := server.Stop(); err != nil {
		t.Error(err)
	}
}

func TestKubeconfigOfAdministratorWorks(t *testing.T) {
	server := kcptest.StartIn(t, t.TempDir())
	info, err := os.Stat(server.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("got mode %s", info.Mode())
	}
	kubectl := server.Named("root").Command(t, "kubectl", kcptest.Anonymous)
	with := func(args ...string) []string { return append([]string{"--kubeconfig=" + server.Kubeconfig()}, args...) }
	if current := strings.TrimSpace(kubectl.Run(t, with("config", "current-context")...)); current != "root" {
		t.Errorf("got current context %q", current)
	}
	for _, name := range []string{"root", "system:admin"} {
		kubectl.Run(t, with("--context="+name, "get", "namespaces")...)
	}
	for _, name := range []string{"base", "shard-base"} {
		kubectl.Run(t, with("--context="+name, "get", "--raw=/readyz")...)
	}
	if who := kubectl.Run(t, with("auth", "whoami", "--output=jsonpath={.status.userInfo.username}")...); who != "kcp-admin" {
		t.Errorf("got user %q", who)
	}
}

func TestSecondServerWithSameDirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	first := kcptest.StartIn(t, dir)
	second, err := kcptest.Start(dir)
	if err == nil {
		second.Kill()
		t.Fatal("the second server started")
	}
	if !strings.Contains(err.Error(), "in use") && !strings.Contains(err.Error(), "another") {
		t.Errorf("the error does not mention another server that uses the directory: %v", err)
	}
	first.Cluster(t) // the first server is not affected
}

func TestRestartedServerHasStoredObjects(t *testing.T) {
	dir := t.TempDir()
	server := kcptest.StartIn(t, dir)
	cluster := server.Cluster(t)
	cluster.Kubectl(t, "create", "configmap", "kept", "--from-literal=a=b")
	token := strings.TrimSpace(cluster.Kubectl(t, "create", "token", "default"))
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	server = kcptest.StartIn(t, dir)
	cluster = server.Named(cluster.Name)
	if data := cluster.Kubectl(t, "get", "configmap", "kept", "--output=jsonpath={.data.a}"); data != "b" {
		t.Errorf("got data %q", data)
	}
	robot := kcptest.User{Name: "default", Token: token}
	_, err := cluster.Kube(t, robot).CoreV1().ConfigMaps("default").Get(kcptest.Context(t), "kept", metav1.GetOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden) // authenticated with the same signing key, without permissions
	cluster.Kubectl(t, "create", "namespace", "afterwards")
}

func TestAcknowledgedWritesSurviveKills(t *testing.T) {
	const kills, writers = 5, 4
	dir := t.TempDir()
	server := kcptest.StartIn(t, dir)
	cluster := server.Cluster(t)
	var acknowledged sync.Map
	var count atomic.Int64
	for kill := range kills {
		client := server.Named(cluster.Name).Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default")
		var group sync.WaitGroup
		for w := range writers {
			group.Go(func() {
				for i := 0; ; i++ {
					name := fmt.Sprintf("k%d-w%d-%d", kill, w, i)
					made, err := client.Create(kcptest.Context(t), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
					if err != nil {
						return // the server was killed
					}
					acknowledged.Store(name, string(made.UID))
					count.Add(1)
				}
			})
		}
		target := int64(kill+1) * 100
		kcptest.Eventually(t, "enough objects are written", func(context.Context) error {
			if written := count.Load(); written < target {
				return fmt.Errorf("got %d", written)
			}
			return nil
		})
		server.Kill()
		group.Wait()
		server = kcptest.StartIn(t, dir)
		stored := map[string]string{}
		list, err := server.Named(cluster.Name).Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default").List(kcptest.Context(t), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range list.Items {
			stored[item.Name] = string(item.UID)
		}
		acknowledged.Range(func(name, uid any) bool {
			if stored[name.(string)] != uid {
				t.Errorf("after kill %d: %s was acknowledged with UID %s and has %q", kill+1, name, uid, stored[name.(string)])
			}
			return true
		})
	}
	t.Logf("%d acknowledged writes survived %d kills", count.Load(), kills)
}

func TestIdleClustersAddNoGoroutinesOrSeries(t *testing.T) {
	server := kcptest.StartIn(t, t.TempDir())
	grow := func(clusters int) {
		var group sync.WaitGroup
		next := make(chan struct{}, clusters)
		for range clusters {
			next <- struct{}{}
		}
		close(next)
		for range 4 {
			group.Go(func() {
				for range next {
					server.Cluster(t)
				}
			})
		}
		group.Wait()
	}
	grow(20) // to create everything that exists only once
	goroutines, series := settled(t, server)
	grow(100)
	kcptest.Eventually(t, "100 more clusters add neither goroutines nor series", func(context.Context) error {
		nowGoroutines, nowSeries := settled(t, server)
		// Connections of clients open and close, and a series for a code and verb may appear late.
		if nowGoroutines > goroutines+30 || nowSeries > series+100 {
			return fmt.Errorf("got %d goroutines, before %d, and %d series, before %d", nowGoroutines, goroutines, nowSeries, series)
		}
		return nil
	})
}

// settled returns the number of goroutines and of metric series of the server.
func settled(t *testing.T, server *kcptest.Server) (goroutines, series int) {
	t.Helper()
	code, body := server.Named("root").Raw(t, kcptest.Masters, http.MethodGet, "/metrics", nil, "")
	if code != http.StatusOK {
		t.Fatalf("/metrics returned %d: %.300s", code, body)
	}
	lines := bufio.NewScanner(strings.NewReader(string(body)))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "#") {
			continue
		}
		if !strings.Contains(line, "_bucket{") {
			series++
		}
		if value, found := strings.CutPrefix(line, "go_goroutines "); found {
			goroutines, _ = strconv.Atoi(value)
		}
	}
	if goroutines == 0 {
		t.Fatal("the metrics do not contain the number of goroutines")
	}
	return goroutines, series
}

func TestRootDirectoryIsAccessibleOnlyToOwner(t *testing.T) {
	server := kcptest.StartIn(t, t.TempDir())
	err := filepath.WalkDir(server.Root, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if path == server.Root && info.Mode().Perm() != 0o700 {
			t.Errorf("the root directory has mode %s", info.Mode())
		}
		if secret := filepath.Ext(path) == ".key" || filepath.Ext(path) == ".kubeconfig"; secret && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %s", filepath.Base(path), info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A client that keeps a connection must not send requests to a server that has stopped accepting them.
func TestStoppingServerAsksClientsToCloseConnections(t *testing.T) {
	server := kcptest.StartIn(t, t.TempDir(), "--shutdown-delay-duration=3s")
	connections := map[string]*http.Client{}
	for _, protocol := range []string{"http/1.1", "h2"} {
		config := server.Config(kcptest.Masters)
		config.NextProtos = []string{protocol}
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		connections[protocol] = client
	}
	ask := func(protocol, path string) (status int, reused bool) {
		t.Helper()
		trace := httptrace.WithClientTrace(kcptest.Context(t), &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused }})
		request, err := http.NewRequestWithContext(trace, http.MethodGet, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := connections[protocol].Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, reused
	}
	for protocol := range connections {
		ask(protocol, "/version")
		if status, reused := ask(protocol, "/version"); status != http.StatusOK || !reused {
			t.Errorf("%s: while the server serves: %d, connection reused: %t", protocol, status, reused)
		}
	}
	stopped := make(chan error, 1)
	go func() { stopped <- server.Stop() }()
	for status := 0; status != http.StatusInternalServerError; {
		status, _ = ask("http/1.1", "/readyz")
	}
	for protocol := range connections {
		ask(protocol, "/version") // its response is the first that certainly asks the client to close the connection
	}
	for protocol := range connections {
		if status, reused := ask(protocol, "/version"); status != http.StatusOK || reused {
			t.Errorf("%s: while the server stops: %d, connection reused: %t", protocol, status, reused)
		}
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}
