package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// preparePods returns a fleet with pods that is not installed yet, and the flags with which servers read them.
func preparePods(t *testing.T) (*fleet, []string) {
	f := &fleet{t: t, dir: t.TempDir(), clusters: map[string]*attached{}}
	f.reserve(t)
	authority, err := kcptest.NewAuthority(f.dir, "authority")
	if err != nil {
		t.Fatal(err)
	}
	storage, err := kcptest.NewAuthority(f.dir, "storage")
	if err != nil {
		t.Fatal(err)
	}
	serving, servingKey, err := authority.Issue(f.dir, "controller")
	if err != nil {
		t.Fatal(err)
	}
	proving, provingKey, err := storage.Issue(f.dir, "kcp-storage")
	if err != nil {
		t.Fatal(err)
	}
	f.ca = authority.File
	f.controllerArgs = append(f.controllerArgs, "--tls-cert-file="+serving, "--tls-private-key-file="+servingKey,
		"--virtual-storage-client-ca-file="+storage.File, "--virtual-storage-client-name=kcp-storage")
	return f, f.storageFlags(proving, provingKey)
}

// storageFlags are the flags with which servers read pods at the controller, with a certificate.
func (f *fleet) storageFlags(cert, key string) []string {
	return []string{"--virtual-storage-endpoints=root:fleet=" + f.url + "/services/fleet-pods", "--virtual-storage-ca-file=" + f.ca,
		"--virtual-storage-client-cert-file=" + cert, "--virtual-storage-client-key-file=" + key}
}

// installPods installs the fleet of preparePods with one cluster, in a workspace of root.
func (f *fleet) installPods(t *testing.T, ws *unstructured.Unstructured) {
	f.provider = f.server.Named("root").CreateWorkspace(t, kcptest.Masters, ws)
	f.install(t, []string{"pods", "--url", f.url}, "east")
	runKubelet(t, f.clusters["east"])
}

// TestPods has one installation for all tests.
func TestPods(t *testing.T) {
	f, flags := preparePods(t)
	f.server = kcptest.StartIn(t, t.TempDir(), flags...)
	f.installPods(t, kcptest.Workspace("fleet", "", ""))
	w, other := f.workspace(t, "{}"), f.workspace(t, "{}")
	f.runPod(t, w, other)
	f.testPods(t, w, other, []podTest{
		{"OnlyKcpReadsPodsAtTheController", f.guardsPods},
		{"AnAgentOpensOnlyItsOwnTunnel", f.guardsTunnels},
		{"TheAgentConnectsOnlyToPodsInItsNamespaces", f.limitsConnections},
		{"TheAgentDeletesOnlyPodsInItsNamespaces", f.limitsDeletions},
	})
}

// podTest is a test of a workspace with a pod, and another one without pods.
type podTest struct {
	name string
	run  func(t *testing.T, w, other *kcptest.Cluster)
}

// testPods tests what holds for the pods of each installation, and more. The last test ends the tunnel.
func (f *fleet) testPods(t *testing.T, w, other *kcptest.Cluster, more []podTest) {
	for _, test := range slices.Concat([]podTest{
		{"UsersReadThePodsAndLogsOfTheirWorkspace", f.readsPods},
		{"CommandsAndPortsOfPodsAreReached", f.connects},
		{"PodsOfOtherWorkspacesAreNotReached", f.isolatesPods},
		{"RolesOfTheWorkspaceDecideWhoConnects", f.authorizesConnections},
		{"RolesAndPoliciesOfTheWorkspaceDecideWhoDeletesPods", f.deletesPods},
		{"PodsAreDeletedOnlyIfTheProviderAllowsIt", f.deletesOnlyWithConsent},
	}, more, []podTest{{"AClusterWithoutItsAgentIsNamed", f.losesTunnel}}) {
		t.Run(test.name, func(t *testing.T) { test.run(t, w, other) })
	}
}

