package fleet

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

const chart = "../../../charts/kcp-fleet"

var update = flag.Bool("update", false, "write the golden files")

// everything are values that create all objects of the chart, and use all volumes.
var everything = []string{
	"pods.clientName=kcp-storage", "pods.clientCASecretName=kcp-storage", "networkPolicy.enabled=true", "service.type=LoadBalancer",
	"tls.certificate.create=true", "tls.certificate.issuerRef.name=ca", "tls.certificate.dnsNames={fleet.example.com}",
	"tls.certificate.ipAddresses={192.0.2.1}", "extraArgs={--http2-max-streams-per-connection=100}", "extraEnv[0].name=GOGC,extraEnv[0].value=off",
	"imagePullSecrets[0].name=registry", "nodeSelector.pool=control", "podLabels.team=platform", "priorityClassName=high",
	"serviceMonitor.enabled=true", "serviceMonitor.interval=30s", "serviceMonitor.labels.release=prometheus", "testImage=localhost/fleet:v1",
}

// helmTemplate renders the chart with a version of Helm.
func helmTemplate(t *testing.T, helm string, settings ...string) string {
	t.Helper()
	args := []string{"template", "kcp-fleet", chart, "--namespace=fleet-system", "--kube-version=v1.37.0"}
	for _, setting := range settings {
		args = append(args, "--set="+setting)
	}
	return kcptest.CommandAt(t, helm, os.DevNull).Run(t, args...)
}

// rendered returns the objects of the chart, by kind.
func rendered(t *testing.T, manifests string) map[string]*unstructured.Unstructured {
	t.Helper()
	objects := map[string]*unstructured.Unstructured{}
	for document := range strings.SplitSeq(manifests, "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &u.Object); err != nil {
			t.Fatal(err)
		}
		if u.Object == nil {
			continue
		}
		if objects[u.GetKind()] != nil {
			t.Errorf("there are two objects of the kind %s", u.GetKind())
		}
		objects[u.GetKind()] = u
	}
	return objects
}

func TestTheChartRendersTheSameWithEachHelm(t *testing.T) {
	for name, settings := range map[string][]string{"default": nil, "everything": everything} {
		of4 := rendered(t, helmTemplate(t, "helm", settings...))
		if diff := cmp.Diff(rendered(t, helmTemplate(t, "helm3", settings...)), of4); diff != "" {
			t.Errorf("%s: Helm 3 renders -, Helm 4 renders +\n%s", name, diff)
		}
		content, err := yaml.Marshal(of4)
		if err != nil {
			t.Fatal(err)
		}
		golden := filepath.Join("testdata", "chart-"+name+".yaml")
		if *update {
			if err := os.WriteFile(golden, content, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(content)); diff != "" {
			t.Errorf("%s differs; if that is intended, run the test with -update:\n%s", golden, diff)
		}
	}
}

func TestTheChartPassesHelmLint(t *testing.T) {
	for _, helm := range []string{"helm3", "helm"} {
		kcptest.CommandAt(t, helm, os.DevNull).Run(t, "lint", "--strict", chart)
	}
}

func TestValuesOfTheChartThatCannotWorkAreRefused(t *testing.T) {
	for setting, named := range map[string]string{
		"image.pullPolicy=Sometimes": "pullPolicy", "image.digest=sha256:1234": "digest", "kubeconfig.secretName=": "secretName", "tls.secretName=A": "secretName",
		"pods.clientName=kcp": "set both clientName and clientCASecretName", "pods.clientCASecretName=ca": "set both clientName and clientCASecretName",
		"tls.certificate.create=true": "tls.certificate.issuerRef.name is required", "lostAfter=soon": "lostAfter", "maxMovesPerMinute=0": "maxMovesPerMinute",
		"service.type=ExternalName": "type", "service.port=0": "port", "replicas=2": "replicas", "imagePullSecrets={a}": "imagePullSecrets", "affinity.node=a": "affinity",
		"serviceMonitor.tokenSecretName=": "tokenSecretName", "serviceMonitor.interval=often": "interval", "testImage=a b": "testImage",
	} {
		failure := kcptest.CommandAt(t, "helm", os.DevNull).Fail(t, "template", "kcp-fleet", chart, "--set="+setting)
		if !strings.Contains(failure, named) {
			t.Errorf("%s: the error does not name %q: %s", setting, named, failure)
		}
	}
}

// The controller needs nothing of the cluster on which it runs.
func TestTheChartGrantsNoPermissions(t *testing.T) {
	objects := rendered(t, helmTemplate(t, "helm", everything...))
	for kind := range objects {
		if !slices.Contains([]string{"Certificate", "Deployment", "NetworkPolicy", "Pod", "Service", "ServiceAccount", "ServiceMonitor"}, kind) {
			t.Errorf("the chart has an object of the kind %s", kind)
		}
	}
	if token, found, _ := unstructured.NestedBool(objects["Deployment"].Object, "spec", "template", "spec", "automountServiceAccountToken"); token || !found {
		t.Error("the pods mount a token")
	}
	if token, found, _ := unstructured.NestedBool(objects["Pod"].Object, "spec", "automountServiceAccountToken"); token || !found {
		t.Error("the pod of helm test mounts a token")
	}
}

// validatesChart lets the API server of a cluster admit the objects of the chart, and its pod in a namespace for restricted pods.
func (f *fleet) validatesChart(t *testing.T) {
	east := f.clusters["east"]
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "fleet-system", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}
	if _, err := east.kube.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	settings := append(slices.Clone(everything), "tls.certificate.create=false", "serviceMonitor.enabled=false", "priorityClassName=") // kinds and objects that the cluster does not have
	manifests := helmTemplate(t, "helm", settings...)
	kubectl := kcptest.CommandAt(t, "kubectl", filepath.Join(f.dir, "east.admin"))
	kubectl.Input(manifests).Run(t, "apply", "-f", "-", "--server-side", "--validate=strict", "--dry-run=server")
	deployment := &appsv1.Deployment{}
	content, err := yaml.Marshal(rendered(t, manifests)["Deployment"])
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(content, deployment); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "controller"}, Spec: deployment.Spec.Template.Spec}
	pod.Spec.ServiceAccountName = "" // dry-run has created none
	if _, err := east.kube.CoreV1().Pods(namespace.Name).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Error(err)
	}
}
