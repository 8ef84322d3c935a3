package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// monitored adds the kinds of the Prometheus Operator to the API server, and returns a function that removes them.
func monitored(t *testing.T) func() {
	t.Helper()
	var definitions []string
	for _, file := range kcptest.PrometheusOperator.Files(t, 1) {
		if strings.HasSuffix(file, "_servicemonitors.yaml") || strings.HasSuffix(file, "_prometheusrules.yaml") {
			definitions = append(definitions, file)
		}
	}
	kinds, err := envtest.InstallCRDs(host, envtest.CRDInstallOptions{Paths: definitions, ErrorIfPathMissing: true})
	if err != nil {
		t.Fatal(err)
	}
	c := cluster(t, host)
	return func() {
		if err := envtest.UninstallCRDs(host, envtest.CRDInstallOptions{CRDs: kinds}); err != nil {
			t.Error(err)
		}
		for _, kind := range kinds {
			left := &metav1.PartialObjectMetadata{}
			left.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
			kcptest.Eventually(t, kind.Name+" is gone", func(ctx context.Context) error {
				return kcptest.Gone(c.Get(ctx, client.ObjectKeyFromObject(kind), left))
			})
		}
	}
}

// dryRun checks that the API server accepts all fields of manifests.
func dryRun(t *testing.T, manifests string, args ...string) {
	t.Helper()
	kcptest.CommandAt(t, "kubectl", newGateFor(t, host).kubeconfig).Input(manifests).Run(t,
		append([]string{"apply", "--server-side", "--force-conflicts", "--validate=strict", "--dry-run=server"}, args...)...)
}

