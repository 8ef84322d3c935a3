package hosttest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// Root is the directory of the repository, for tests in a directory of test/e2e/host.
const Root = "../../../../"

// Release is the Helm release of the operator, which manages all namespaces.
type Release struct {
	*Namespace
}

// Installation is a namespace that the operator manages.
type Installation struct {
	*Namespace
	Operator *Release
	// Service is the one of kcp, which clients use.
	Service string
}

// Installation returns a new namespace, with the operator running, which the tests of a package share.
func (h *Host) Installation(t *testing.T) *Installation {
	t.Helper()
	return h.installation(t, func(operator *Release) {
		h.LoadImages(t)
		operator.Upgrade(t, "test")
	})
}

func (h *Host) installation(t *testing.T, install func(operator *Release)) *Installation {
	t.Helper()
	h.installing.Lock()
	defer h.installing.Unlock()
	if h.operator == nil {
		h.operator = &Release{h.Restricted(t)}
		install(h.operator)
	}
	return &Installation{h.Restricted(t), h.operator, "kcp-kcp"}
}

// ExistingInstallation returns a namespace that exists already, or that another program creates, with the namespace of its operator.
func (h *Host) ExistingInstallation(name string, operator *Namespace) *Installation {
	return &Installation{h.Existing(name), &Release{operator}, "kcp-kcp"}
}

// RemoveAfter starts the deletion of the namespace when the test ends, and shows its content if the test failed.
func (n *Installation) RemoveAfter(t *testing.T) {
	n.Namespace.RemoveAfter(t)
	n.Explain(t) // before the deletion
}

// Explain shows the objects of the namespace if the test has failed.
func (n *Installation) Explain(t *testing.T) {
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		t.Log(n.Show("get", "pods,pvc,certificates", "--output=wide"))
		t.Log(n.Show("get", "kcp", "--output=go-template="+`{{range .items}}{{.kind}} {{.metadata.name}}
{{range .status.conditions}}  {{.lastTransitionTime}} {{.type}}={{.status}} {{.reason}} {{.message}}
{{end}}{{end}}`))
		t.Log(
			n.Show("get", "events", "--sort-by=.lastTimestamp", "--output=custom-columns=:.lastTimestamp,:.involvedObject.name,:.reason,:.message"),
		)
		for line := range strings.Lines(n.Operator.Show("logs", "deployment/kcp-operator", "--tail=60")) {
			if !strings.Contains(line, `"msg":"Starting`) {
				t.Logf("%.600s", line)
			}
		}
	})
}

// Restricted returns a new namespace whose pods are restricted by the Pod Security Standards.
func (h *Host) Restricted(t *testing.T) *Namespace {
	t.Helper()
	n := h.NewNamespace(t)
	n.Kubectl(t, "label", "namespace", n.Name, "pod-security.kubernetes.io/enforce=restricted")
	return n
}

// LoadImages packs the programs of this clone. The images of kcp and of the operator have the tags test and next.
func (h *Host) LoadImages(t *testing.T) {
	t.Helper()
	h.loadPrograms(t, "test", func(name string) string {
		file, err := kcptest.Binary(name)
		if err != nil {
			t.Fatal(err)
		}
		return file
	})
	for _, name := range []string{"kcp", "kcp-operator"} {
		h.Exec(t, "ctr", "--namespace", "k8s.io", "images", "tag", "--force", "localhost/"+name+":test", "localhost/"+name+":next")
	}
}

// loadPrograms packs programs. Each image has the tag, but the one of etcd has its version.
func (h *Host) loadPrograms(t *testing.T, tag string, program func(name string) string) {
	t.Helper()
	for _, name := range []string{"kcp", "kcp-operator"} {
		h.Load(t, "localhost/"+name+":"+tag, "/"+name, program(name)+"=/"+name)
	}
	h.Load(t, "localhost/etcd:v"+version.Version, "/etcd",
		program("etcd-member")+"=/etcd", program("etcd-snapshot")+"=/etcd-snapshot")
}

// Remove uninstalls the operator, if that is installed, and starts the deletion of its namespace.
func (r *Release) Remove() error {
	helm, err := kcptest.Binary("helm")
	if err != nil {
		return err
	}
	uninstall := exec.Command(
		helm,
		"--kubeconfig="+r.host.Kubeconfig,
		"--namespace="+r.Name,
		"uninstall",
		"kcp-operator",
		"--ignore-not-found",
	)
	return errors.Join(uninstall.Run(), r.Namespace.Remove())
}

