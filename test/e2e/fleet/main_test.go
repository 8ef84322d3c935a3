// Package fleet tests the fleet: a real kcp, the controller and the agents as processes, and two real kube-apiservers as the attached
// clusters. No kubelet runs there. The test stands in for the controllers of Deployments and of namespaces.
package fleet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
	"github.com/kcplane/kcp/test/e2e/kcptest"
	"github.com/kcplane/kcp/test/e2e/vanilla"
)

var server *kcptest.Server

func TestMain(m *testing.M) { kcptest.Main(m, &server) }

var (
	clusters    = v1alpha1.SchemeGroupVersion.WithResource("clusters")
	assignments = v1alpha1.SchemeGroupVersion.WithResource("assignments")
)

// fleet is an installation of the fleet.
type fleet struct {
	t        *testing.T // of all tests, which share the processes
	server   *kcptest.Server
	provider *kcptest.Cluster
	dir      string
	url      string
	// ca is the file with the authority of the controller.
	ca string
	// controllerArgs start the controller.
	controllerArgs []string
	controller     *kcptest.Process
	restarts       int
	clusters       map[string]*attached
	// stored are the Assignments.
	stored dynamic.ResourceInterface
}

// attached is a cluster of the fleet.
type attached struct {
	name       string
	kube       kubernetes.Interface
	dynamic    dynamic.Interface
	kubeconfig string // of the agent
	agentArgs  []string
	agent      *kcptest.Process
	workers    *standIn
	config     *rest.Config // of an administrator
}

