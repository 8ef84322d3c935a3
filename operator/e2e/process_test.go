package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// gate is a proxy between processes and the API server, with the operator's credentials. It counts reads and records writes.
type gate struct {
	kubeconfig  string
	environment []string // of processes, besides this one's
	reads       atomic.Int64

	mu    sync.Mutex
	wrote []string // method and path of each write but those of leases and reviews
}

// writes returns the writes after the first n.
func (g *gate) writes(n int) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.wrote[n:])
}

// quiet waits until there was no write for two seconds, and returns the number of writes. Events are written later than the changes that they
// report.
func (g *gate) quiet(t *testing.T) int {
	t.Helper()
	for n := -1; ; {
		now := len(g.writes(0))
		if now == n {
			return n
		}
		n = now
		select {
		case <-t.Context().Done():
			t.Fatalf("the operator goes on writing: %q", g.writes(max(0, n-20)))
		case <-time.After(2 * time.Second):
		}
	}
}

func newGate(t *testing.T) *gate { return newGateFor(t, asOperator()) }

func newGateFor(t *testing.T, config *rest.Config) *gate {
	t.Helper()
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(host.Host)
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	proxy := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0), Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		if r.In.Method == http.MethodGet {
			g.reads.Add(1)
		} else if !strings.HasSuffix(r.In.URL.Path, "reviews") && !strings.Contains(r.In.URL.Path, "/leases") {
			g.mu.Lock()
			g.wrote = append(g.wrote, r.In.Method+" "+r.In.URL.Path)
			g.mu.Unlock()
		}
	}}
	server := httptest.NewServer(proxy)
	t.Cleanup(func() { // watches do not end by themselves
		server.CloseClientConnections()
		server.Close()
	})
	file := clientcmdapi.NewConfig()
	file.Clusters["host"] = &clientcmdapi.Cluster{Server: server.URL}
	file.Contexts["host"] = &clientcmdapi.Context{Cluster: "host"}
	file.CurrentContext = "host"
	if err := clientcmd.WriteToFile(*file, g.kubeconfig); err != nil {
		t.Fatal(err)
	}
	return g
}

// process is a process of the operator.
type process struct {
	command         *exec.Cmd
	probes, metrics string // addresses
	ended           chan error
	mu              sync.Mutex
	log             bytes.Buffer
}

func (p *process) Write(line []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(line)
}

func (p *process) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

func (g *gate) start(t *testing.T, args ...string) *process {
	t.Helper()
	program, err := kcptest.Binary("kcp-operator")
	if err != nil {
		t.Fatal(err)
	}
	p := &process{probes: address(t), metrics: address(t), ended: make(chan error, 1)}
	p.command = exec.Command(program, append([]string{"--kubeconfig=" + g.kubeconfig, "--kcp-image=" + image,
		"--health-probe-bind-address=" + p.probes, "--metrics-bind-address=" + p.metrics}, args...)...)
	p.command.Stderr, p.command.Env = p, append(os.Environ(), g.environment...)
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.ended <- p.command.Wait() }()
	t.Cleanup(func() {
		_ = p.command.Process.Kill()
		if t.Failed() {
			lines := p.String()
			t.Logf("the last that the operator logged:\n%s", lines[max(0, len(lines)-8000):])
		}
	})
	return p
}

// stop terminates the process as the kubelet does.
func (p *process) stop(t *testing.T) {
	t.Helper()
	if err := p.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-p.ended; err != nil {
		t.Errorf("it ends with %v", err)
	}
}

// address returns an address that nothing listens at.
func address(t *testing.T) string {
	t.Helper()
	port, err := kcptest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", port)
}

// anyone is a client that trusts every server, because the certificate of the operator's metrics is self-signed.
var anyone = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}

func get(ctx context.Context, url, token string) (int, string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := anyone.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

// ready waits until the process is ready.
func (p *process) ready(t *testing.T) {
	t.Helper()
	kcptest.Eventually(t, "the operator is ready", func(ctx context.Context) error {
		for _, probe := range []string{"/healthz", "/readyz"} {
			if code, _, err := get(ctx, "http://"+p.probes+probe, ""); err != nil || code != http.StatusOK {
				return fmt.Errorf("%s: %d, %w", probe, code, err)
			}
		}
		return nil
	})
}

// series returns the values of a metric by labels, of a process without TLS for metrics.
func (p *process) series(t *testing.T, name string) map[string]float64 {
	t.Helper()
	_, body, err := get(t.Context(), "http://"+p.metrics+"/metrics", "")
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, found := range regexp.MustCompile(`(?m)^`+name+`(?:\{(.*)\})? (\S+)$`).FindAllStringSubmatch(body, -1) {
		if values[found[1]], err = strconv.ParseFloat(found[2], 64); err != nil {
			t.Fatal(err)
		}
	}
	return values
}

// resident returns the current and the maximum resident memory of the process, in MiB.
func (p *process) resident(t *testing.T) (now, most int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.command.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	field := func(name string) int {
		found := regexp.MustCompile(name + `:\s+(\d+) kB`).FindSubmatch(status)
		kilobytes, err := strconv.Atoi(string(found[1]))
		if err != nil {
			t.Fatal(err)
		}
		return kilobytes >> 10
	}
	return field("VmRSS"), field("VmHWM")
}

// cpu returns the CPU time of the process.
func (p *process) cpu(t *testing.T) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.command.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(stat), ") ") // the fields from the third on
	fields, ticks := strings.Fields(after), 0
	for _, field := range fields[11:13] {
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / 100
}