// Upgrade installs or upgrades the chart, with images of a tag.
func (r *Release) Upgrade(t *testing.T, tag string, flags ...string) {
	t.Helper()
	r.upgrade(t, Root+"charts/kcp-operator", tag, flags...)
}

func (r *Release) upgrade(t *testing.T, chart, tag string, flags ...string) {
	t.Helper()
	images := "image.repository=localhost/kcp-operator,image.tag=" + tag + ",kcpImage=localhost/kcp:" + tag
	r.helm(t, append([]string{"upgrade", "--install", "--wait", "--timeout=3m", "kcp-operator", chart,
		"--take-ownership", // of definitions from other tests
		"--set=" + images + ",etcdRepository=localhost/etcd"}, flags...)...)
	r.helm(t, "test", "kcp-operator", "--logs", "--timeout=3m")
}

// Uninstall removes the operator, and keeps the objects that it manages.
func (r *Release) Uninstall(t *testing.T) {
	t.Helper()
	r.helm(t, "uninstall", "kcp-operator", "--wait")
}

func (r *Release) helm(t *testing.T, args ...string) string {
	t.Helper()
	return kcptest.CommandAt(t, "helm", r.host.Kubeconfig).Run(t, append([]string{"--namespace=" + r.Name}, args...)...)
}

// Pod returns the name of the operator's pod.
func (r *Release) Pod(t *testing.T) string {
	t.Helper()
	return r.Kubectl(t, "get", "pods", "--selector=app.kubernetes.io/instance=kcp-operator", "--output=jsonpath={.items[0].metadata.name}")
}

// Ready waits until objects are Ready. If they are not, it shows them.
func (n *Installation) Ready(t *testing.T, objects ...string) {
	t.Helper()
	n.Kubectl(t, append([]string{"wait", "--for=condition=Ready", "--timeout=6m"}, objects...)...)
}

// Observed waits until the operator has reconciled the current RootShard, and it is Ready.
func (n *Installation) Observed(t *testing.T) {
	t.Helper()
	generation := n.Kubectl(t, "get", "rootshard", "kcp", "--output=jsonpath={.metadata.generation}")
	n.Kubectl(t, "wait", "--for=jsonpath={.status.observedGeneration}="+generation, "rootshard/kcp", "--timeout=1m")
	n.Ready(t, "rootshard/kcp")
}

// Kubeconfig writes the kubeconfig of a Secret to a file.
func (n *Installation) Kubeconfig(t *testing.T, secret string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, n.Secret(t, secret, "kubeconfig"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// OnNode runs kubectl with the plugins on the node, where names of Services resolve.
func (h *Host) OnNode(t *testing.T, kubeconfig string, args ...string) string {
	t.Helper()
	kubectl, err := kcptest.Binary("kubectl")
	if err != nil {
		t.Fatal(err)
	}
	environment := kcptest.CommandAt(t, "kubectl", kubeconfig).WithPlugins(t).Environment()
	return h.Exec(t, append(append([]string{"env"}, environment...), append([]string{kubectl}, args...)...)...)
}

// Client returns a client of kcp from outside of the cluster, through the address of its Service.
func (n *Installation) Client(t *testing.T, kubeconfig, workspace string) kubernetes.Interface {
	t.Helper()
	return ClientOf(t, n.Config(t, kubeconfig, workspace))
}

// ClientOf returns a client with a configuration.
func ClientOf(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// Config returns the configuration of a client of a workspace, from outside of the cluster.
func (n *Installation) Config(t *testing.T, kubeconfig, workspace string) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.TLSClientConfig.ServerName = "kcp.example.com"
	config.Host = "https://" + n.Kubectl(t, "get", "service", n.Service, "--output=jsonpath={.spec.clusterIP}") + ":6443/clusters/" + workspace
	config.QPS = -1
	return config
}

// Manifest applies a file of testdata.
func (n *Installation) Manifest(t *testing.T, file string) {
	t.Helper()
	manifest, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	n.Apply(t, string(manifest))
}

// Trusting returns the kubeconfig of a Secret when it trusts a number of CAs.
func (n *Installation) Trusting(t *testing.T, secret string, authorities int) string {
	t.Helper()
	file := ""
	kcptest.Eventually(t, fmt.Sprintf("the kubeconfig trusts %d authorities", authorities), func(context.Context) error {
		file = n.Kubeconfig(t, secret)
		if trusted := strings.Count(string(n.Config(t, file, "root").CAData), "BEGIN CERTIFICATE"); trusted != authorities {
			return fmt.Errorf("it trusts %d authorities", trusted)
		}
		return nil
	})
	return file
}
