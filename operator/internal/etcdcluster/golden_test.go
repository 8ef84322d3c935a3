package etcdcluster

import (
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
)

// What is built is compared with files, so that a change of what runs in every installation is seen in a review.
func TestObjectsOfAnEtcdClusterMatchGoldenFiles(t *testing.T) {
	minDefragSize := &v1alpha1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "team"}}
	text, err := os.ReadFile("../../../config/samples/etcdcluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	sample := &v1alpha1.EtcdCluster{}
	if err := yaml.UnmarshalStrict(text, sample); err != nil {
		t.Fatal(err)
	}
	sample.Namespace = "team"
	sample.Spec.ClusterDomain = "example.org"
	sample.Spec.TLS = &v1alpha1.EtcdClusterTLSSpec{IssuerRef: &v1alpha1.ObjectReference{Name: "company", Kind: "ClusterIssuer"}}
	sample.Spec.DeletionPolicy = v1alpha1.EtcdDelete
	for name, cluster := range map[string]*v1alpha1.EtcdCluster{"smallest": minDefragSize, "sample": sample} {
		t.Run(name, func(t *testing.T) {
			stateful, err := statefulSet(cluster, members{pods: 3, image: image(cluster.Spec.Image, DefaultRepository, "3.7.3"), authorities: "0f"})
			if err != nil {
				t.Fatal(err)
			}
			objects := append(certificates(cluster), peerService(cluster), clientService(cluster), stateful)
			if budget, wanted := disruptionBudget(cluster); wanted {
				objects = append(objects, budget)
			}
			if monitor, wanted := serviceMonitor(cluster); wanted {
				objects = append(objects, monitor)
			}
			operatortest.Golden(t, filepath.Join("testdata", name+".golden"), objects)
		})
	}
}

func TestTheImageFollowsFromTheVersionUnlessItIsSet(t *testing.T) {
	for _, c := range []struct {
		spec *v1alpha1.ImageSpec
		want string
	}{
		{nil, "etcd:v3.7.3"},
		{&v1alpha1.ImageSpec{Repository: "mirror/etcd"}, "mirror/etcd:v3.7.3"},
		{&v1alpha1.ImageSpec{Tag: "mine"}, "etcd:mine"},
		{&v1alpha1.ImageSpec{Repository: "mirror/etcd", Digest: "sha256:ab"}, "mirror/etcd@sha256:ab"},
	} {
		if got := image(c.spec, "etcd", "3.7.3"); got != c.want {
			t.Errorf("%+v: %s, want %s", c.spec, got, c.want)
		}
	}
}

func TestVersionsCanBeUpgradedByOneMinorVersion(t *testing.T) {
	for _, c := range []struct {
		requested, current, want string
		refused                  bool
	}{
		{"", "", "3.7.3", false}, {"3.6.14", "", "3.6.14", false}, {"", "3.6.14", "3.6.14", false},
		{"3.7.3", "3.6.14", "3.7.3", false}, {"3.6.16", "3.6.14", "3.6.16", false}, {"3.6.12", "3.6.14", "3.6.12", false},
		{"3.8.0", "3.6.14", "3.6.14", true}, {"3.5.21", "3.6.14", "3.6.14", true}, {"4.7.0", "3.6.14", "3.6.14", true},
	} {
		got, refused := chooseVersion(c.requested, c.current, "3.7.3")
		if got != c.want || (refused != nil) != c.refused {
			t.Errorf("%s requested, %s runs: %s, %v", c.requested, c.current, got, refused)
		}
	}
}
