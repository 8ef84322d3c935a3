package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	helmrelease "helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/strvals"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// These tests use the Go package of Helm 3, which most users have. Helm 4 is tested with its CLI, here and on a real host cluster.

const (
	releaseName      = "release"
	releaseNamespace = "operators"
)

// capabilities returns those of a host cluster that the chart supports: neither Helm's package nor the API server of these tests knows its
// version, which is set when their programs are linked.
func capabilities() *chartutil.Capabilities {
	c := chartutil.DefaultCapabilities.Copy()
	c.KubeVersion = chartutil.KubeVersion{Version: "v1.37.0", Major: "1", Minor: "37"}
	return c
}

// template renders the chart as helm template does, with its hooks.
func template(values map[string]any) (*helmrelease.Release, error) {
	loaded, err := loader.Load(chart)
	if err != nil {
		return nil, err
	}
	install := action.NewInstall(&action.Configuration{})
	install.KubeVersion = &capabilities().KubeVersion
	install.ClientOnly, install.DryRun, install.ReleaseName, install.Namespace = true, true, releaseName, releaseNamespace
	return install.Run(loaded, values)
}

// set returns the values of --set flags.
func set(t *testing.T, settings ...string) map[string]any {
	t.Helper()
	values := map[string]any{}
	for _, setting := range settings {
		if err := strvals.ParseInto(setting, values); err != nil {
			t.Fatalf("%s: %v", setting, err)
		}
	}
	return values
}

// manifests returns the objects of a release, including its hooks.
func manifests(made *helmrelease.Release) string {
	text := strings.Builder{}
	text.WriteString(made.Manifest)
	for _, hook := range made.Hooks {
		fmt.Fprintf(&text, "\n---\n%s", hook.Manifest)
	}
	return text.String()
}

// parse returns the objects of manifests.
func parse(t *testing.T, manifests string) []*unstructured.Unstructured {
	t.Helper()
	var all []*unstructured.Unstructured
	for document := range strings.SplitSeq(manifests, "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			t.Fatal(err)
		}
		if object.Object != nil {
			all = append(all, object)
		}
	}
	return all
}

// byName returns the objects of manifests by kind, namespace and name.
func byName(t *testing.T, manifests string) map[string]*unstructured.Unstructured {
	t.Helper()
	all := map[string]*unstructured.Unstructured{}
	for _, object := range parse(t, manifests) {
		all[object.GetKind()+" "+object.GetNamespace()+"/"+object.GetName()] = object
	}
	return all
}

func TestTheChartPassesHelmLint(t *testing.T) {
	lint := action.NewLint()
	lint.Strict, lint.WithSubcharts, lint.Namespace = true, true, releaseNamespace
	result := lint.Run([]string{chart}, nil)
	if result.TotalChartsLinted != 1 || len(result.Messages)+len(result.Errors) > 0 {
		t.Errorf("%d charts: %v, %v", result.TotalChartsLinted, result.Messages, result.Errors)
	}
}

func TestHelm3AndHelm4RenderTheSameObjects(t *testing.T) {
	for _, setting := range []string{"replicas=1", "replicas=2", "watchNamespaces={a,b}", "podSecurity=privileged"} {
		made, err := template(set(t, setting))
		if err != nil {
			t.Fatal(err)
		}
		of4 := kcptest.CommandAt(t, "helm", os.DevNull).Run(t, "template", releaseName, chart, "--namespace="+releaseNamespace, "--set="+setting)
		if diff := cmp.Diff(byName(t, manifests(made)), byName(t, of4)); diff != "" {
			t.Errorf("%s: Helm 3 renders -, Helm 4 renders +\n%s", setting, diff)
		}
	}
}

func TestHelm3InstallsUpgradesAndRollsBackTheChart(t *testing.T) {
	c := inNamespaces(t, "helm3")
	flags := genericclioptions.NewConfigFlags(false)
	flags.KubeConfig = new(newGateFor(t, host).kubeconfig)
	flags.Namespace = new("helm3")
	config := &action.Configuration{}
	if err := config.Init(flags, "helm3", "secret", t.Logf); err != nil {
		t.Fatal(err)
	}
	config.Capabilities = capabilities()
	loaded, err := loader.Load(chart)
	if err != nil {
		t.Fatal(err)
	}
	// The definitions exist already, and belong to no release.
	small := set(t, "crds.create=false", "replicas=1", "logging.level=debug")
	large := set(t, "crds.create=false", "replicas=2", "watchNamespaces={a}", "rbac.aggregate=false")
	inNamespaces(t, "a")

	install := action.NewInstall(config)
	install.ReleaseName, install.Namespace = releaseName, "helm3"
	installed, err := install.RunWithContext(t.Context(), loaded, small)
	if err != nil {
		t.Fatal(err)
	}
	expect := func(want *helmrelease.Release, replicas int32, clusterRoles int) {
		t.Helper()
		deployments := &appsv1.DeploymentList{}
		if err := c.List(t.Context(), deployments, client.InNamespace("helm3")); err != nil {
			t.Fatal(err)
		}
		if len(deployments.Items) != 1 || *deployments.Items[0].Spec.Replicas != replicas {
			t.Errorf("deployments %+v, want one with %d replicas", deployments.Items, replicas)
		}
		roles := &rbacv1.ClusterRoleList{}
		if err := c.List(t.Context(), roles); err != nil {
			t.Fatal(err)
		}
		ofRelease := slices.DeleteFunc(roles.Items, func(r rbacv1.ClusterRole) bool {
			return r.Annotations["meta.helm.sh/release-namespace"] != "helm3"
		})
		if len(ofRelease) != clusterRoles {
			t.Errorf("%d ClusterRoles, want %d", len(ofRelease), clusterRoles)
		}
		for name, object := range byName(t, want.Manifest) {
			if object.GetNamespace() == "" {
				continue
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	expect(installed, 1, 1+forPeopleOf(t, installed))

	upgrade := action.NewUpgrade(config)
	upgrade.Namespace, upgrade.MaxHistory = "helm3", 5
	upgraded, err := upgrade.RunWithContext(t.Context(), releaseName, loaded, large)
	if err != nil {
		t.Fatal(err)
	}
	expect(upgraded, 2, forPeopleOf(t, upgraded))

	rollback := action.NewRollback(config)
	rollback.Version = installed.Version
	if err := rollback.Run(releaseName); err != nil {
		t.Fatal(err)
	}
	expect(installed, 1, 1+forPeopleOf(t, installed))

	if _, err := action.NewUninstall(config).Run(releaseName); err != nil {
		t.Fatal(err)
	}
	for name, object := range byName(t, installed.Manifest) {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object); err == nil && object.GetDeletionTimestamp() == nil {
			t.Errorf("%s remains after helm uninstall", name)
		}
	}
}

// forPeopleOf returns the number of ClusterRoles in a release that extend those of users.
func forPeopleOf(t *testing.T, made *helmrelease.Release) int {
	t.Helper()
	people := 0
	for name, object := range byName(t, made.Manifest) {
		if strings.HasPrefix(name, "ClusterRole ") && forPeople(object) {
			people++
		}
	}
	return people
}
