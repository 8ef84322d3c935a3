package rootshard

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/version"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/test/e2e/host/hosttest"
)

// The ports of a member of etcd.
const clientPort, metricsPort = "2379", "8080"

// before is a version of etcd, of the previous minor version.
const before = "3.6.16"

const (
	theEtcd   = "etcdcluster/kcp-etcd"
	ofTheEtcd = "app.kubernetes.io/instance=kcp-etcd,app.kubernetes.io/component=etcd" // label selector of its pods and volumes
)

func etcdSurvivesLossAndReplacementOfMembers(t *testing.T) {
	n := namespace(t)
	n.RemoveAfter(t)
	older := hosttest.Build(t.Context(), t, hosttest.Root+"operator/cmd/etcd-member", "-modfile="+hosttest.Root+"test/host/etcd/v3.6.mod")
	host.Load(t, "localhost/etcd:v"+before, "/etcd", older+"=/etcd")
	manifest, err := os.ReadFile("testdata/managed.yaml")
	if err != nil {
		t.Fatal(err)
	}
	n.Apply(t, strings.Replace(string(manifest), "replicas: 3", "replicas: 1\n      version: "+before, 1))
	client, _ := n.used(t)
	n.Undisturbed(t, client,
		hosttest.Disturbance{Name: "etcd grows from 1 member to 3", By: func() { n.etcd(t, "replicas", "3") }},
		hosttest.Disturbance{Name: "etcd grows from 3 members to 5", By: func() { n.etcd(t, "replicas", "5") }},
		hosttest.Disturbance{Name: "etcd shrinks from 5 members to 3", By: func() { n.etcd(t, "replicas", "3") }},
		hosttest.Disturbance{Name: "etcd goes on to the next minor version", By: func() {
			n.etcd(t, "version", strconv.Quote(version.Version))
			if runs := n.Kubectl(t, "get", theEtcd, "--output=jsonpath={.status.currentVersion}"); runs != version.Version {
				t.Errorf("got images %s", runs)
			}
		}},
		hosttest.Disturbance{Name: "a pod of etcd is deleted", By: func() { n.replaceMember(t, n.member(t, false)) }},
		hosttest.Disturbance{Name: "the leading pod of etcd is deleted", By: func() { n.replaceMember(t, n.member(t, true)) }},
		hosttest.Disturbance{Name: "a pod of etcd is deleted, and its volume", By: func() { n.loseVolume(t, n.member(t, false)) }},
		hosttest.Disturbance{Name: "the leading pod of etcd is deleted, and its volume", By: func() { n.loseVolume(t, n.member(t, true)) }},
	)
	n.Disturbed(t, client,
		hosttest.Disturbance{Name: "an etcd is killed with SIGKILL", By: func() { n.killMember(t, n.member(t, false)) }},
		hosttest.Disturbance{Name: "the leading etcd is killed with SIGKILL", By: func() { n.killMember(t, n.member(t, true)) }},
		hosttest.Disturbance{Name: "the leading pod of etcd is gone without a word", By: func() {
			name := n.member(t, true)
			n.Kubectl(t, "delete", "pod", name, "--grace-period=0", "--force")
			n.settled(t, name)
		}},
	)
	n.restored(t)
}

// etcd changes a field of the etcd, and waits until the change is complete.
func (n *installed) etcd(t *testing.T, field, value string) {
	t.Helper()
	n.Kubectl(t, "patch", "rootshard", "kcp", "--type=merge", fmt.Sprintf(`--patch={"spec":{"etcd":{"managed":{%q:%s}}}}`, field, value))
	n.Kubectl(t, "wait", fmt.Sprintf("--for=jsonpath={.spec.%s}=%s", field, strings.Trim(value, `"`)), theEtcd, "--timeout=1m")
	n.Ready(t, theEtcd)
}

// member returns the leader, or another member, as reported by the members.
func (n *installed) member(t *testing.T, leads bool) string {
	t.Helper()
	n.Ready(t, theEtcd)
	pods := strings.Fields(n.Kubectl(t, "get", "pods", "--selector="+ofTheEtcd,
		`--output=jsonpath={range .items[*]}{.metadata.name}={.status.podIP} {end}`))
	for _, pod := range pods {
		name, address, _ := strings.Cut(pod, "=")
		response, err := http.Get("http://" + net.JoinHostPort(address, metricsPort) + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		metrics, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(metrics), "\netcd_server_is_leader 1\n") == leads {
			return name
		}
	}
	t.Fatalf("found no such member among %v", pods)
	return ""
}

func (n *installed) replaceMember(t *testing.T, name string) {
	t.Helper()
	n.Replace(t, name)
	n.Ready(t, theEtcd)
}

func (n *installed) killMember(t *testing.T, name string) {
	t.Helper()
	n.Kill(t, name)
	n.Ready(t, theEtcd)
}

// settled waits until a pod with that name exists, and the cluster is healthy.
func (n *installed) settled(t *testing.T, name string) {
	t.Helper()
	n.Runs(t, name)
	n.Ready(t, theEtcd)
}

// loseVolume deletes a pod with its volume, and waits until another member has replaced it.
func (n *installed) loseVolume(t *testing.T, name string) {
	t.Helper()
	old := n.identity(t, name)
	n.Kubectl(t, "delete", "pvc", "data-"+name, "--wait=false")
	n.Kubectl(t, "delete", "pod", name)
	n.settled(t, name)
	if n.identity(t, name) == old {
		t.Errorf("%s has the same member ID as before, without its data", name)
	}
}

