// Package host tests that the host cluster is a working Kubernetes for tests of the operator: pods run, volumes outlive them, Services
// respond, and cert-manager issues certificates.
package host

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kcplane/kcp/test/e2e/host/hosttest"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

var host *hosttest.Host

func TestMain(m *testing.M) { hosttest.Main(m, &host) }

const counter = `
apiVersion: v1
kind: Service
metadata: {name: counter}
spec:
  selector: {app: counter}
  ports: [{port: 80, targetPort: 8080}]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: counter}
spec:
  serviceName: counter
  selector:
    matchLabels: {app: counter}
  template:
    metadata:
      labels: {app: counter}
    spec:
      terminationGracePeriodSeconds: 1
      securityContext: {runAsNonRoot: true, runAsUser: 65532}
      containers:
      - name: counter
        image: localhost/counter:test
        readinessProbe:
          httpGet: {path: /, port: 8080}
          periodSeconds: 1
        volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec:
      accessModes: [ReadWriteOnce]
      resources: {requests: {storage: 1Mi}}
`

func TestVolumesOutlivePodsAndServicesRespond(t *testing.T) {
	program := hosttest.Build(t.Context(), t, "./counter")
	host.Load(t, "localhost/counter:test", "/counter", program+"=/counter")
	n := host.Namespace(t)
	n.Apply(t, counter)
	n.Kubectl(t, "rollout", "status", "statefulset/counter", "--timeout=3m")
	address := "http://" + n.Kubectl(t, "get", "service", "counter", "--output=jsonpath={.spec.clusterIP}")
	counts(t, address, "1")

	n.Replace(t, "counter-0")
	counts(t, address, "2")

	asked := n.Kubectl(t, "exec", "counter-0", "--", "/counter", "ask", "http://counter."+n.Name+".svc.cluster.local")
	if asked != "2" {
		t.Errorf("a request from a pod to the name of the Service got %q", asked)
	}
}

// counts waits until a Service returns the number of starts of its program. The address refers to a new pod shortly after it is ready. A
// request to the former pod gets no response, so requests are repeated.
func counts(t *testing.T, address, want string) {
	t.Helper()
	kcptest.Eventually(t, "the program was started "+want+" times", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if got, err := io.ReadAll(response.Body); err != nil || string(got) != want {
			return fmt.Errorf("got %q (%v)", got, err)
		}
		return nil
	})
}

const certificates = `
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: selfsigned}
spec: {selfSigned: {}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: ca}
spec:
  isCA: true
  commonName: ca
  secretName: ca
  privateKey: {algorithm: ECDSA}
  issuerRef: {name: selfsigned}
---
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: ca}
spec: {ca: {secretName: ca}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: server}
spec:
  secretName: server
  dnsNames: [server.example.com]
  privateKey: {algorithm: ECDSA}
  issuerRef: {name: ca}
`

func TestCertificatesAreIssued(t *testing.T) {
	n := host.Namespace(t)
	n.Apply(t, certificates)
	n.Kubectl(t, "wait", "--for=condition=Ready", "certificate/ca", "certificate/server", "--timeout=3m")
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(n.Secret(t, "server", "ca.crt")) {
		t.Fatal("ca.crt has no certificate")
	}
	if _, err := n.Pair(t, "server").Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "server.example.com"}); err != nil {
		t.Error(err)
	}
}

func TestSecondUpStartsNoPrograms(t *testing.T) {
	log := filepath.Join(filepath.Dir(host.Kubeconfig), "log", "node.log") // has a line for each started program
	before := host.Exec(t, "cat", log)
	if !strings.Contains(before, "started kubelet as process") {
		t.Fatalf("the log of the node does not contain the started programs:\n%s", before)
	}
	if err := host.Up(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, host.Exec(t, "cat", log)); diff != "" {
		t.Error(diff)
	}
}