// writeKubeconfig writes a kubeconfig with a token.
func writeKubeconfig(t testing.TB, file, url string, ca []byte, token string) {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["cluster"] = &clientcmdapi.Cluster{Server: url, CertificateAuthorityData: ca}
	config.AuthInfos["user"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["context"] = &clientcmdapi.Context{Cluster: "cluster", AuthInfo: "user"}
	config.CurrentContext = "context"
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
}

func tokenOf(t testing.TB, kube kubernetes.Interface, namespace, name string) string {
	t.Helper()
	token, err := kube.CoreV1().ServiceAccounts(
		namespace,
	).CreateToken(
		kcptest.Context(t),
		name,
		&authenticationv1.TokenRequest{},
		metav1.CreateOptions{},
	)
	if err != nil {
		t.Fatal(err)
	}
	return token.Status.Token
}

// install installs a fleet with the clusters east and west.
func install(t *testing.T) *fleet {
	f := &fleet{t: t, dir: t.TempDir(), server: server, provider: server.Cluster(t), clusters: map[string]*attached{}}
	f.ca = filepath.Join(f.dir, "virtual-workspaces.crt")
	f.reserve(t)
	f.install(t, corpusResources, "east", "west")
	return f
}

// reserve chooses the URL of the controller.
func (f *fleet) reserve(t *testing.T) (port int) {
	t.Helper()
	port, err := kcptest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	f.url = fmt.Sprintf("https://127.0.0.1:%d", port)
	f.controllerArgs = []string{"controller", fmt.Sprintf("--secure-port=%d", port), "--bind-address=127.0.0.1", "--cert-dir=" + f.dir, "--lost-after=5s"}
	return port
}

// install installs the fleet with clusters, and imports resources. imported are further arguments of import.
func (f *fleet) install(t *testing.T, imported []string, names ...string) {
	t.Helper()
	var wait sync.WaitGroup
	hosts := map[string]*rest.Config{}
	var mu sync.Mutex
	for _, name := range names {
		wait.Go(func() {
			environment := &envtest.Environment{}
			config, err := vanilla.Start(environment)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			hosts[name] = config
			t.Cleanup(func() {
				if err := environment.Stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
	f.initialize(t)
	wait.Wait()
	if len(hosts) != len(names) {
		t.FailNow()
	}
	for name, host := range hosts {
		f.attach(t, name, host)
	}
	f.importResources(t, imported...)
	f.startController(t)
	for _, name := range names {
		f.join(t, f.clusters[name])
	}
}

// initialize creates the objects of the provider's workspace.
func (f *fleet) initialize(t *testing.T) {
	t.Helper()
	config := f.provider.Config(kcptest.Masters)
	config.QPS = -1
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	f.stored = objects.Resource(assignments)
	init := f.fleetctl(t).Run(t, "fleet", "init")
	f.provider.Apply(t, init, "--server-side")
	f.provider.WaitForDefinition(t, "clusters.fleet.kcp.io")
	f.provider.WaitForDefinition(t, "assignments.fleet.kcp.io")
	f.provider.Kubectl(t, "create", "clusterrolebinding", "users", "--clusterrole=kcp-fleet-user", "--group=system:authenticated")
}

// importResources imports resources of the cluster east. imported are further arguments of import.
func (f *fleet) importResources(t *testing.T, imported ...string) {
	t.Helper()
	east := filepath.Join(f.dir, "east.admin")
	f.fleetctl(t).Run(t, append([]string{"fleet", "import", "deployments.apps", "services", "ingresses.networking.k8s.io", "jobs.batch",
		"persistentvolumeclaims", "--from-kubeconfig", east}, imported...)...)
}

func (f *fleet) fleetctl(t testing.TB) kcptest.Command {
	t.Helper()
	return f.provider.Command(t, "kubectl-kcp", kcptest.Masters)
}

// attach records an API server, and starts the stand-ins of its controllers.
func (f *fleet) attach(t *testing.T, name string, host *rest.Config) {
	t.Helper()
	f.connect(t, name, host)
	f.clusters[name].workers = runStandIn(t, f.clusters[name].kube)
}

// connect records a cluster, and writes the kubeconfig of its administrator.
func (f *fleet) connect(t *testing.T, name string, host *rest.Config) {
	t.Helper()
	host.QPS, host.Burst = 1000, 1000
	kube, err := kubernetes.NewForConfig(host)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := dynamic.NewForConfig(host)
	if err != nil {
		t.Fatal(err)
	}
	admin := clientcmdapi.NewConfig()
	admin.Clusters["cluster"] = &clientcmdapi.Cluster{Server: host.Host, CertificateAuthorityData: host.CAData}
	admin.AuthInfos["user"] = &clientcmdapi.AuthInfo{ClientCertificateData: host.CertData, ClientKeyData: host.KeyData}
	admin.Contexts["context"] = &clientcmdapi.Context{Cluster: "cluster", AuthInfo: "user"}
	admin.CurrentContext = "context"
	if err := clientcmd.WriteToFile(*admin, filepath.Join(f.dir, name+".admin")); err != nil {
		t.Fatal(err)
	}
	f.clusters[name] = &attached{name: name, kube: kube, dynamic: objects, config: host}
}

func (f *fleet) startController(t *testing.T) {
	t.Helper()
	kube := f.provider.Kube(t, kcptest.Masters)
	kubeconfig := filepath.Join(f.dir, "controller.kubeconfig")
	writeKubeconfig(t, kubeconfig, f.provider.URL(), f.provider.Config(kcptest.Masters).CAData, tokenOf(t, kube, "kcp-fleet", "controller"))
	f.controllerArgs = append(f.controllerArgs, "--kubeconfig="+kubeconfig)
	f.controller = f.begin("controller", f.controllerArgs...)
	kcptest.Eventually(t, "the controller has a certificate", func(context.Context) error {
		_, err := os.Stat(f.caFile())
		return err
	})
}

func (f *fleet) caFile() string { return f.ca }

// begin starts a process of the fleet. When all tests have ended, it checks the log for panics.
func (f *fleet) begin(name string, args ...string) *kcptest.Process {
	t := f.t
	t.Helper()
	program := "kcp-fleet"
	if args[0] == "agent" {
		program, args = "kcp-fleet-agent", args[1:]
	}
	p, err := kcptest.BeginProcess(name, filepath.Join(f.dir, name+".log"), program, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Stop()
		if err := p.Panics(); err != nil {
			t.Error(err)
		}
		if content, err := os.ReadFile(p.Log); err == nil && t.Failed() {
			t.Logf("log of %s:\n%s", name, content[max(0, len(content)-6000):])
		}
	})
	return p
}

// join attaches a cluster as its administrator would, with the permissions in the manifest, and waits until it is ready.
func (f *fleet) join(t *testing.T, c *attached) {
	t.Helper()
	manifest := f.fleetctl(t).Run(t, "fleet", "join", c.name, "--url", f.url, "--ca-file", f.caFile(), "--labels", "region="+c.name)
	kcptest.CommandAt(t, "kubectl", filepath.Join(f.dir, c.name+".admin")).Input(manifest).Run(t, "apply", "-f", "-")
	bootstrap, err := c.kube.CoreV1().Secrets("kcp-fleet").Get(kcptest.Context(t), "kcp-fleet-bootstrap", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	tokenFile := filepath.Join(f.dir, c.name+".token")
	if err := os.WriteFile(tokenFile, bootstrap.Data["token"], 0o600); err != nil {
		t.Fatal(err)
	}
	c.kubeconfig = filepath.Join(f.dir, c.name+".agent")
	writeKubeconfig(t, c.kubeconfig, c.config.Host, c.config.CAData, tokenOf(t, c.kube, "kcp-fleet", "agent"))
	c.agentArgs = []string{
		"agent",
		"--cluster=" + c.name,
		"--kubeconfig=" + c.kubeconfig,
		"--fleet-url=" + f.url + "/services/fleet/" + c.name,
		"--fleet-ca-file=" + f.caFile(),
		"--bootstrap-token-file=" + tokenFile,
	}
	c.agent = f.begin(c.name+"-agent", c.agentArgs...)
	stored := f.provider.Objects(t, clusters)
	kcptest.WaitForStatus(t, stored, c.name, "", "requestedKey")
	f.fleetctl(t).Run(t, "fleet", "approve", c.name)
	kcptest.WaitForCondition(t, stored, c.name, v1alpha1.ClusterReady, "True", "AgentConnected")
}

// workspace returns a workspace that has bound the fleet, with a placement.
func (f *fleet) workspace(t *testing.T, placement string) *kcptest.Cluster {
	t.Helper()
	w := f.server.Cluster(t)
	f.bind(t, w, placement)
	return w
}

// bind makes a workspace a consumer of the fleet, with a placement.
func (f *fleet) bind(t *testing.T, w *kcptest.Cluster, placement string) {
	t.Helper()
	binding := kcptest.BindingTo(f.provider, "fleet")
	var accepted []any
	for _, resource := range []string{"configmaps", "namespaces", "secrets"} {
		accepted = append(accepted, map[string]any{"resource": resource, "state": "Accepted", "verbs": []any{"get", "list", "watch"},
			"selector": map[string]any{"matchAll": true}})
	}
	if err := unstructured.SetNestedSlice(binding.Object, accepted, "spec", "permissionClaims"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Objects(t, kcptest.APIBindings).Create(kcptest.Context(t), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.WaitForStatus(t, w.Objects(t, kcptest.APIBindings), "fleet", "Bound", "phase")
	w.Apply(t, "apiVersion: fleet.kcp.io/v1alpha1\nkind: Placement\nmetadata: {name: all}\nspec: "+placement)
}
