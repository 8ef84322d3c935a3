//go:build fleethosts

package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
	"github.com/kcplane/kcp/test/e2e/host/hosttest"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// unsupported are the applications of the corpus that do not run, with the reason.
var unsupported = map[string]string{
	"bare-pod":        "pods are read-only in a workspace",
	"other-namespace": "a namespace has another name on the cluster, and with it the DNS names of its Services",
	"service-account": "service accounts stay in the workspace, so the cluster creates no pods that name one",
}

// controllerNamespace is the namespace of the chart.
const controllerNamespace = "fleet-system"

// onHosts is a fleet with two real clusters. The chart runs the controller on the cluster east.
type onHosts struct {
	*fleet
	hosts map[string]*hosttest.Host
}

// TestFleetOnHosts runs the fleet with two real clusters of one node each: KCP_FLEET_HOSTS has the numbers of east and
// west. It removes clusters with these numbers.
func TestFleetOnHosts(t *testing.T) {
	f := installOnHosts(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"ApplicationsOfTheCorpusRun", f.runsCorpus},
		{"KubeletsServeLogsCommandsAndPorts", f.reachesKubelets},
		{"AtAnyMomentOfAMoveOneReadyCopyAnswers", f.movesUnderProbe},
		{"AnApplicationLeavesAClusterThatIsKilled", f.survivesCluster},
	} {
		if !t.Run(test.name, test.run) && t.Context().Err() != nil {
			return
		}
	}
}

// relay forwards connections to an address of this machine for all clusters, to an address that is known later.
func relay(t *testing.T) (port int, to chan<- string) {
	t.Helper()
	listener, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	targets := make(chan string, 1)
	go func() {
		target := <-targets
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				onward, err := net.Dial("tcp", target)
				if err != nil {
					return
				}
				defer onward.Close()
				go func() {
					_, _ = io.Copy(onward, conn)
					_ = onward.(*net.TCPConn).CloseWrite()
				}()
				_, _ = io.Copy(conn, onward)
			}()
		}
	}()
	return listener.Addr().(*net.TCPAddr).Port, targets
}

