// Package rootshard tests on a real Kubernetes that the operator creates a working kcp, which keeps working while its parts are deleted
// and replaced. The tests share one operator, and most of them one kcp with a managed etcd. They run in the order of the files; those
// that delete kcp come last.
package rootshard

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kcplane/kcp/test/e2e/host/hosttest"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

const root = "../../../../"

var host *hosttest.Host

func TestMain(m *testing.M) { hosttest.Main(m, &host, remove) }

// release is the Helm release of the operator, which manages all namespaces.
type release struct {
	*hosttest.Namespace
}

// installed is a namespace that the operator manages.
type installed struct {
	*hosttest.Namespace
	operator *release
}

// The tests share the operator, and the namespace of the kcp with a managed etcd. They are nil until a test needs them.
var (
	operator *release
	shared   *installed
)

// remove deletes what the tests share.
func remove() error {
	var errs []error
	if operator != nil {
		helm, err := kcptest.Binary("helm")
		if err != nil {
			return err
		}
		cmd := exec.Command(helm, "--kubeconfig="+host.Kubeconfig, "--namespace="+operator.Name, "uninstall", "kcp-operator", "--ignore-not-found")
		errs = append(errs, cmd.Run(), operator.Remove())
	}
	if shared != nil {
		errs = append(errs, shared.Remove())
	}
	return errors.Join(errs...)
}

// install returns the namespace that the tests share, with the operator running.
func install(t *testing.T) *installed {
	t.Helper()
	if shared == nil {
		shared = namespace(t)
	}
	shared.explain(t)
	return shared
}

// namespace returns a new namespace, with the operator running.
func namespace(t *testing.T) *installed {
	t.Helper()
	if operator == nil {
		loadImages(t)
		operator = &release{restricted(t)}
		operator.upgrade(t, "test", "--take-ownership") // of definitions from other tests
	}
	return &installed{restricted(t), operator}
}

// RemoveAfter starts the deletion of the namespace when the test ends, and shows its content if the test failed.
func (n *installed) RemoveAfter(t *testing.T) {
	n.Namespace.RemoveAfter(t)
	n.explain(t) // before the deletion
}

// explain shows the objects of the namespace if the test has failed.
func (n *installed) explain(t *testing.T) {
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		t.Log(n.Show("get", "pods,pvc,certificates", "--output=wide"))
		t.Log(n.Show("get", "rootshards,etcdclusters,kubeconfigs", "--output=go-template="+`{{range .items}}{{.kind}} {{.metadata.name}}
{{range .status.conditions}}  {{.lastTransitionTime}} {{.type}}={{.status}} {{.reason}} {{.message}}
{{end}}{{end}}`))
		t.Log(n.Show("get", "events", "--sort-by=.lastTimestamp", "--output=custom-columns=:.lastTimestamp,:.involvedObject.name,:.reason,:.message"))
		for line := range strings.Lines(n.operator.Show("logs", "deployment/kcp-operator", "--tail=60")) {
			if !strings.Contains(line, `"msg":"Starting`) {
				t.Logf("%.600s", line)
			}
		}
	})
}

// restricted returns a new namespace whose pods are restricted by the Pod Security Standards.
func restricted(t *testing.T) *hosttest.Namespace {
	t.Helper()
	n := host.NewNamespace(t)
	n.Kubectl(t, "label", "namespace", n.Name, "pod-security.kubernetes.io/enforce=restricted")
	return n
}

func loadImages(t *testing.T) {
	t.Helper()
	build := func(program string) string { return hosttest.Build(t.Context(), t, root+program) }
	for name, program := range map[string]string{"kcp": "server/cmd/kcp", "kcp-operator": "operator/cmd/kcp-operator"} {
		host.Load(t, "localhost/"+name+":test", "/"+name, build(program)+"=/"+name)
		host.Exec(t, "ctr", "--namespace", "k8s.io", "images", "tag", "--force", "localhost/"+name+":test", "localhost/"+name+":next")
	}
	host.Load(t, "localhost/etcd:test", "/etcd", build("test/bench/etcd")+"=/etcd")
	host.Load(t, "localhost/etcd:v"+version.Version, "/etcd",
		build("operator/cmd/etcd-member")+"=/etcd", build("operator/cmd/etcd-snapshot")+"=/etcd-snapshot")
}

