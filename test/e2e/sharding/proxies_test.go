package sharding

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/test/e2e/kcptest"
	"github.com/kcplane/kcp/test/sharded"
)

// through returns a cluster at a front proxy.
func through(n int, path string) *kcptest.Cluster {
	return installation.Proxies[n].Server().Named(path)
}

// A workspace that was acknowledged at one front proxy is never absent at another.
func TestAWorkspaceIsUsedThroughAnotherProxyAtOnce(t *testing.T) {
	fresh(t)
	for _, s := range installation.Shards {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			for range 10 {
				name := "at-once-" + kcptest.Suffix()
				through(0, "root").CreateWorkspace(t, kcptest.Masters, kcptest.On(s.Name, kcptest.Workspace(name, "", "")))
				objects := through(1, "root:"+name).Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default")
				if _, err := objects.Create(kcptest.Context(t), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "first"}}, metav1.CreateOptions{}); err != nil {
					t.Errorf("using workspace %s through the other proxy: %v", name, err)
				}
			}
		})
	}
}

func TestTenantsWorkThroughAProxy(t *testing.T) {
	t.Parallel()
	fresh(t)
	name, direct := workspaceOn(t, shard(t, "shard-2"))
	direct.Grant(t, kcptest.Alice, "edit")
	cluster := through(0, "root:"+name)
	objects := cluster.Kube(t, kcptest.Alice).CoreV1().ConfigMaps("default")
	watch, err := objects.Watch(kcptest.Context(t), metav1.ListOptions{FieldSelector: "metadata.name=seen"})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	if _, err := objects.Create(kcptest.Context(t), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "seen"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if event := <-watch.ResultChan(); event.Object.(*corev1.ConfigMap).Name != "seen" {
		t.Errorf("the first event is %v", event)
	}
	_, err = cluster.Kube(t, kcptest.Bob).CoreV1().ConfigMaps("default").List(kcptest.Context(t), metav1.ListOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	_, err = through(0, "root:absent").Kube(t, kcptest.Alice).CoreV1().ConfigMaps("default").List(kcptest.Context(t), metav1.ListOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
}

// A client must not become another user by headers, nor reach another cluster by an unusual path.
func TestForgedRequestsThroughAProxyAreRefused(t *testing.T) {
	t.Parallel()
	fresh(t)
	name, _ := workspaceOn(t, shard(t, "shard-1"))
	cluster := through(0, "root:"+name)
	forged := http.Header{
		"X-Remote-User": {"admin"}, "X-Remote-Group": {"system:masters"}, "X-Kcp-Expect": {"root;;1"}, "X-Remote-Extra-Scopes": {"any"},
	}
	path := "/clusters/root:" + name + "/api/v1/secrets"
	for _, user := range []kcptest.User{kcptest.Stranger, kcptest.Anonymous} {
		if code, body := cluster.Raw(t, user, http.MethodGet, path, forged, ""); code != http.StatusForbidden && code != http.StatusUnauthorized {
			t.Errorf("%s with forged headers: got %d %.200s", user.Name, code, body)
		}
	}
	for _, path := range []string{
		"/clusters/root:" + name + "/../root/api/v1/secrets", "/clusters/root%3A" + name + "/api/v1/secrets", "//clusters/root/api/v1/secrets",
		"/clusters/root/clusters/root:" + name + "/api/v1/secrets", "/clusters/*/api/v1/secrets", "/clusters/system:admin/api/v1/secrets",
		"/services/peers/v1/shards.state", "/services/../clusters/root/api/v1/secrets", "/clusters/%2e%2e/services/peers/v1/tree",
		"/services/cache/shards/root/clusters/root/apis/apis.kcp.io/v1alpha2/apiexports",
	} {
		code, body := cluster.Raw(t, kcptest.Stranger, http.MethodGet, path, nil, "")
		if code < 300 || code >= 500 || strings.Contains(string(body), `"items"`) {
			t.Errorf("GET %s: got %d %.200s", path, code, body)
		}
	}
}

// tenantThrough starts traffic of a tenant in a workspace on a shard, through a front proxy.
func tenantThrough(t *testing.T, proxy int, s *sharded.Process) *traffic {
	t.Helper()
	fresh(t)
	name, direct := workspaceOn(t, s)
	direct.Grant(t, kcptest.Alice, "edit")
	return begin(t, through(proxy, "root:"+name), kcptest.Alice)
}

func TestTheOtherProxyServesWhenOneStops(t *testing.T) {
	undisturbed := tenantThrough(t, 1, shard(t, "shard-1"))
	start := stop(t, installation.Proxies[0])
	undisturbed.proceed()
	start()
	undisturbed.undisturbed("another front proxy down")
}

func TestProxiesServeWithoutTheRootShard(t *testing.T) {
	one, two := tenantThrough(t, 0, shard(t, "shard-1")), tenantThrough(t, 1, shard(t, "shard-2"))
	startRoot := stop(t, installation.Root())
	one.proceed()
	two.proceed()
	startRoot()
	one.undisturbed("root shard down, through a front proxy")
	two.undisturbed("root shard down, through the other front proxy")
}

// A front proxy has stored what leads from the root shard to others.
func TestAProxyStartsWithoutTheRootShard(t *testing.T) {
	fresh(t)
	name, direct := workspaceOn(t, shard(t, "shard-1"))
	direct.Grant(t, kcptest.Alice, "edit")
	proxy := installation.Proxies[0]
	kcptest.Eventually(t, "the front proxy has stored the workspace", func(context.Context) error {
		stop(t, proxy)()
		state, err := os.ReadFile(filepath.Join(proxy.Directory, "front-proxy-state.json"))
		if err == nil && !strings.Contains(string(state), name) {
			err = errors.New("it is not in the file")
		}
		return err
	})
	startRoot := stop(t, installation.Root())
	stop(t, proxy)()
	for _, path := range []string{"root:" + name, direct.Name} {
		objects := through(0, path).Kube(t, kcptest.Alice).CoreV1().ConfigMaps("default")
		if _, err := objects.Get(kcptest.Context(t), "kube-root-ca.crt", metav1.GetOptions{}); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	if code, body := through(0, "root").Raw(t, kcptest.Alice, http.MethodGet, "/clusters/root:unknown/api", nil, ""); code != http.StatusServiceUnavailable {
		t.Errorf("a workspace that may exist: got %d %s, want 503", code, body)
	}
	startRoot()
}
