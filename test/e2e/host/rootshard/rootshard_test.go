// Package rootshard proves on a real Kubernetes that the operator makes a kcp that people can use, and that it stays in use
// while what it consists of comes and goes.
package rootshard

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kcplane/kcp/test/e2e/host/hosttest"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

const root = "../../../../"

var host *hosttest.Host

func TestMain(m *testing.M) { hosttest.Main(m, &host) }

// installed is a namespace with the operator, which works there only, and an etcd.
type installed struct {
	*hosttest.Namespace
}

func install(t *testing.T) *installed {
	t.Helper()
	for name, program := range map[string]string{"kcp": "./server/cmd/kcp", "kcp-operator": "./operator/cmd/kcp-operator", "etcd": "./test/bench/etcd"} {
		host.Load(t, "localhost/"+name+":test", "/"+name, hosttest.Build(t.Context(), t, root+program)+"=/"+name)
	}
	n := &installed{host.Namespace(t)}
	n.Kubectl(t, "label", "namespace", n.Name, "pod-security.kubernetes.io/enforce=restricted")
	n.helm(t, "upgrade", "--install", "--take-ownership", "--wait", "--timeout=3m", n.Name, root+"charts/kcp-operator",
		"--set=image.repository=localhost/kcp-operator,image.tag=test,etcdRepository=localhost/etcd,watchNamespaces={"+n.Name+"}")
	manifest, err := os.ReadFile("testdata/etcd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	n.Apply(t, string(manifest))
	return n
}

func (n *installed) helm(t *testing.T, args ...string) string {
	t.Helper()
	return kcptest.CommandAt(t, "helm", host.Kubeconfig).Run(t, append([]string{"--namespace=" + n.Name}, args...)...)
}

// ready waits until objects are Ready, and shows them if they do not become so.
func (n *installed) ready(t *testing.T, objects ...string) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Log(n.Kubectl(t, "get", "pods", "--output=wide"))
			t.Log(n.Kubectl(t, "get", "rootshards,kubeconfigs", "--output=wide"))
			t.Log(n.Kubectl(t, "logs", "deployment/"+n.Name+"-kcp-operator", "--tail=40"))
		}
	}()
	n.Kubectl(t, append([]string{"wait", "--for=condition=Ready", "--timeout=6m"}, objects...)...)
}

