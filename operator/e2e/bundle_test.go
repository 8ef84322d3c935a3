package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/etcdcluster"
	"github.com/kcplane/kcp/operator/internal/operatortest"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// clusterServiceVersion has the fields of the bundle that the tests read.
type clusterServiceVersion struct {
	Metadata metav1.ObjectMeta
	Spec     struct {
		RelatedImages []struct{ Image string }
		Install       struct {
			Spec struct {
				Deployments                     []struct{ Spec appsv1.DeploymentSpec }
				Permissions, ClusterPermissions []struct{ Rules []rbacv1.PolicyRule }
			}
		}
	}
}

func bundle(t *testing.T) clusterServiceVersion {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "bundle/manifests/kcp-operator.clusterserviceversion.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var csv clusterServiceVersion
	if err := yaml.Unmarshal(text, &csv); err != nil {
		t.Fatal(err)
	}
	return csv
}

func TestTheExamplesOfTheBundleAreAccepted(t *testing.T) {
	var examples []unstructured.Unstructured
	if err := json.Unmarshal([]byte(bundle(t).Metadata.Annotations["alm-examples"]), &examples); err != nil || len(examples) == 0 {
		t.Fatalf("%d examples: %v", len(examples), err)
	}
	c := cluster(t, host)
	for i := range examples {
		examples[i].SetNamespace(operatortest.Namespace)
		if err := c.Create(t.Context(), &examples[i], client.DryRunAll, client.FieldValidation("Strict")); err != nil {
			t.Errorf("%s: %v", examples[i].GetKind(), err)
		}
	}
}

func TestTheBundleNamesTheImagesOfTheChart(t *testing.T) {
	images := map[string]bool{}
	for _, related := range bundle(t).Spec.RelatedImages {
		images[related.Image] = true
	}
	deployed := container(t)
	want := []string{deployed["image"].(string), etcdcluster.DefaultRepository + ":v" + etcdcluster.DefaultVersion}
	for _, arg := range deployed["args"].([]any) {
		if image, ok := strings.CutPrefix(arg.(string), "--kcp-image="); ok {
			want = append(want, image)
		}
	}
	for _, image := range want {
		if !images[image] {
			t.Errorf("%s is not among %v", image, images)
		}
	}
}

// release is an operator as the Operator Lifecycle Manager installs it.
type release struct {
	*operatortest.Cluster
	t         *testing.T
	csv       clusterServiceVersion
	namespace string
	selected  []string // none: all
}

// grant grants the permissions in the bundle, as the Operator Lifecycle Manager does.
func (i *release) grant() {
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: i.namespace}}
	bind := func(namespace, suffix string, rules []rbacv1.PolicyRule) {
		name := metav1.ObjectMeta{Namespace: namespace, Name: i.namespace + suffix}
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name.Name}
		if namespace == "" {
			i.MustCreate(i.t, &rbacv1.ClusterRole{ObjectMeta: name, Rules: rules}, &rbacv1.ClusterRoleBinding{ObjectMeta: name, RoleRef: ref, Subjects: subjects})
			return
		}
		ref.Kind = "Role"
		i.MustCreate(i.t, &rbacv1.Role{ObjectMeta: name, Rules: rules}, &rbacv1.RoleBinding{ObjectMeta: name, RoleRef: ref, Subjects: subjects})
	}
	bind("", "-everywhere", i.csv.Spec.Install.Spec.ClusterPermissions[0].Rules)
	rules := i.csv.Spec.Install.Spec.Permissions[0].Rules
	if len(i.selected) == 0 {
		bind("", "", rules)
		return
	}
	own := true
	for _, namespace := range i.selected {
		bind(namespace, "", rules)
		own = own && namespace != i.namespace
	}
	if own {
		bind(i.namespace, "", rules)
	}
}

// run starts the operator with the arguments in the bundle.
func (i *release) run() *process {
	i.t.Helper()
	g := newGateFor(i.t, as(i.namespace))
	// The value of the annotation olm.targetNamespaces of the pod.
	g.environment = []string{"WATCH_NAMESPACE=" + strings.Join(i.selected, ",")}
	return g.start(i.t, append(i.csv.Spec.Install.Spec.Deployments[0].Spec.Template.Spec.Containers[0].Args,
		"--metrics-bind-address=0", "--health-probe-bind-address=0", "--leader-election-namespace="+i.namespace)...)
}

// begun returns an error until the operator has started to reconcile a RootShard.
func (i *release) begun(ctx context.Context, namespace string) error {
	issuers := &certmanager.IssuerList{}
	if err := i.List(ctx, issuers, client.InNamespace(namespace)); err != nil {
		return err
	}
	rs := &v1alpha1.RootShard{}
	if err := i.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "kcp"}, rs); err != nil {
		return err
	}
	if len(issuers.Items) == 0 || rs.Status.ObservedGeneration != rs.Generation {
		return fmt.Errorf("%d issuers in %s, and the status is %+v", len(issuers.Items), namespace, rs.Status)
	}
	return nil
}

func TestTheOperatorWorksInEveryInstallMode(t *testing.T) {
	for _, test := range []struct {
		mode, namespace   string
		selected, unasked []string
	}{
		{"OwnNamespace", "own", []string{"own"}, []string{"own-not"}},
		{"SingleNamespace", "single", []string{"single-a"}, []string{"single"}},
		{"MultiNamespace", "multi", []string{"multi-a", "multi-b"}, []string{"multi"}},
		{"AllNamespaces", "all", nil, nil},
	} {
		t.Run(test.mode, func(t *testing.T) {
			i := &release{Cluster: cluster(t, host), t: t, csv: bundle(t), namespace: test.namespace, selected: test.selected}
			expected := test.selected
			if expected == nil {
				expected = []string{"all", "all-a"}
			}
			namespaces := map[string]bool{test.namespace: true}
			for _, namespace := range append(expected, test.unasked...) {
				namespaces[namespace] = true
			}
			for namespace := range namespaces {
				rs := shard("kcp")
				rs.Namespace = namespace
				i.MustCreate(i.t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, rs)
			}
			i.grant()
			p := i.run()
			for _, namespace := range expected {
				kcptest.Eventually(t, "the operator makes the RootShard of "+namespace, func(ctx context.Context) error { return i.begun(ctx, namespace) })
			}
			for _, namespace := range test.unasked {
				if err := i.begun(t.Context(), namespace); err == nil {
					t.Errorf("it works in %s, which is not selected", namespace)
				}
			}
			p.stop(t)
			if strings.Contains(p.String(), "forbidden") {
				t.Errorf("the bundle requests too few permissions:\n%s", p)
			}
		})
	}
}