// identity returns the member ID.
func (n *installed) identity(t *testing.T, name string) string {
	t.Helper()
	return n.Kubectl(t, "get", theEtcd, `--output=jsonpath={.status.members[?(@.name=="`+name+`")].id}`)
}

// snapshots is the volume on which docs/operations.md stores snapshots.
const snapshots = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: snapshots}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 64Mi}}
`

// restored takes a snapshot, destroys every volume, and restores the snapshot in the same cluster, as docs/operations.md describes.
func (n *installed) restored(t *testing.T) {
	t.Helper()
	client, kubeconfig := n.used(t)
	written, err := client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f := &hosttest.Traffic{Client: client}
	for _, configMap := range written.Items {
		f.Acknowledged = append(f.Acknowledged, configMap.Name)
	}
	n.Apply(t, snapshots)
	key := n.Follow(t, "Take a snapshot now", 0)
	replace := []string{"default/kcp-etcd/20310506T020000Z-4711.db", key} // as in the status
	n.Follow(t, "Verify", 0, replace...)

	begun := time.Now()
	n.Kubectl(t, "delete", "pvc", "data-kcp-etcd-0", "data-kcp-etcd-1", "data-kcp-etcd-2", "--wait=false")
	n.Kubectl(t, "delete", "pod", "kcp-etcd-0", "kcp-etcd-1", "kcp-etcd-2")
	n.Kubectl(t, "wait", "--for=condition=QuorumLost", theEtcd, "--timeout=3m")
	n.Kubectl(t, "wait", "--for=condition=Stalled", theEtcd, "--timeout=3m")
	left := n.left(t)
	const runbook = "Into the same cluster"
	n.Follow(t, runbook, 0)
	n.Follow(t, runbook, 1, replace...)
	n.Kubectl(t, "wait", "--for=jsonpath={.spec.restore.key}="+key, theEtcd, "--timeout=1m")
	generation := n.Kubectl(t, "get", theEtcd, "--output=jsonpath={.metadata.generation}")
	n.Kubectl(t, "wait", "--for=jsonpath={.status.observedGeneration}="+generation, theEtcd, "--timeout=1m")
	if still := n.left(t); !slices.Equal(left, still) {
		t.Errorf("without quorum, of\n%s\nthese remain\n%s", strings.Join(left, "\n"), strings.Join(still, "\n"))
	}
	n.Follow(t, runbook, 2)
	n.Follow(t, runbook, 3)
	n.Kubectl(t, "delete", "etcdbackup", "before-upgrade", "--cascade=foreground", "--timeout=1m") // with its pod, which is not a member

	lost := f.Lost(t)
	hosttest.StartTraffic(t, client).Take(t)
	t.Logf("| every volume of etcd is destroyed, and a snapshot restored | %.0f s | %.0f s | %d | %d | |",
		time.Since(begun).Seconds(), time.Since(begun).Seconds(), len(f.Acknowledged), len(lost))
	if len(lost) > 0 {
		t.Errorf("objects of the snapshot are lost: %v", lost)
	}
	n.moved(t, kubeconfig, f, replace)
}

// left returns the pods and volumes of the etcd.
func (n *installed) left(t *testing.T) []string {
	t.Helper()
	left := strings.Fields(n.Kubectl(t, "get", "pods,pvc", "--selector="+ofTheEtcd,
		`--output=jsonpath={range .items[*]}{.metadata.name}={.metadata.uid} {end}`))
	slices.Sort(left)
	return left
}

const vouched = `
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: selfsigned}
spec: {selfSigned: {}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: company}
spec:
  isCA: true
  commonName: company
  secretName: company
  privateKey: {algorithm: ECDSA}
  issuerRef: {name: selfsigned}
---
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: company}
spec: {ca: {secretName: company}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: stranger}
spec:
  commonName: events-operator
  secretName: stranger
  usages: [client auth]
  privateKey: {algorithm: ECDSA}
  issuerRef: {name: company}
---
apiVersion: operator.kcp.io/v1alpha1
kind: EtcdCluster
metadata: {name: events}
spec:
  replicas: 1
  tls: {issuerRef: {name: company}}
`

func etcdRefusesOtherCertificatesOfItsIssuer(t *testing.T) {
	n := namespace(t)
	n.RemoveAfter(t)
	n.Apply(t, vouched)
	n.Ready(t, "certificate/stranger", "etcdcluster/events")
	address := net.JoinHostPort(n.Kubectl(t, "get", "pod", "events-0", "--output=jsonpath={.status.podIP}"), clientPort)
	for secret, letIn := range map[string]bool{"events-client": true, "events-operator": true, "stranger": false} {
		// Up to this version the client gets the refusal in the handshake, and with later versions after that.
		config := &tls.Config{Certificates: []tls.Certificate{n.Pair(t, secret)}, InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}
		connection, err := tls.Dial("tcp", address, config)
		if err == nil {
			connection.Close()
		}
		if refused := err != nil && strings.Contains(err.Error(), "remote error: tls"); refused == letIn || letIn && err != nil {
			t.Errorf("with the certificate of %s: %v", secret, err)
		}
	}
}