func inNamespaces(t *testing.T, names ...string) *operatortest.Cluster {
	t.Helper()
	c := cluster(t, host)
	for _, name := range names {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := client.IgnoreAlreadyExists(c.Create(t.Context(), namespace)); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// with renders the chart with values.
func with(t *testing.T, values map[string]any) string {
	t.Helper()
	made, err := template(values)
	if err != nil {
		t.Fatal(err)
	}
	return manifests(made)
}

// changed returns the values of testdata, which differ from all defaults, without the named ones.
func changed(t *testing.T, without ...string) map[string]any {
	t.Helper()
	text, err := os.ReadFile("testdata/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]any{}
	if err := yaml.UnmarshalStrict(text, &values); err != nil {
		t.Fatal(err)
	}
	for _, path := range without {
		group, name := values, path
		for before, after, nested := strings.Cut(name, "."); nested; before, after, nested = strings.Cut(name, ".") {
			group, name = group[before].(map[string]any), after
		}
		if _, there := group[name]; !there {
			t.Errorf("testdata/values.yaml has no %s", path)
		}
		delete(group, name)
	}
	return values
}

// excluding are values that have an effect only if other values differ from those in testdata.
var excluding = map[string][]string{
	"nameOverride":               {"fullnameOverride"},
	"image.tag":                  {"image.digest"},
	"serviceAccount.annotations": {"serviceAccount.create"},
	"rbac.aggregate":             {"rbac.create"},
}

func TestEveryValueOfTheChartHasAnEffect(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(chart, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	values := regexp.MustCompile("(?m)^\\| `([A-Za-z.]+)` \\| `").FindAllStringSubmatch(string(page), -1)
	if len(values) < 30 {
		t.Fatalf("there are only %d values", len(values))
	}
	rendered := map[string]string{}
	without := func(paths ...string) string {
		key := strings.Join(paths, " ")
		if rendered[key] == "" {
			rendered[key] = with(t, changed(t, paths...))
		}
		return rendered[key]
	}
	for _, value := range values {
		others := slices.Clone(excluding[value[1]])
		if strings.HasPrefix(value[1], "metrics.") && value[1] != "metrics.enabled" {
			others = append(others, "metrics.enabled")
		}
		if without(others...) == without(append(others, value[1])...) {
			t.Errorf("%s has no effect", value[1])
		}
	}
}

func TestTheAPIServerAcceptsTheObjectsOfTheChart(t *testing.T) {
	defer monitored(t)()
	inNamespaces(t, "operators", "packaged")
	for name, values := range map[string]map[string]any{
		"as it is": {}, "with every value changed": changed(t),
		"with all objects": changed(t, "metrics.enabled", "rbac.create", "serviceAccount.create", "leaderElection.enabled"),
	} {
		t.Run(name, func(t *testing.T) { dryRun(t, with(t, values), "--filename=-") })
	}
}

// Kustomizations are for users without Helm.
func TestTheAPIServerAcceptsTheKustomizations(t *testing.T) {
	defer monitored(t)()
	for _, directory := range []string{"config/default", "config/crd", "config/prometheus", "config/grafana", "config/policy"} {
		t.Run(directory, func(t *testing.T) { dryRun(t, "", "--kustomize="+filepath.Join(root, directory)) })
	}
}

// Installations of several objects are not among the examples of the bundle.
func TestTheAPIServerAcceptsTheInstallationsAmongTheSamples(t *testing.T) {
	for _, file := range []string{"sharded.yaml", "production.yaml"} {
		t.Run(file, func(t *testing.T) {
			dryRun(t, "", "--namespace="+operatortest.Namespace, "--filename="+filepath.Join(root, "config/samples", file))
		})
	}
}

// Removing the operator as described in docs/operator.md keeps every kcp.
func TestTheKustomizationsToDeleteHaveNoDefinitions(t *testing.T) {
	for _, directory := range []string{"config/manager", "config/rbac", "config/policy"} {
		made := kcptest.CommandAt(t, "kubectl", newGateFor(t, host).kubeconfig).Run(t, "kustomize", filepath.Join(root, directory))
		if strings.Contains(made, "CustomResourceDefinition") || !strings.Contains(made, "name: kcp-operator") {
			t.Errorf("%s has\n%s", directory, made)
		}
	}
}

// commands returns the commands in the notes of the chart, each with its input.
func commands(notes string) []string {
	var all []string
	reading := false
	for line := range strings.SplitSeq(notes, "\n") {
		switch {
		case reading:
			all[len(all)-1] += "\n" + line
			reading = line != "EOF"
		case strings.HasPrefix(line, "kubectl ") || strings.HasPrefix(line, "helm "):
			all = append(all, line)
			reading = strings.HasSuffix(line, "<<EOF")
		}
	}
	return all
}

func TestTheCommandsInTheNotesOfTheChartWork(t *testing.T) {
	kubectl, err := kcptest.Binary("kubectl")
	if err != nil {
		t.Fatal(err)
	}
	for namespace, setting := range map[string]string{"default": "replicas=1", "noted": "watchNamespaces={noted,other}"} {
		t.Run(namespace, func(t *testing.T) {
			c := inNamespaces(t, namespace)
			made, err := template(set(t, setting))
			if err != nil {
				t.Fatal(err)
			}
			notes := made.Info.Notes
			dir := t.TempDir()
			run := func(command string) {
				t.Helper()
				shell := exec.CommandContext(t.Context(), "sh", "-euc", command)
				shell.Dir, shell.Env = dir, append(os.Environ(), "KUBECONFIG="+newGateFor(t, host).kubeconfig, "PATH="+filepath.Dir(kubectl)+":"+os.Getenv("PATH"))
				if out, err := shell.CombinedOutput(); err != nil {
					t.Fatalf("%s: %v\n%s", command, err, out)
				}
			}
			typed := commands(notes)
			if len(typed) != 8 {
				t.Fatalf("the notes are\n%s", notes)
			}
			for _, command := range typed {
				verb := strings.Fields(command)[1]
				switch verb {
				case "apply":
					run(command)
					becomeReady(t, c, namespace)
				case "wait", "get", "config", "describe":
					run(command)
				case "port-forward":
					if !strings.Contains(command, "service/kcp-kcp 16443:6443") {
						t.Errorf("%s does not lead to kcp", command)
					}
				}
				if local := verb == "config" || verb == "api-resources"; namespace == "noted" && !local && verb != "test" && !strings.Contains(command, "--namespace=noted") {
					t.Errorf("%s is for another namespace", command)
				}
			}
			access, err := clientcmd.LoadFromFile(filepath.Join(dir, "kcp.kubeconfig"))
			if err != nil {
				t.Fatal(err)
			}
			if server := access.Clusters[access.Contexts["external"].Cluster].Server; server != "https://localhost:16443/clusters/root" {
				t.Errorf("the context external leads to %s", server)
			}
		})
	}
}

// becomeReady makes the objects in the notes of the chart ready, as the operator does.
func becomeReady(t *testing.T, c *operatortest.Cluster, namespace string) {
	t.Helper()
	ready := []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Ready", LastTransitionTime: metav1.Now()}}
	rs := &v1alpha1.RootShard{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kcp"}}
	access := &v1alpha1.Kubeconfig{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kcp-admin"}}
	if err := errors.Join(c.Get(t.Context(), client.ObjectKeyFromObject(rs), rs), c.Get(t.Context(), client.ObjectKeyFromObject(access), access)); err != nil {
		t.Fatal(err)
	}
	rs.Status.Conditions, access.Status.Conditions = ready, ready
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: access.Spec.SecretRef.Name}, StringData: map[string]string{
		"kubeconfig": fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: default\nclusters: [{name: external, cluster: {server: %q}}]\n"+
			"contexts: [{name: external, context: {cluster: external}}]\n", "https://"+rs.Spec.External.Hostname)}}
	c.MustUpdateStatus(t, rs)
	c.MustUpdateStatus(t, access)
	c.MustCreate(t, secret)
	t.Cleanup(func() {
		for _, object := range []client.Object{rs, access, secret} {
			if err := c.Delete(context.Background(), object); err != nil {
				t.Error(err)
			}
		}
	})
}
