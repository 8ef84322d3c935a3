// Package sharded tests on a real Kubernetes that the operator creates an installation with shards from one file, and that clients of its
// front proxies do not notice what happens to its parts. The tests share the installation, and run in the order of the files.
package sharded

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"

	"github.com/kcplane/kcp/test/e2e/host/hosttest"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

var host *hosttest.Host

func TestMain(m *testing.M) { hosttest.Main(m, &host) }

// everything is what the file of the installation has, with the etcds.
var everything = []string{
	"cacheserver/cache", "rootshard/kcp", "shard/east", "shard/west", "frontproxy/public", "kubeconfig.operator.kcp.io/admin",
	"etcdcluster/cache-etcd", "etcdcluster/kcp-etcd", "etcdcluster/east-etcd", "etcdcluster/west-etcd",
}

// installation is an installation with shards, and a kubeconfig of its administrator.
type installation struct {
	*hosttest.Installation
	kubeconfig string
	parts      []string // everything, without what is deleted
	port       string   // of the front proxy
}

// whole is true with make e2e-installation, which takes four times as long.
var whole = os.Getenv("KCP_INSTALLATION") != ""

func TestAnInstallationWithShardsComesFromOneFileAndStaysAvailable(t *testing.T) {
	create := host.Installation
	if whole {
		create = host.FormerInstallation
	}
	n := &installation{Installation: create(t), parts: slices.Clone(everything), port: "6443"}
	n.RemoveAfter(t)
	n.Service = "public-front-proxy"
	steps := []step{{"workspaces are on each shard", n.spread}, {"shards share an API", n.share}}
	if whole {
		n.beginFormer(t)
		steps = append(steps, step{"an installation of the former version is upgraded", n.upgradeFormer}, step{"versions are mixed", n.mix})
	} else {
		n.begin(t, n.manifest(t))
	}
	steps = append(steps, step{"pods are deleted", n.losePods}, step{"a shard is drained", n.drain},
		step{"the installation is upgraded", func(t *testing.T) { n.upgrade(t, "the installation is upgraded", "next") }})
	if whole {
		steps = append(steps, step{"keys of service accounts are rotated", n.rotateServiceAccounts}, step{"authorities are rotated", n.rotate})
	}
	for _, step := range steps {
		if !t.Run(step.name, step.run) {
			return
		}
	}
}

type step struct {
	name string
	run  func(*testing.T)
}

// manifest returns the file of the installation.
func (n *installation) manifest(t *testing.T) string {
	t.Helper()
	manifest, err := os.ReadFile("testdata/installation.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(manifest)
}

// begin creates the installation from one file.
func (n *installation) begin(t *testing.T, manifest string) {
	t.Helper()
	n.Apply(t, manifest)
	n.Ready(t, n.parts...)
	n.kubeconfig = n.Kubeconfig(t, "admin-kubeconfig")
}

// kcp runs kubectl in a workspace of the installation, on the node, and returns its output.
func (n *installation) kcp(t *testing.T, workspace string, args ...string) string {
	t.Helper()
	return n.as(t, n.kubeconfig, workspace, args...)
}

// as is kcp with the kubeconfig of a user.
func (n *installation) as(t *testing.T, kubeconfig, workspace string, args ...string) string {
	t.Helper()
	server := "--server=https://public-front-proxy." + n.Name + ".svc.cluster.local:" + n.port + "/clusters/" + workspace
	return host.OnNode(t, kubeconfig, append([]string{"--context=internal", server}, args...)...)
}

// workspace is on the shard of its name.
const workspace = `
{"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": "NAME"},
 "spec": {"type": {"name": "universal", "path": "root"}, "location": {"selector": {"matchLabels": {"name": "NAME"}}}}}`

// spread creates a workspace on each shard.
func (n *installation) spread(t *testing.T) {
	shards := sets.New[string]()
	for _, shard := range []string{"root", "east", "west"} {
		n.apply(t, "root", strings.ReplaceAll(workspace, "NAME", shard))
		n.kcp(t, "root", "wait", "--for=jsonpath={.status.phase}=Ready", "workspace/"+shard, "--timeout=1m")
		shards.Insert(n.holder(t, shard))
	}
	if len(shards) != 3 {
		t.Errorf("the workspaces are on %v", sets.List(shards))
	}
}

// holder returns the shard of a workspace in root, as records name it.
func (n *installation) holder(t *testing.T, workspace string) string {
	t.Helper()
	return n.kcp(t, "root", "get", "workspace", workspace, `--output=jsonpath={.metadata.annotations.internal\.tenancy\.kcp\.io/shard}`)
}

// apply applies a manifest to a workspace.
func (n *installation) apply(t *testing.T, workspace, manifest string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	n.kcp(t, workspace, "apply", "--filename="+file)
}

// user returns a client of a workspace.
func (n *installation) user(t *testing.T, workspace string) kubernetes.Interface {
	t.Helper()
	return n.Client(t, n.kubeconfig, "root:"+workspace)
}

const (
	binding = `
apiVersion: apis.kcp.io/v1alpha2
kind: APIBinding
metadata: {name: widgets}
spec: {reference: {export: {path: root:east, name: widgets}}}
`
	widget = `{"apiVersion": "example.org/v1", "kind": "Widget", "metadata": {"name": "first", "namespace": "default"}, "spec": {"size": 7}}`
)

// share exports an API on one shard, uses it on another, and reads the object there as a controller of the provider does.
func (n *installation) share(t *testing.T) {
	n.apply(t, "root:east", kcptest.WidgetsExport)
	n.apply(t, "root:west", binding)
	n.kcp(t, "root:west", "wait", "--for=jsonpath={.status.phase}=Bound", "apibinding/widgets", "--timeout=1m")
	n.apply(t, "root:west", widget)
	n.serves(t)
}

// serves checks that the provider sees the object of its consumer through the endpoint of the consumer's shard.
func (n *installation) serves(t *testing.T) {
	t.Helper()
	n.kcp(t, "root:east", "wait", "--for=jsonpath={.status.endpoints[0].url}", "apiexportendpointslice/widgets", "--timeout=1m")
	url := n.kcp(t, "root:east", "get", "apiexportendpointslice", "widgets", "--output=jsonpath={.status.endpoints[0].url}")
	seen := host.OnNode(
		t,
		n.kubeconfig,
		"--context=internal",
		"--server="+url+"/clusters/*",
		"get",
		"widgets.example.org",
		"--all-namespaces",
		"--output=name",
	)
	if seen != "widget.example.org/first" {
		t.Errorf("at %s the provider sees %q", url, seen)
	}
}
