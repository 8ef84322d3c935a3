package faults

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// member is a process of etcd.
type member struct {
	name, directory, client, peer string
	flags                         []string
	tls                           *tls.Config // of clients
	process                       *exec.Cmd
}

// newMembers returns the members of an etcd cluster. They are not started.
func newMembers(t *testing.T, count int) []*member {
	t.Helper()
	var members []*member
	for n := range count {
		m := &member{name: fmt.Sprintf("m%d", n), directory: filepath.Join(t.TempDir(), "etcd")}
		for _, url := range []*string{&m.client, &m.peer} {
			port, err := kcptest.FreePort()
			if err != nil {
				t.Fatal(err)
			}
			*url = fmt.Sprintf("http://127.0.0.1:%d", port)
		}
		members = append(members, m)
	}
	return members
}

// run starts members, and waits until they are ready.
func run(t *testing.T, members ...*member) {
	t.Helper()
	binary, err := kcptest.Binary("etcd")
	if err != nil {
		t.Fatal(err)
	}
	var cluster []string
	for _, m := range members {
		cluster = append(cluster, m.name+"="+m.peer)
	}
	for _, m := range members {
		m.process = exec.Command(binary, append(append([]string{"--heartbeat-interval=100", "--election-timeout=600"}, m.flags...), // as the operator sets them
			"--name="+m.name, "--data-dir="+m.directory, "--listen-client-urls="+m.client, "--advertise-client-urls="+m.client,
			"--listen-peer-urls="+m.peer, "--initial-advertise-peer-urls="+m.peer, "--initial-cluster="+strings.Join(cluster, ","), "--log-level=error")...)
		m.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := m.process.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.kill)
	}
	for _, m := range members {
		kcptest.Eventually(t, m.name+" serves", func(ctx context.Context) error {
			_, err := m.leads(ctx)
			return err
		})
	}
}

func (m *member) kill() {
	_ = m.process.Process.Kill()
	_ = m.process.Wait()
}

func (m *member) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := m.process.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// leads reports whether a member is the leader.
func (m *member) leads(ctx context.Context) (bool, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{m.client}, TLS: m.tls, DialTimeout: time.Second})
	if err != nil {
		return false, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	status, err := client.Status(ctx, m.client)
	if err != nil {
		return false, err
	}
	if status.Leader == 0 {
		return false, errors.New("no leader")
	}
	return status.Leader == status.Header.MemberId, nil
}