// kubeconfig writes what a Secret holds into a file.
func (n *installed) kubeconfig(t *testing.T, secret string) string {
	t.Helper()
	content, err := base64.StdEncoding.DecodeString(n.Kubectl(t, "get", "secret", secret, "--output=jsonpath={.data.kubeconfig}"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// onNode runs kubectl with the plugins where the names of Services resolve.
func onNode(t *testing.T, kubeconfig string, args ...string) string {
	t.Helper()
	kubectl, err := kcptest.Binary("kubectl")
	if err != nil {
		t.Fatal(err)
	}
	environment := kcptest.CommandAt(t, "kubectl", kubeconfig).WithPlugins(t).Environment()
	return host.Exec(t, append(append([]string{"env"}, environment...), append([]string{kubectl}, args...)...)...)
}

// client reaches kcp from outside of the cluster, through the address of its Service.
func (n *installed) client(t *testing.T, kubeconfig, workspace string) kubernetes.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.TLSClientConfig.ServerName = "kcp.example.com"
	config.Host = "https://" + n.Kubectl(t, "get", "service", "kcp-kcp", "--output=jsonpath={.spec.clusterIP}") + ":6443/clusters/" + workspace
	config.QPS = -1
	client, err := kubernetes.NewForConfig(rest.CopyConfig(config))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// made applies a file of testdata, and returns a client for a workspace of the kcp that comes of it, and its kubeconfig.
func (n *installed) made(t *testing.T, file string) (kubernetes.Interface, string) {
	t.Helper()
	manifest, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	n.Apply(t, string(manifest))
	n.ready(t, "rootshard/kcp", "kubeconfig/admin")
	kubeconfig := n.kubeconfig(t, "admin-kubeconfig")
	onNode(t, kubeconfig, "create", "workspace", "team")
	if tree := onNode(t, kubeconfig, "ws", "tree"); !strings.Contains(tree, "root") || !strings.Contains(tree, "team") {
		t.Errorf("kubectl ws tree shows:\n%s", tree)
	}
	return n.client(t, kubeconfig, "root:team"), kubeconfig
}

// disturbance is something that happens while somebody writes to kcp.
type disturbance struct {
	name string
	by   func()
}

// disturbed fails the test if a write fails, or is lost, while one after the other happens.
func (n *installed) disturbed(t *testing.T, client kubernetes.Interface, disturbances ...disturbance) {
	t.Helper()
	w := startWriting(t, client)
	for _, d := range disturbances {
		d.by()
		outage, failed := w.since()
		t.Logf("%s: %d of the writes failed, for %v at the longest", d.name, len(failed), outage)
		if len(failed) > 0 {
			t.Errorf("%s: writes failed: %v", d.name, failed[0])
		}
	}
	w.stop(t, client)
}

func TestOneRootShardAndOneKubeconfigGiveAKCPThatStays(t *testing.T) {
	n := install(t)
	client, kubeconfig := n.made(t, "kcp.yaml")
	n.disturbed(t, client,
		disturbance{"a pod of kcp is deleted", func() {
			n.Kubectl(t, "delete", "pod", "kcp-kcp-0")
			n.Kubectl(t, "rollout", "status", "statefulset/kcp-kcp", "--timeout=5m")
		}},
		disturbance{"kcp is rolled", func() {
			n.Kubectl(t, "patch", "rootshard", "kcp", "--type=merge", "--patch={\"spec\":{\"logging\":{\"level\":2}}}")
			generation := n.Kubectl(t, "get", "rootshard", "kcp", "--output=jsonpath={.metadata.generation}")
			n.Kubectl(t, "wait", "--for=jsonpath={.status.observedGeneration}="+generation, "rootshard/kcp", "--timeout=1m")
			n.Kubectl(t, "rollout", "status", "statefulset/kcp-kcp", "--timeout=5m")
			n.ready(t, "rootshard/kcp")
		}},
		disturbance{"certificates are renewed", func() {
			n.renew(t, "etcd-client")
			n.renew(t, "kcp-server")
			n.serves(t, "kcp-server")
		}},
		disturbance{"the operator is killed", func() {
			n.Kubectl(t, "delete", "pod", "--selector=app.kubernetes.io/instance="+n.Name, "--grace-period=0", "--force")
			n.Kubectl(t, "rollout", "status", "deployment/"+n.Name+"-kcp-operator", "--timeout=3m")
		}},
	)
	t.Run("access ends with the Kubeconfig", func(t *testing.T) {
		n.Kubectl(t, "delete", "kubeconfig", "admin", "--timeout=2m")
		kcptest.Eventually(t, "kcp refuses the certificate", func(ctx context.Context) error {
			_, err := n.client(t, kubeconfig, "root").CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
			if !apierrors.IsForbidden(err) {
				return fmt.Errorf("it answers %v", err)
			}
			return nil
		})
		n.Kubectl(t, "wait", "--for=delete", "secret/admin-kubeconfig", "secret/kubeconfig-cert-admin", "--timeout=1m")
	})
	t.Run("uninstalling the operator leaves kcp and the definitions", func(t *testing.T) {
		n.helm(t, "uninstall", n.Name, "--wait")
		n.Kubectl(t, "get", "rootshard/kcp", "crd/rootshards.operator.kcp.io", "crd/kubeconfigs.operator.kcp.io", "pod/kcp-kcp-0", "pod/kcp-kcp-1")
	})
}

// lost returns the names that were acknowledged and are not there.
func lost(ctx context.Context, client kubernetes.Interface, acknowledged []string) ([]string, error) {
	list, err := client.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	there := map[string]corev1.ConfigMap{}
	for _, configMap := range list.Items {
		there[configMap.Name] = configMap
	}
	var missing []string
	for _, name := range acknowledged {
		if _, ok := there[name]; !ok {
			missing = append(missing, name)
		}
	}
	return missing, nil
}
