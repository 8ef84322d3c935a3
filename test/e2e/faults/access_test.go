package faults

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// granted are the keys that docs/operations.md lists for a server, with the ends of their ranges.
var granted = map[string]string{"/registry/": clientv3.GetPrefixRangeEnd("/registry/"), "compact_rev_key": "", "kcp_watch_progress": "", "health": ""}

func TestServerRecoversWhenEtcdGrantsAccess(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	authority, err := kcptest.NewAuthority(dir, "etcd")
	if err != nil {
		t.Fatal(err)
	}
	m := newMembers(t, 1)[0]
	m.client = strings.Replace(m.client, "http:", "https:", 1)
	certFile, keyFile, err := authority.Issue(dir, "member")
	if err != nil {
		t.Fatal(err)
	}
	m.flags = []string{"--client-cert-auth", "--trusted-ca-file=" + authority.File, "--cert-file=" + certFile, "--key-file=" + keyFile}
	if m.tls, err = authority.TLSConfig(dir, "root"); err != nil {
		t.Fatal(err)
	}
	run(t, m)
	root, err := clientv3.New(clientv3.Config{Endpoints: []string{m.client}, TLS: m.tls})
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	done := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"root", "kcp"} {
		done(root.UserAddWithOptions(ctx, name, "", &clientv3.UserAddOptions{NoPassword: true}))
		done(root.RoleAdd(ctx, name))
		done(root.UserGrantRole(ctx, name, name))
	}
	for key, end := range granted {
		done(root.RoleGrantPermission(ctx, "kcp", key, end, clientv3.PermissionType(clientv3.PermReadWrite)))
	}
	done(root.AuthEnable(ctx))

	if certFile, keyFile, err = authority.Issue(dir, "kcp"); err != nil {
		t.Fatal(err)
	}
	server := kcptest.StartIn(t, t.TempDir(), "--etcd-servers="+m.client, "--etcd-cafile="+authority.File, "--etcd-certfile="+certFile, "--etcd-keyfile="+keyFile)
	const path = "/clusters/root/api/v1/namespaces/default"
	answers := func(path string, want int, sentence string) func(context.Context) error {
		return func(context.Context) error {
			if code, body := server.Get(t, kcptest.Masters, path); code != want || !strings.Contains(body, sentence) {
				return fmt.Errorf("got %d %s", code, body)
			}
			return nil
		}
	}
	kcptest.Eventually(t, "the server serves", answers(path, http.StatusOK, ""))
	done(root.UserRevokeRole(ctx, "kcp", "kcp"))
	if err := answers(path, http.StatusServiceUnavailable, "etcd denies access to this server")(ctx); err != nil {
		t.Error(err)
	}
	if err := answers("/readyz", http.StatusInternalServerError, "[-]etcd failed: etcd denies access to this server: ")(ctx); err != nil {
		t.Error(err)
	}
	done(root.UserGrantRole(ctx, "kcp", "kcp"))
	kcptest.Eventually(t, "the server serves again", answers(path, http.StatusOK, ""))
	maps := server.Named("root").Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default")
	done(maps.Create(ctx, configMap("written"), metav1.CreateOptions{}))
	kcptest.Eventually(t, "the server is ready", answers("/readyz", http.StatusOK, ""))
}