func installOnHosts(t *testing.T) *onHosts {
	numbers := strings.Split(cmp.Or(os.Getenv("KCP_FLEET_HOSTS"), "8,9"), ",")
	f := &onHosts{hosts: map[string]*hosttest.Host{}, fleet: &fleet{t: t, dir: t.TempDir(), clusters: map[string]*attached{}}}
	var addresses []net.IP
	image := filepath.Join(filepath.Dir(hosttest.Build(t.Context(), t, "../host/counter")), "counter")
	var programs []string
	for _, name := range []string{"kcp-fleet", "kcp-fleet-agent"} {
		program, err := kcptest.Binary(name)
		if err != nil {
			t.Fatal(err)
		}
		programs = append(programs, program+"=/"+name)
	}
	for i, name := range []string{"east", "west"} {
		host := hosttest.Fresh(t, numbers[i])
		host.Load(t, "localhost/kcp-fleet:test", "/kcp-fleet", programs...)
		host.Load(t, "localhost/counter:test", "/counter", image+"=/counter")
		f.hosts[name] = host
		addresses = append(addresses, net.ParseIP(host.Address()))
		config, err := clientcmd.BuildConfigFromFlags("", host.Kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		f.connect(t, name, config)
	}
	toKCP, kcpTarget := relay(t)
	toController, controllerTarget := relay(t)
	f.url = fmt.Sprintf("https://127.0.0.1:%d", toController)
	flags, secrets := f.certify(t, addresses)
	kcpURL := fmt.Sprintf("https://%s:%d", f.hosts["east"].Address(), toKCP)
	f.server = kcptest.StartIn(t, t.TempDir(), append(flags, "--shard-base-url="+kcpURL)...)
	kcpTarget <- strings.TrimPrefix(f.server.URL, "https://")

	f.provider = f.server.Named("root").CreateWorkspace(t, kcptest.Masters, kcptest.Workspace("fleet", "", ""))
	f.initialize(t)
	f.importResources(t, append([]string{"pods", "--url", f.url}, corpusResources...)...)
	f.runChart(t, kcpURL, secrets)
	controllerTarget <- f.kubectl(t, "east", "get", "service", "kcp-fleet", "--namespace="+controllerNamespace,
		"--output=jsonpath={.spec.clusterIP}:{.spec.ports[0].port}")
	for name := range f.hosts {
		f.joinHost(t, name, fmt.Sprintf("https://%s:%d", f.hosts[name].Address(), toController))
	}
	return f
}

// kubectl runs kubectl in a cluster.
func (f *onHosts) kubectl(t *testing.T, cluster string, args ...string) string {
	t.Helper()
	return kcptest.CommandAt(t, "kubectl", f.hosts[cluster].Kubeconfig).Within(patience).Run(t, args...)
}

// certify issues the certificates of the controller and of kcp. It returns the flags of kcp, and the files of the Secrets of the chart.
func (f *onHosts) certify(t *testing.T, addresses []net.IP) (flags []string, secrets map[string]map[string]string) {
	t.Helper()
	authority, err := kcptest.NewAuthority(f.dir, "authority")
	if err != nil {
		t.Fatal(err)
	}
	storage, err := kcptest.NewAuthority(f.dir, "storage")
	if err != nil {
		t.Fatal(err)
	}
	serving, servingKey, err := authority.IssueTo(f.dir, "controller", kcptest.Subject{CommonName: "controller", Addresses: addresses})
	if err != nil {
		t.Fatal(err)
	}
	proving, provingKey, err := storage.Issue(f.dir, "kcp-storage")
	if err != nil {
		t.Fatal(err)
	}
	f.ca = authority.File
	flags = f.storageFlags(proving, provingKey)
	return flags, map[string]map[string]string{
		"kcp-fleet-tls": {corev1.TLSCertKey: serving, corev1.TLSPrivateKeyKey: servingKey}, "kcp-storage": {"ca.crt": storage.File},
	}
}

// runChart installs the chart on the cluster east, with its Secrets.
func (f *onHosts) runChart(t *testing.T, kcpURL string, secrets map[string]map[string]string) {
	t.Helper()
	token := tokenOf(t, f.provider.Kube(t, kcptest.Masters), "kcp-fleet", "controller")
	config := clientcmdapi.NewConfig()
	config.Clusters["kcp"] = &clientcmdapi.Cluster{Server: kcpURL + "/clusters/" + f.provider.Name, TLSServerName: "localhost",
		CertificateAuthorityData: f.provider.Config(kcptest.Masters).CAData}
	config.AuthInfos["controller"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["kcp"] = &clientcmdapi.Context{Cluster: "kcp", AuthInfo: "controller"}
	config.CurrentContext = "kcp"
	kubeconfig := filepath.Join(f.dir, "controller.kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	secrets["kcp-fleet-kubeconfig"] = map[string]string{"kubeconfig": kubeconfig}
	f.kubectl(t, "east", "create", "namespace", controllerNamespace)
	f.kubectl(t, "east", "label", "namespace", controllerNamespace, "pod-security.kubernetes.io/enforce=restricted")
	for name, files := range secrets {
		args := []string{"create", "secret", "generic", name, "--namespace=" + controllerNamespace}
		for key, file := range files {
			args = append(args, "--from-file="+key+"="+file)
		}
		f.kubectl(t, "east", args...)
	}
	kcptest.CommandAt(t, "helm", f.hosts["east"].Kubeconfig).Within(patience).Run(t, "install", "kcp-fleet", chart, "--namespace="+controllerNamespace,
		"--set=image.repository=localhost/kcp-fleet,image.tag=test,image.pullPolicy=Never,lostAfter=10s,maxMovesPerMinute=600",
		"--set=pods.clientName=kcp-storage,pods.clientCASecretName=kcp-storage", "--wait", "--timeout=8m")
	t.Cleanup(func() {
		if t.Failed() {
			n := f.hosts["east"].Existing(controllerNamespace)
			t.Log(n.Show("logs", "deployment/kcp-fleet", "--tail=60"), n.Show("get", "events"))
		}
	})
}

// joinHost attaches a cluster with the manifest of join, whose Deployment runs the agent.
func (f *onHosts) joinHost(t *testing.T, name, url string) {
	t.Helper()
	manifest := f.fleetctl(t).Run(t, "fleet", "join", name, "--url", url, "--ca-file", f.ca, "--labels", "region="+name, "--image=localhost/kcp-fleet:test")
	kcptest.CommandAt(t, "kubectl", f.hosts[name].Kubeconfig).Input(manifest).Run(t, "apply", "--filename=-")
	t.Cleanup(func() {
		if t.Failed() {
			n := f.hosts[name].Existing("kcp-fleet")
			t.Log(n.Show("logs", "deployment/agent", "--tail=40"), n.Show("get", "events"))
		}
	})
	// Many public manifests need this level.
	f.provider.Kubectl(t, "patch", "clusters.fleet.kcp.io", name, "--type=merge", `--patch={"spec":{"podSecurity":"baseline"}}`)
	stored := f.provider.Objects(t, clusters)
	soon(t, "the agent of "+name+" requests a certificate", func(ctx context.Context) error {
		key, err := kcptest.StatusField(ctx, stored, name, "requestedKey")
		if err == nil && key == "" {
			err = fmt.Errorf("there is no request")
		}
		return err
	})
	f.fleetctl(t).Run(t, "fleet", "approve", name)
	kcptest.WaitForCondition(t, stored, name, v1alpha1.ClusterReady, "True", "AgentConnected")
}

// phases returns the phases of the Assignments of a workspace, by namespace.
func (f *onHosts) phases(ctx context.Context, w *kcptest.Cluster) (map[string]string, error) {
	list, err := f.stored.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for i := range list.Items {
		spec, _ := list.Items[i].Object["spec"].(map[string]any)
		status, _ := list.Items[i].Object["status"].(map[string]any)
		if spec["workspace"] == w.Name {
			found[fmt.Sprint(spec["namespace"])] = fmt.Sprint(status["phase"])
		}
	}
	return found, nil
}

// consumer returns a workspace that has bound the fleet, with a placement.
func (f *onHosts) consumer(t *testing.T, placement string) *kcptest.Cluster {
	t.Helper()
	root, name := f.server.Named("root"), "consumer-"+kcptest.Suffix()
	root.CreateWorkspace(t, kcptest.Masters, kcptest.Workspace(name, "", ""))
	w := f.server.Named(root.GetWorkspace(t, name).Spec.Cluster)
	f.bind(t, w, placement)
	return w
}

// ready returns why an application is not ready, by the status that real controllers and kubelets write. Jobs must have succeeded.
func (f *onHosts) ready(ctx context.Context, t *testing.T, w *kcptest.Cluster, a application) error {
	phases, err := f.phases(ctx, w)
	if err != nil {
		return err
	}
	for _, u := range a.objects {
		namespace := cmp.Or(u.GetNamespace(), u.GetName())
		if phases[namespace] != string(v1alpha1.AssignmentReady) {
			return fmt.Errorf("%s is %q; assignments: %s", a.name, phases[namespace], f.describe(ctx, w))
		}
		if u.GetKind() != "Job" {
			continue
		}
		succeeded, err := kcptest.StatusField(ctx, w.Objects(t, batchv1.SchemeGroupVersion.WithResource("jobs")).Namespace(namespace), u.GetName(), "succeeded")
		if err == nil && succeeded != "1" {
			err = fmt.Errorf("%s: the Job has not succeeded", a.name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// runsCorpus counts the applications that are ready.
func (f *onHosts) runsCorpus(t *testing.T) {
	w := f.consumer(t, on("west"))
	start := time.Now()
	all := applyCorpus(t, w)
	for _, a := range all {
		if unsupported[a.name] == "" {
			soon(t, a.name+" is ready", func(ctx context.Context) error { return f.ready(ctx, t, w, a) })
		}
	}
	took := time.Since(start)
	for _, a := range all {
		if unsupported[a.name] != "" && f.ready(t.Context(), t, w, a) == nil {
			t.Errorf("%s is ready, although %s", a.name, unsupported[a.name])
		}
	}
	total := len(all) + 1 // the workspace refuses one
	t.Logf("%d of %d applications run unchanged (%d %%), after %s", total-len(unsupported), total, 100*(total-len(unsupported))/total, took)
	w.Kubectl(t, "delete", "placement", "all")
	soon(t, "no assignment is left", func(ctx context.Context) error {
		if left := f.describe(ctx, w); left != "" {
			return errors.New(left)
		}
		return nil
	})
}
