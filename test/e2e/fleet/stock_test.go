package fleet

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// operatorIn starts a controller of another project in a workspace, as a service account with all permissions there. It ends with the test.
func (f *fleet) operatorIn(t *testing.T, w *kcptest.Cluster, program string, args ...string) {
	t.Helper()
	w.Kubectl(t, "create", "serviceaccount", "operator", "--namespace=default")
	w.Kubectl(t, "create", "clusterrolebinding", "operator", "--clusterrole=cluster-admin", "--serviceaccount=default:operator")
	kubeconfig := filepath.Join(f.dir, program+".kubeconfig")
	writeKubeconfig(t, kubeconfig, w.URL(), w.Config(kcptest.Masters).CAData, tokenOf(t, w.Kube(t, kcptest.Masters), "default", "operator"))
	t.Setenv("KUBECONFIG", kubeconfig)
	t.Setenv("RUNTIME_NAMESPACE", "default") // of Flux
	p, err := kcptest.BeginProcess(program, filepath.Join(f.dir, program+".log"), program, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
		if content, err := os.ReadFile(p.Log); err == nil && t.Failed() {
			t.Logf("log of %s:\n%s", program, content[max(0, len(content)-6000):])
		}
	})
}

// secured is an application with a certificate that cert-manager issues.
const secured = `
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: self-signed, namespace: default}
spec: {selfSigned: {}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: web, namespace: default}
spec: {secretName: web-tls, dnsNames: [shop.example.com], privateKey: {algorithm: ECDSA}, issuerRef: {name: self-signed}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: nginx, image: "nginx:1.27", volumeMounts: [{name: tls, mountPath: /tls}]}]
      volumes: [{name: tls, secret: {secretName: web-tls}}]
`

// runsCertManager runs the controller of cert-manager against a workspace. The cluster has no cert-manager.
func (f *fleet) runsCertManager(t *testing.T) {
	w := f.workspace(t, on("east"))
	kcptest.CertManager.Install(t, w, 1)
	f.operatorIn(t, w, "certmanager", "controller", "--kubeconfig="+filepath.Join(f.dir, "certmanager.kubeconfig"), "--healthz-listen-address="+kcptest.FreeAddress(t))
	w.Apply(t, secured)
	issued := func(name string) {
		t.Helper()
		soon(t, "the cluster has a certificate for "+name, func(ctx context.Context) error {
			secret, err := f.clusters["east"].kube.CoreV1().Secrets(w.Name+"-default").Get(ctx, "web-tls", metav1.GetOptions{})
			if err != nil {
				return err
			}
			block, _ := pem.Decode(secret.Data[corev1.TLSCertKey])
			if block == nil {
				return fmt.Errorf("the Secret has no certificate")
			}
			certificate, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return err
			}
			return certificate.VerifyHostname(name)
		})
	}
	issued("shop.example.com")
	f.waitForCopies(t, w, "web", "east")
	w.Kubectl(t, "patch", "certificate", "web", "--namespace=default", "--type=merge", `--patch={"spec":{"dnsNames":["www.example.com"]}}`)
	issued("www.example.com")
}

// runsFlux runs a controller of Flux against a workspace. It waits for the Deployments that it applies, by their status, which comes from
// the cluster.
func (f *fleet) runsFlux(t *testing.T) {
	w := f.workspace(t, on("west"))
	kcptest.FluxSource.Install(t, w, 0)
	kcptest.FluxKustomize.Install(t, w, 0)
	f.operatorIn(t, w, "kustomize-controller", "--metrics-addr="+kcptest.FreeAddress(t), "--health-addr="+kcptest.FreeAddress(t), "--enable-leader-election=false")
	w.Apply(t, kcptest.FluxKustomization)
	objects, source := w.Dynamic(t, kcptest.Masters), kcptest.NewArtifacts(t)
	repositories := schema.GroupVersionResource{Group: "source.toolkit.fluxcd.io", Version: "v1", Resource: "gitrepositories"}
	stored := objects.Resource(schema.GroupVersionResource{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Resource: "kustomizations"}).Namespace("default")
	source.Publish(t, objects, repositories, "shop", "main@sha1:1111", map[string]string{"web.yaml": web})
	applied(t, stored, "main@sha1:1111")
	if found := f.waitForCopies(t, w, "web", "west"); found["west"].Status.AvailableReplicas != 3 {
		t.Errorf("Flux reports an application as ready that has %d replicas", found["west"].Status.AvailableReplicas)
	}
	source.Publish(t, objects, repositories, "shop", "main@sha1:2222", map[string]string{"api.yaml": strings.ReplaceAll(web, "name: web,", "name: api,")})
	applied(t, stored, "main@sha1:2222")
	f.waitForCopies(t, w, "api", "west")
	f.waitForCopies(t, w, "web", "")
}

// applied waits until Flux has applied a revision, and found that all objects are ready.
func applied(t *testing.T, kustomizations dynamic.ResourceInterface, revision string) {
	t.Helper()
	soon(t, "Flux has applied "+revision, func(ctx context.Context) error {
		u, err := kustomizations.Get(ctx, "shop", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got, _, _ := unstructured.NestedString(u.Object, "status", "lastAppliedRevision"); got != revision {
			return fmt.Errorf("the status is %v", u.Object["status"])
		}
		return nil
	})
}