// One of two operators leads. When it is killed, the other one takes over after the lease has expired; when it is terminated, immediately.
func TestOneOperatorLeadsAtATime(t *testing.T) {
	g := newGate(t)
	args := []string{"--leader-elect", "--leader-election-namespace=kcp-operator", "--metrics-secure=false"}
	admin := cluster(t, host)
	holder := func() string {
		lease := &coordinationv1.Lease{}
		if err := admin.Get(t.Context(), client.ObjectKey{Namespace: "kcp-operator", Name: "kcp-operator.operator.kcp.io"}, lease); err != nil ||
			lease.Spec.HolderIdentity == nil {
			return ""
		}
		return *lease.Spec.HolderIdentity
	}
	held := func(before string) string {
		t.Helper()
		kcptest.Eventually(t, "the other operator holds the lease", func(context.Context) error {
			if now := holder(); now == "" || now == before {
				return fmt.Errorf("%q does", now)
			}
			return nil
		})
		return holder()
	}
	first := g.start(t, args...)
	first.ready(t)
	one := held("")
	second := g.start(t, args...)
	second.ready(t) // though it only waits, so that a roll-out goes on
	k := accessTo("elected", "nowhere")
	admin.MustCreate(t, k)
	told := func(name string) {
		t.Helper()
		kcptest.Eventually(t, "an operator reconciles "+name, func(context.Context) error {
			return says(operatortest.Read(t, admin, name, &v1alpha1.Kubeconfig{}).Status.Conditions, "Stalled", "True", "ReferenceNotFound")
		})
	}
	told(k.Name)
	if n := second.series(t, "controller_runtime_reconcile_total")[`controller="kubeconfig",result="success"`]; n != 0 {
		t.Errorf("the operator that waits has reconciled %v times", n)
	}
	if n := len(second.series(t, "kcp_operator_condition_status")); n != 0 {
		t.Errorf("the operator on standby has metrics of %d conditions", n)
	}
	if n := len(first.series(t, "kcp_operator_condition_status")); n == 0 {
		t.Error("the leader has no metrics of conditions")
	}
	if err := first.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	two := held(one)
	admin.MustCreate(t, accessTo("elected-again", "nowhere"))
	told("elected-again")
	third := g.start(t, args...)
	third.ready(t)
	second.stop(t)
	held(two)
	third.stop(t)
}

// An operator of one namespace needs no permissions elsewhere, and none for cluster-scoped objects.
func TestAnOperatorOfANamespaceWorksOnlyThere(t *testing.T) {
	admin := cluster(t, host)
	elsewhere := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}}
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: "confined"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "kcp-operator"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "confined"}}}
	admin.MustCreate(t, elsewhere, binding)
	g := newGateFor(t, as("confined"))
	g.environment = []string{"WATCH_NAMESPACE=" + operatortest.Namespace}
	p := g.start(t, "--metrics-secure=false")
	p.ready(t)
	rs := shard("confined")
	rs.Spec.Certificates = &v1alpha1.Certificates{IssuerRef: &v1alpha1.ObjectReference{Name: "company", Kind: "ClusterIssuer"}}
	outside := accessTo("confined", "confined")
	outside.Namespace = elsewhere.Name
	admin.MustCreate(t, outside, rs, accessTo("confined", "confined"))
	kcptest.Eventually(t, "both can be used", func(context.Context) error {
		admin.Issue(t)
		if err := says(operatortest.Read(t, admin, "confined", &v1alpha1.Kubeconfig{}).Status.Conditions, "Ready", "True", "Reconciled"); err != nil {
			return err
		}
		return says(operatortest.Read(t, admin, "confined", rs).Status.Conditions, "Available", "False", "NoPodReady")
	})
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(outside), outside); err != nil || len(outside.Status.Conditions) > 0 {
		t.Errorf("it works elsewhere: %+v (%v)", outside.Status, err)
	}
	p.stop(t)
	if strings.Contains(p.String(), "forbidden") {
		t.Errorf("it needs permissions that it does not have:\n%s", p)
	}
}