// runPod runs a pod of a workspace, and waits until it is read there. The other workspaces have the Deployment without pods.
func (f *fleet) runPod(t *testing.T, w *kcptest.Cluster, others ...*kcptest.Cluster) {
	t.Helper()
	for _, c := range append(others, w) {
		c.Apply(t, web)
		f.waitForCopies(t, c, "web", "east")
	}
	f.clusters["east"].createPod(t, w.Name+"-default", "web-1")
	kcptest.Eventually(t, "the tunnel is open", func(context.Context) error {
		code, body := w.Raw(t, kcptest.Masters, http.MethodGet, "/clusters/"+w.Name+"/api/v1/namespaces/default/pods/web-1", nil, "")
		if code != http.StatusOK {
			return fmt.Errorf("got %d %s", code, body)
		}
		return nil
	})
}

func (f *fleet) readsPods(t *testing.T, w, other *kcptest.Cluster) {
	if out := w.Kubectl(t, "get", "pods", "-n", "default"); !strings.Contains(out, "web-1") || !strings.Contains(out, "east") || !strings.Contains(out, "Running") {
		t.Errorf("kubectl get pods: %s", out)
	}
	if out := w.Kubectl(t, "get", "pods", "--all-namespaces", "-l", "app=web", "-o", "name"); strings.TrimSpace(out) != "pod/web-1" {
		t.Errorf("kubectl get pods --all-namespaces: %s", out)
	}
	if out := w.Kubectl(t, "get", "pods", "-n", "default", "-l", "app=none", "-o", "name"); out != "" {
		t.Errorf("another label selects %s", out)
	}
	for _, pod := range []string{"web-1", "deployment/web"} {
		if out := w.Kubectl(t, "logs", "-n", "default", pod); out != "a line of web-1 in nginx\n" {
			t.Errorf("kubectl logs %s: %q", pod, out)
		}
	}
	pods := w.Kube(t, kcptest.Masters).CoreV1().Pods("default")
	list, err := pods.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("got %v: %v", list, err)
	}
	events, err := pods.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	f.clusters["east"].createPod(t, w.Name+"-default", "web-2")
	event := <-events.ResultChan()
	if pod, ok := event.Object.(*corev1.Pod); !ok || pod.Name != "web-2" || pod.Namespace != "default" {
		t.Errorf("the watch delivers %v", event)
	}
	if out := other.Kubectl(t, "get", "pods", "--all-namespaces", "-o", "name"); out != "" {
		t.Errorf("the other workspace has %s", out)
	}
}

func (f *fleet) connects(t *testing.T, w, _ *kcptest.Cluster) {
	if out := w.Kubectl(t, "exec", "-n", "default", "web-1", "--", "echo", "hello"); !strings.Contains(out, "web-1 runs echo hello") {
		t.Errorf("kubectl exec: %q", out)
	}
	conn := forwarded(t, w, "web-1", 80)
	fmt.Fprint(conn, "hello\n")
	if content, err := io.ReadAll(conn); string(content) != "web-1 at 80: hello\n" {
		t.Errorf("the port responds with %q: %v", content, err)
	}
}