// awaitLeader returns when the members other than a frozen one have a leader.
func awaitLeader(t *testing.T, members []*member, frozen *member) time.Time {
	for t.Context().Err() == nil {
		for _, m := range members {
			if m == frozen {
				continue
			}
			if leads, err := m.leads(t.Context()); err == nil && leads {
				return time.Now()
			}
		}
	}
	return time.Time{}
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// recovery is much longer than requests take when a member freezes (see docs/operations.md), and shorter than the time after which gRPC
// closes a connection.
const recovery = 8 * time.Second

func TestServersContinueWhenEtcdMemberFreezes(t *testing.T) {
	members := newMembers(t, 3)
	run(t, members...)
	var leader *member
	endpoints := []string{""}
	for _, m := range members {
		if leads, err := m.leads(t.Context()); err != nil {
			t.Fatal(err)
		} else if leads {
			leader, endpoints[0] = m, m.client // the server connects to this one first
		} else {
			endpoints = append(endpoints, m.client)
		}
	}
	flags := []string{"--etcd-servers=" + strings.Join(endpoints, ","), "--enable-leader-election"}
	first := kcptest.StartIn(t, t.TempDir(), flags...)
	second := kcptest.StartIn(t, t.TempDir(), append(flags, "--authorization-max-staleness=4s")...)
	team := first.Named("root").CreateWorkspace(t, kcptest.Masters, kcptest.Workspace("team", "", ""))
	grant(t, team.Kube(t, kcptest.Masters), "alice", rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: kcptest.Alice.Name})
	t.Run("what one server creates another one has", func(t *testing.T) {
		for n := range 50 {
			name := fmt.Sprintf("w%d", n)
			created := first.Named("root").CreateWorkspace(t, kcptest.Masters, kcptest.Workspace(name, "", ""))
			if code, body := second.Get(t, kcptest.Masters, "/clusters/"+created.Name+"/api/v1/namespaces/default"); code != http.StatusOK {
				t.Errorf("%s: got %d %s", created.Name, code, body)
			}
			if n%5 > 0 {
				continue
			}
			named := "/clusters/" + first.Named("root").GetWorkspace(t, name).Spec.Cluster + "/api/v1/namespaces/default"
			if code, body := second.Get(t, kcptest.Masters, named); code != http.StatusOK {
				t.Errorf("%s: %d %s", named, code, body)
			}
		}
	})
	discovery := func() (int, string) { return second.Get(t, kcptest.Alice, "/clusters/root:team/api") }
	kcptest.Eventually(t, "Alice is accepted", func(context.Context) error {
		if code, body := discovery(); code != http.StatusOK {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
	t.Run("the leader", func(t *testing.T) {
		maps := first.Named("root:team").Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default")
		if _, err := maps.Create(kcptest.Context(t), configMap("before"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		leader.signal(t, syscall.SIGSTOP)
		defer leader.signal(t, syscall.SIGCONT)
		began := time.Now()
		var elected, wrote, read time.Duration
		var measuring sync.WaitGroup
		measuring.Go(func() {
			elected = awaitLeader(t, members, leader).Sub(began)
		})
		measuring.Go(func() {
			if _, err := maps.Create(kcptest.Context(t), configMap("written"), metav1.CreateOptions{}); err != nil {
				t.Errorf("writing: %v", err)
			}
			wrote = time.Since(began)
		})
		measuring.Go(func() {
			if _, err := maps.Get(kcptest.Context(t), "before", metav1.GetOptions{}); err != nil {
				t.Errorf("reading: %v", err)
			}
			read = time.Since(began)
		})
		measuring.Wait()
		t.Logf("after the leader froze, another one was elected in %s; a write took %s, and a read %s", elected, wrote, read)
		if took := max(wrote, read); took > recovery {
			t.Errorf("a write and a read took %s", took)
		}
	})
	t.Run("all", func(t *testing.T) {
		for _, m := range members {
			m.signal(t, syscall.SIGSTOP)
			defer m.signal(t, syscall.SIGCONT)
		}
		kcptest.Eventually(t, "no request is authorized with outdated permissions", func(context.Context) error {
			if code, body := discovery(); code != http.StatusServiceUnavailable || !strings.Contains(body, "has not caught up with etcd") {
				return fmt.Errorf("%d %s", code, body)
			}
			return nil
		})
		if code, body := second.Get(t, kcptest.Masters, "/readyz"); code != http.StatusInternalServerError || !strings.Contains(body, "[-]etcd failed: etcd does not respond: ") {
			t.Errorf("system:masters: got %d %s", code, body)
		}
		if code, body := second.Get(t, kcptest.Alice, "/readyz"); code != http.StatusInternalServerError || !strings.Contains(body, "[-]etcd failed: reason withheld") {
			t.Errorf("Alice: got %d %s", code, body)
		}
		if code, _ := second.Get(t, kcptest.Masters, "/metrics"); code != http.StatusOK {
			t.Errorf("metrics: got %d", code)
		}
	})
	kcptest.Eventually(t, "requests of Alice succeed again", func(context.Context) error {
		if code, body := discovery(); code != http.StatusOK {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
}

// No object is written while etcd is unavailable, or after that.
func TestServerRecoversWhenEtcdIsAvailable(t *testing.T) {
	m := newMembers(t, 1)[0]
	run(t, m)
	server := kcptest.StartIn(t, t.TempDir(), "--etcd-servers="+m.client, "--authorization-max-staleness=2s")
	answers := func(want int) func(context.Context) error {
		return func(context.Context) error {
			if code, body := server.Get(t, kcptest.Masters, "/clusters/root/api"); code != want {
				return fmt.Errorf("%d %s", code, body)
			}
			return nil
		}
	}
	kcptest.Eventually(t, "the server is ready", answers(http.StatusOK))
	m.kill()
	kcptest.Eventually(t, "the server refuses requests", answers(http.StatusServiceUnavailable))
	time.Sleep(12 * time.Second) // the server retries writes for a while, which would hide the fault
	run(t, m)
	kcptest.Eventually(t, "the server serves again", answers(http.StatusOK))
}

func TestServerExitsWhenEtcdIsRestored(t *testing.T) {
	m := newMembers(t, 1)[0]
	run(t, m)
	dir, flag := t.TempDir(), "--etcd-servers="+m.client
	server := kcptest.StartIn(t, dir, flag)
	m.kill()
	older := filepath.Join(t.TempDir(), "older")
	if err := os.CopyFS(older, os.DirFS(m.directory)); err != nil {
		t.Fatal(err)
	}
	run(t, m)
	grant := func(ctx context.Context) error {
		_, err := server.Named("root").Kube(t, kcptest.Masters).RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "alice"}, Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: kcptest.Alice.Name}},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		}, metav1.CreateOptions{})
		return err
	}
	kcptest.Eventually(t, "Alice has a permission that is not in the copy", grant)
	m.kill()
	m.directory = older
	run(t, m)
	success, log := server.AwaitEnd(t)
	if success || !strings.Contains(log, "etcd was restored or replaced while this server was running: the revision is ") {
		t.Errorf("the server succeeded: %t, its log ends with %s", success, log)
	}
	server = kcptest.StartIn(t, dir, flag)
	if code, body := server.Get(t, kcptest.Alice, "/clusters/root/api/v1/secrets"); code != http.StatusForbidden {
		t.Errorf("Alice without permission: got %d %s", code, body)
	}
}
