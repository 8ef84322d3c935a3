package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/kcplane/kcp/operator/internal/workload"
)

var chart = filepath.Join(root, "charts/kcp-operator")

// render returns the objects of the chart, by kind.
func render(t *testing.T, settings ...string) map[string][]*unstructured.Unstructured {
	t.Helper()
	made, err := template(set(t, settings...))
	if err != nil {
		t.Fatalf("%v: %v", settings, err)
	}
	byKind := map[string][]*unstructured.Unstructured{}
	for _, object := range parse(t, manifests(made)) {
		byKind[object.GetKind()] = append(byKind[object.GetKind()], object)
	}
	return byKind
}

// D22: helm uninstall must not delete the definitions, and with them every kcp.
func TestDefinitionsRemainWhenTheChartIsUninstalled(t *testing.T) {
	definitions := render(t)["CustomResourceDefinition"]
	all, err := filepath.Glob(filepath.Join(root, "config/crd/bases/*.yaml"))
	if err != nil || len(definitions) != len(all) || len(all) == 0 {
		t.Errorf("it has %d definitions of %d: %v", len(definitions), len(all), err)
	}
	for _, definition := range definitions {
		if definition.GetAnnotations()["helm.sh/resource-policy"] != "keep" {
			t.Errorf("helm uninstall deletes %s, and all that was made of it", definition.GetName())
		}
	}
	if len(render(t, "crds.create=false")["CustomResourceDefinition"]) > 0 {
		t.Error("crds.create=false has no effect")
	}
}

// D1: Helm stores a release, compressed and encoded, in a Secret of at most 1 MiB: the templates and the result.
func TestTheReleaseFitsIntoASecret(t *testing.T) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	for range 2 {
		if err := json.NewEncoder(w).Encode(render(t)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if size := base64.StdEncoding.EncodedLen(packed.Len()); size > 512<<10 {
		t.Errorf("about %d bytes", size)
	}
}

func container(t *testing.T, settings ...string) map[string]any {
	t.Helper()
	deployment := render(t, settings...)["Deployment"][0]
	containers, _, err := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "containers")
	if err != nil {
		t.Fatal(err)
	}
	return containers[0].(map[string]any)
}

// D23, like the next test.
func TestLeaderElectionCanBeDisabled(t *testing.T) {
	for setting, want := range map[string]string{"leaderElection.enabled=false": "--leader-elect=false", "replicas=2": "--leader-elect=true"} {
		encoded, _ := json.Marshal(container(t, setting)["args"])
		if !strings.Contains(string(encoded), want) {
			t.Errorf("%s gives %s", setting, encoded)
		}
	}
}

func TestServicesHavePortsOfThePods(t *testing.T) {
	names := map[string]bool{}
	for _, port := range container(t)["ports"].([]any) {
		names[port.(map[string]any)["name"].(string)] = true
	}
	services := render(t)["Service"]
	if len(services) == 0 {
		t.Error("there is no Service")
	}
	for _, service := range services {
		ports, _, _ := unstructured.NestedSlice(service.Object, "spec", "ports")
		for _, port := range ports {
			if target := port.(map[string]any)["targetPort"]; !names[target.(string)] {
				t.Errorf("Service %s leads to the port %v; the pods have %v", service.GetName(), target, names)
			}
		}
	}
}

func TestAnOperatorOfNamespacesGetsNoPermissionsElsewhere(t *testing.T) {
	objects := render(t, "watchNamespaces={a,b}")
	if len(slices.DeleteFunc(objects["ClusterRole"], forPeople)) > 0 {
		t.Error("it has a ClusterRole")
	}
	namespaces := map[string]bool{}
	for _, role := range objects["Role"] {
		namespaces[role.GetNamespace()] = true
	}
	if !namespaces["a"] || !namespaces["b"] {
		t.Errorf("it has Roles in %v", namespaces)
	}
	for _, binding := range objects["ClusterRoleBinding"] {
		if name, _, _ := unstructured.NestedString(binding.Object, "roleRef", "name"); name != "system:auth-delegator" {
			t.Errorf("it is bound to the ClusterRole %s", name)
		}
	}
	roles := slices.DeleteFunc(render(t)["ClusterRole"], forPeople)
	if len(roles) != 1 {
		t.Errorf("an operator of all namespaces has %d ClusterRoles", len(roles))
	}
}

func TestValuesThatCannotWorkAreRefused(t *testing.T) {
	for _, setting := range []string{
		"image.pullPolicy=Sometimes", "image.digest=sha256:1234", "image.tag=a b", "kcpImage=ghcr.io/kcplane/kcp", "etcdRepository=example.com/etcd@sha256:1",
		"watchNamespaces={Team}", "replicas=-1", "logging.encoder=xml", "logging.level=loud", "podSecurity=baseline", "podServiceAccounts={A}", "metrics.port=8081", "metrics.serviceMonitor.interval=often",
		"imagePullSecrets={secret}", "unknown=1", "nodeSelector.pool.a=b", "affinity.node=a", "fullnameOverride=Operator",
	} {
		value, _, _ := strings.Cut(setting, "=")
		_, err := template(set(t, setting))
		if err == nil || !strings.Contains(err.Error(), strings.SplitN(value, ".", 2)[0]) {
			t.Errorf("%s: %v", setting, err)
		}
	}
	digest := strings.Repeat("0", 64)
	render(t, "image.digest=sha256:"+digest, "kcpImage=localhost:5000/kcp@sha256:"+digest, "etcdRepository=localhost:5000/etcd", "logging.level=5",
		"watchNamespaces={team-a}", "imagePullSecrets[0].name=secret", "metrics.serviceMonitor.interval=30s", "extraEnv[0].name=A,extraEnv[0].value=b")
}