// forwarded returns a connection to a port of a pod of a workspace, as kubectl port-forward opens it, until the test ends.
func forwarded(t *testing.T, w *kcptest.Cluster, pod string, port int) net.Conn {
	t.Helper()
	transport, upgrader, err := spdy.RoundTripperFor(w.Config(kcptest.Masters))
	if err != nil {
		t.Fatal(err)
	}
	to := w.Kube(t, kcptest.Masters).CoreV1().RESTClient().Post().Resource("pods").Namespace("default").Name(pod).SubResource("portforward").URL()
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, to)
	stop, ready := make(chan struct{}), make(chan struct{})
	var failures bytes.Buffer
	forwarder, err := portforward.New(dialer, []string{fmt.Sprint("0:", port)}, stop, ready, io.Discard, &failures)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- forwarder.ForwardPorts() }()
	select {
	case err := <-ended:
		t.Fatal(err)
	case <-ready:
	}
	t.Cleanup(func() {
		close(stop)
		<-ended
	})
	ports, err := forwarder.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", ports[0].Local))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (f *fleet) isolatesPods(t *testing.T, w, other *kcptest.Cluster) {
	for _, path := range []string{
		"namespaces/default/pods/web-1", "namespaces/default/pods/web-1/log", "namespaces/" + w.Name + "-default/pods/web-1",
		"namespaces/" + w.Name + "-default/pods/web-1/log", "namespaces/default/pods/../../../clusters/" + w.Name + "/api/v1/namespaces/default/pods/web-1/log",
		"namespaces/default/pods/..%2f..%2f" + w.Name + "-default%2fpods%2fweb-1/log", "namespaces/default/pods/web-1/exec?command=id&stdout=true",
		"namespaces/default/pods/web-1/log/..", "namespaces/default/pods/web-1/proxy/",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
			code, body := other.Raw(t, kcptest.Masters, method, "/clusters/"+other.Name+"/api/v1/"+path, nil, "")
			if code < 400 || strings.Contains(string(body), "a line of") {
				t.Errorf("%s %s: got %d %s", method, path, code, body)
			}
		}
	}
	_, err := w.Kube(t, kcptest.Masters).CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "own"}}, metav1.CreateOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonMethodNotAllowed)
}

func (f *fleet) authorizesConnections(t *testing.T, w, _ *kcptest.Cluster) {
	w.Kubectl(t, "create", "clusterrolebinding", "access-alice", "--clusterrole="+kcptest.EntryRole, "--user="+kcptest.Alice.Name)
	w.Kubectl(t, "create", "role", "pods", "-n", "default", "--verb=get,list", "--resource=pods")
	w.Kubectl(t, "create", "rolebinding", "pods", "-n", "default", "--role=pods", "--user="+kcptest.Alice.Name)
	path := "/clusters/" + w.Name + "/api/v1/namespaces/default/pods/web-1"
	kcptest.Eventually(t, "Alice reads the pod", func(context.Context) error {
		if code, body := w.Raw(t, kcptest.Alice, http.MethodGet, path, nil, ""); code != http.StatusOK {
			return fmt.Errorf("got %d %s", code, body)
		}
		return nil
	})
	upgrade := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"AAAAAAAAAAAAAAAAAAAAAA=="},
		"Sec-Websocket-Protocol": {"v5.channel.k8s.io"}}
	refused := func(method, subresource string, header http.Header) {
		t.Helper()
		if code, body := w.Raw(t, kcptest.Alice, method, path+"/"+subresource, header, ""); code != http.StatusForbidden {
			t.Errorf("%s %s: got %d %s", method, subresource, code, body)
		}
	}
	refused(http.MethodGet, "log", nil)
	refused(http.MethodPost, "exec?command=id&stdout=true", nil)
	refused(http.MethodGet, "portforward?ports=80", upgrade)
	w.Kubectl(t, "create", "role", "connections", "-n", "default", "--verb=get", "--resource=pods/exec,pods/log")
	w.Kubectl(t, "create", "rolebinding", "connections", "-n", "default", "--role=connections", "--user="+kcptest.Alice.Name)
	kcptest.Eventually(t, "Alice reads the log", func(context.Context) error {
		if code, body := w.Raw(t, kcptest.Alice, http.MethodGet, path+"/log", nil, ""); code != http.StatusOK {
			return fmt.Errorf("got %d %s", code, body)
		}
		return nil
	})
	refused(http.MethodGet, "exec?command=id&stdout=true", upgrade) // requires create
}

// request sends a GET request to the controller.
func (f *fleet) request(t *testing.T, config rest.Config, path string, header http.Header) (int, string) {
	t.Helper()
	return f.send(t, http.MethodGet, config, path, header)
}