// upgrade installs or upgrades the chart, with images of a tag.
func (r *release) upgrade(t *testing.T, tag string, flags ...string) {
	t.Helper()
	r.helm(t, append([]string{"upgrade", "--install", "--wait", "--timeout=3m", "kcp-operator", root + "charts/kcp-operator", "--set=" +
		"image.repository=localhost/kcp-operator,image.tag=" + tag + ",kcpImage=localhost/kcp:" + tag + ",etcdRepository=localhost/etcd"}, flags...)...)
	r.helm(t, "test", "kcp-operator", "--logs", "--timeout=3m")
}

func (r *release) uninstall(t *testing.T) {
	t.Helper()
	r.helm(t, "uninstall", "kcp-operator", "--wait")
}

func (r *release) helm(t *testing.T, args ...string) string {
	t.Helper()
	return kcptest.CommandAt(t, "helm", host.Kubeconfig).Run(t, append([]string{"--namespace=" + r.Name}, args...)...)
}

// pod returns the name of the operator's pod.
func (r *release) pod(t *testing.T) string {
	t.Helper()
	return r.Kubectl(t, "get", "pods", "--selector=app.kubernetes.io/instance=kcp-operator", "--output=jsonpath={.items[0].metadata.name}")
}

// ready waits until objects are Ready. If they are not, it shows them.
func (n *installed) ready(t *testing.T, objects ...string) {
	t.Helper()
	n.Kubectl(t, append([]string{"wait", "--for=condition=Ready", "--timeout=6m"}, objects...)...)
}

// observed waits until the operator has reconciled the current RootShard, and it is Ready.
func (n *installed) observed(t *testing.T) {
	t.Helper()
	generation := n.Kubectl(t, "get", "rootshard", "kcp", "--output=jsonpath={.metadata.generation}")
	n.Kubectl(t, "wait", "--for=jsonpath={.status.observedGeneration}="+generation, "rootshard/kcp", "--timeout=1m")
	n.ready(t, "rootshard/kcp")
}

// kubeconfig writes the kubeconfig of a Secret to a file.
func (n *installed) kubeconfig(t *testing.T, secret string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, n.Secret(t, secret, "kubeconfig"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// onNode runs kubectl with the plugins on the node, where names of Services resolve.
func onNode(t *testing.T, kubeconfig string, args ...string) string {
	t.Helper()
	kubectl, err := kcptest.Binary("kubectl")
	if err != nil {
		t.Fatal(err)
	}
	environment := kcptest.CommandAt(t, "kubectl", kubeconfig).WithPlugins(t).Environment()
	return host.Exec(t, append(append([]string{"env"}, environment...), append([]string{kubectl}, args...)...)...)
}

// client returns a client of kcp from outside of the cluster, through the address of its Service.
func (n *installed) client(t *testing.T, kubeconfig, workspace string) kubernetes.Interface {
	t.Helper()
	return clientOf(t, n.config(t, kubeconfig, workspace))
}

func clientOf(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func (n *installed) config(t *testing.T, kubeconfig, workspace string) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.TLSClientConfig.ServerName = "kcp.example.com"
	config.Host = "https://" + n.Kubectl(t, "get", "service", "kcp-kcp", "--output=jsonpath={.spec.clusterIP}") + ":6443/clusters/" + workspace
	config.QPS = -1
	return config
}

// manifest applies a file of testdata.
func (n *installed) manifest(t *testing.T, file string) {
	t.Helper()
	manifest, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	n.Apply(t, string(manifest))
}

// made applies a file of testdata, and returns a client for a workspace of the new kcp, and its kubeconfig.
func (n *installed) made(t *testing.T, file string) (kubernetes.Interface, string) {
	t.Helper()
	n.manifest(t, file)
	return n.used(t)
}

// used waits until kcp can be used, and returns a client for a workspace, and its kubeconfig.
func (n *installed) used(t *testing.T) (kubernetes.Interface, string) {
	t.Helper()
	n.ready(t, "rootshard/kcp", "kubeconfig/admin")
	kubeconfig := n.kubeconfig(t, "admin-kubeconfig")
	onNode(t, kubeconfig, "create", "workspace", "team", "--ignore-existing")
	if tree := onNode(t, kubeconfig, "ws", "tree"); !strings.Contains(tree, "root") || !strings.Contains(tree, "team") {
		t.Errorf("unexpected output of kubectl ws tree:\n%s", tree)
	}
	return n.client(t, kubeconfig, "root:team"), kubeconfig
}