// The pod of helm test must not match the selector of the operator, and may read only the objects that it checks.
func TestHelmTestMayReadOnlyTheOperator(t *testing.T) {
	objects := render(t)
	pod := objects["Pod"][0]
	if pod.GetAnnotations()["helm.sh/hook"] != "test" {
		t.Errorf("%s is no test", pod.GetName())
	}
	selector, _, err := unstructured.NestedStringMap(objects["Deployment"][0].Object, "spec", "selector", "matchLabels")
	if err != nil || labels.SelectorFromSet(selector).Matches(labels.Set(pod.GetLabels())) {
		t.Errorf("the operator's selector %v matches it: %v", selector, err)
	}
	found := false
	for _, role := range objects["Role"] {
		if role.GetName() != pod.GetName() {
			continue
		}
		found = true
		rules, _, _ := unstructured.NestedSlice(role.Object, "rules")
		for _, rule := range rules {
			rule := rule.(map[string]any)
			verbs, _ := json.Marshal(rule["verbs"])
			resources, _ := json.Marshal(rule["resources"])
			one, pods := string(verbs) == `["get"]` && rule["resourceNames"] != nil, string(verbs) == `["list"]` && string(resources) == `["pods"]`
			if !one && !pods {
				t.Errorf("it may do more than read one object, and list pods: %v", rule)
			}
		}
	}
	if !found {
		t.Error("it has no Role")
	}
}

// The chart has the policies of config/policy, for its own service account.
func TestTheChartLimitsItsOwnServiceAccount(t *testing.T) {
	names := func(settings ...string) string {
		var all []string
		objects := render(t, settings...)
		for _, kind := range []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"} {
			for _, object := range objects[kind] {
				all = append(all, strings.TrimPrefix(object.GetName(), "operators-release-kcp-operator-"))
				if policy, found, _ := unstructured.NestedString(object.Object, "spec", "policyName"); found && policy != object.GetName() {
					t.Errorf("%s binds %s", object.GetName(), policy)
				}
				conditions, found, _ := unstructured.NestedSlice(object.Object, "spec", "matchConditions")
				if text, _ := json.Marshal(conditions); found && !strings.Contains(string(text), `\"system:serviceaccount:operators:release-kcp-operator\"`) {
					t.Errorf("%s is for %s", object.GetName(), text)
				}
			}
		}
		return strings.Join(all, " ")
	}
	for setting, want := range map[string]string{
		"replicas=1":                    "objects tokens restricted objects tokens restricted",
		"podSecurity=privileged":        "objects tokens objects tokens",
		"admissionPolicy.enabled=false": "",
	} {
		if got := names(setting); got != want {
			t.Errorf("with %s there are %q", setting, got)
		}
	}
	setting := "podServiceAccounts={snapshots,other}"
	policies, _ := json.Marshal(render(t, setting)["ValidatingAdmissionPolicy"])
	arguments, _ := json.Marshal(container(t, setting)["args"])
	if !strings.Contains(string(policies), `"expression":"[\"snapshots\",\"other\"]"`) || !strings.Contains(string(arguments), "--pod-service-accounts=snapshots,other") {
		t.Errorf("the accounts are neither in the policies\n%s\nnor in the arguments\n%s", policies, arguments)
	}
}

// The pods of the chart, of the bundle and of config/ are restricted, and set no users, because OpenShift's restricted-v2 assigns them.
func TestPodsAreRestrictedWithEachWayToInstall(t *testing.T) {
	spec := func(object *unstructured.Unstructured, fields ...string) corev1.PodTemplateSpec {
		t.Helper()
		content, _, err := unstructured.NestedMap(object.Object, fields...)
		if err != nil {
			t.Fatal(err)
		}
		pod := corev1.PodTemplateSpec{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, &pod.Spec); err != nil {
			t.Fatal(err)
		}
		return pod
	}
	objects := render(t)
	pods := map[string]corev1.PodTemplateSpec{
		"the chart":  spec(objects["Deployment"][0], "spec", "template", "spec"),
		"helm test":  spec(objects["Pod"][0], "spec"),
		"the bundle": bundle(t).Spec.Install.Spec.Deployments[0].Spec.Template,
	}
	manager, err := os.ReadFile(filepath.Join(root, "config/manager/manager.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	deployment := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(manager[bytes.LastIndex(manager, []byte("\n---\n")):], &deployment.Object); err != nil {
		t.Fatal(err)
	}
	pods["config"] = spec(deployment, "spec", "template", "spec")
	for where, pod := range pods {
		if err := (workload.Security{ServiceAccounts: []string{pod.Spec.ServiceAccountName}}).Admit(&pod, where); err != nil {
			t.Error(err)
		}
		c, own := pod.Spec.SecurityContext, pod.Spec.Containers[0].SecurityContext
		if c.RunAsUser != nil || c.RunAsGroup != nil || c.FSGroup != nil || own.RunAsUser != nil || own.RunAsGroup != nil || !*own.ReadOnlyRootFilesystem {
			t.Errorf("%s: %+v, %+v", where, c, own)
		}
	}
}