// send sends a request to the controller.
func (f *fleet) send(t *testing.T, method string, config rest.Config, path string, header http.Header) (int, string) {
	t.Helper()
	config.Host, config.CAFile, config.NextProtos = f.url, f.caFile(), []string{"http/1.1"}
	client, err := rest.HTTPClientFor(&config)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, f.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header
	response, err := client.Transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusSwitchingProtocols {
		return response.StatusCode, ""
	}
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(content)
}

// certificate returns a configuration with the certificate of the agent of east.
func (f *fleet) certificate(t *testing.T) rest.Config {
	t.Helper()
	secret, err := f.clusters["east"].kube.CoreV1().Secrets("kcp-fleet").Get(t.Context(), "kcp-fleet-agent-east", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: secret.Data[corev1.TLSCertKey], KeyData: secret.Data[corev1.TLSPrivateKeyKey]}}
}

func (f *fleet) guardsPods(t *testing.T, w, _ *kcptest.Cluster) {
	for who, config := range map[string]rest.Config{"an anonymous user": {}, "an agent": f.certificate(t), "an administrator": {BearerToken: kcptest.Masters.Token}} {
		for _, path := range []string{"/pods", "/namespaces/default/pods/web-1", "/namespaces/default/pods/web-1/log"} {
			for _, method := range []string{http.MethodGet, http.MethodDelete} {
				code, body := f.send(t, method, config, "/services/fleet-pods/clusters/"+w.Name+"/api/v1"+path, http.Header{})
				if code != http.StatusForbidden && code != http.StatusUnauthorized {
					t.Errorf("%s: %s %s: %d %s", who, method, path, code, body)
				}
			}
		}
	}
}

func (f *fleet) guardsTunnels(t *testing.T, _, _ *kcptest.Cluster) {
	upgrade := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"fleet-tunnel/1"}}
	token := tokenOf(t, f.provider.Kube(t, kcptest.Masters), "kcp-fleet", "east")
	for _, test := range []struct {
		who, cluster string
		config       rest.Config
	}{
		{"an anonymous user", "east", rest.Config{}}, {"the agent of another cluster", "west", f.certificate(t)}, {"a bootstrap token", "east", rest.Config{BearerToken: token}},
	} {
		code, body := f.request(t, test.config, "/services/fleet/"+test.cluster+"/tunnel", upgrade)
		if code != http.StatusForbidden && code != http.StatusUnauthorized {
			t.Errorf("%s: got %d %s", test.who, code, body)
		}
	}
}

func (f *fleet) limitsConnections(t *testing.T, w, _ *kcptest.Cluster) {
	east := f.clusters["east"]
	east.createPod(t, "kube-system", "system")
	config, err := clientcmd.BuildConfigFromFlags("", east.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	agent, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	exec := func(namespace, pod string) error {
		return agent.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("exec").
			Param("command", "id").Param("stdout", "true").Do(t.Context()).Error()
	}
	if err := exec("kube-system", "system"); !apierrors.IsForbidden(err) {
		t.Errorf("a pod of the cluster: got %v", err)
	}
	if _, err := agent.CoreV1().Pods("kube-system").GetLogs("system", &corev1.PodLogOptions{}).DoRaw(t.Context()); !apierrors.IsForbidden(err) {
		t.Errorf("the log of a pod of the cluster: got %v", err)
	}
	if err := exec(w.Name+"-default", "web-1"); err == nil || apierrors.IsForbidden(err) {
		t.Errorf("a pod of the fleet: got %v", err) // the connection is not upgraded
	}
}

func (f *fleet) losesTunnel(t *testing.T, w, _ *kcptest.Cluster) {
	if err := f.clusters["east"].agent.Stop(); err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "the cluster is named", func(ctx context.Context) error {
		_, err := w.Kube(t, kcptest.Masters).CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		if err == nil || !strings.Contains(err.Error(), "cluster east cannot be read: its agent is not connected") {
			return errors.Join(errors.New("not yet"), err)
		}
		return nil
	})
}
