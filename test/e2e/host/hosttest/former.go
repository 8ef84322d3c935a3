package hosttest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// FormerTag is the tag of images of kcp and of the operator from the commit in test/skew.
const FormerTag = "former"

// Former returns the absolute path of a program, or of the charts or the bundle, that make former builds from the commit in test/skew.
func Former(t *testing.T, name string) string {
	t.Helper()
	path, err := kcptest.Binary(filepath.Join("former", name))
	if err != nil {
		t.Fatal(err)
	}
	if path, err = filepath.Abs(path); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: run make former", err)
	}
	return path
}

// LoadFormerImages packs the programs of the former version. The image of etcd has the same tag as that of this clone, and LoadImages
// replaces it.
func (h *Host) LoadFormerImages(t *testing.T) {
	t.Helper()
	h.loadPrograms(t, FormerTag, func(name string) string { return Former(t, name) })
}

// FormerInstallation returns a new namespace, with the former operator running. Installation.UpgradeFormer upgrades it.
func (h *Host) FormerInstallation(t *testing.T) *Installation {
	t.Helper()
	return h.installation(t, func(operator *Release) {
		h.LoadFormerImages(t)
		operator.upgrade(t, Former(t, "charts/kcp-operator"), FormerTag)
	})
}

// unknown is what the former operator does not know of the manifest of an installation. Its kinds are RootShard, Kubeconfig and those of
// etcd: the other components and the certificates between them are newer.
var unknown = [][]string{{"spec", "cache"}, {"spec", "certificateTemplates", "peer-ca"}}

// guest is a Kubeconfig for the root shard, which the former operator knows.
const guest = `
apiVersion: operator.kcp.io/v1alpha1
kind: Kubeconfig
metadata: {name: NAME}
spec:
  target: {rootShardRef: {name: kcp}}
  username: NAME
  validity: 24h
  secretRef: {name: NAME-kubeconfig}
  certificateTemplate: {spec: {privateKey: {algorithm: ECDSA}}}
  authorization: {clusterRoleBindings: {clusterRoles: [cluster-admin]}}
`

// FormerManifest returns what the former operator knows of the manifest of an installation: the root shard, with the former server. It adds
// a Kubeconfig for the root shard, because that of the installation is for its front proxy.
func FormerManifest(t *testing.T, manifest string) string {
	t.Helper()
	for document := range strings.SplitSeq(manifest, "\n---\n") {
		object := map[string]any{}
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatal(err)
		}
		if object["kind"] != "RootShard" {
			continue
		}
		for _, field := range unknown {
			unstructured.RemoveNestedField(object, field...)
		}
		content, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		return FormerImage(string(content)) + "---" + strings.ReplaceAll(guest, "NAME", "before")
	}
	t.Fatal("the manifest has no RootShard")
	return ""
}

// FormerImage returns the manifest of an installation with the image of the former server.
func FormerImage(manifest string) string {
	return regexp.MustCompile(`\btag: test\b`).ReplaceAllString(manifest, "tag: "+FormerTag)
}

// UpgradeFormer upgrades the former operator with an installation of FormerManifest, during reads and writes. The test fails if a request
// fails, if a write is lost, if an object of the namespace is replaced, or if a process is started again.
func (n *Installation) UpgradeFormer(t *testing.T, name string, upgrade func()) {
	t.Helper()
	n.Ready(t, "rootshard/kcp", "kubeconfig/before")
	kubeconfig := n.Kubeconfig(t, "before-kubeconfig")
	n.host.OnNode(t, kubeconfig, "create", "workspace", "before", "--ignore-existing")
	n.Undisturbed(t, n.Client(t, kubeconfig, "root:before"), Disturbance{Name: name, By: func() {
		before := n.objects(t)
		upgrade()
		n.Apply(t, strings.ReplaceAll(guest, "NAME", "after"))
		n.Ready(t, "kubeconfig/after", "kubeconfig/before", "etcdcluster/kcp-etcd")
		n.Observed(t)
		if lost := before.Difference(n.objects(t)); len(lost) > 0 {
			t.Errorf("%s replaced or removed\n%s\nThe pods are\n%s", name, strings.Join(sets.List(lost), "\n"), n.Show("get", "pods"))
		}
		n.Kubectl(t, "delete", "kubeconfig", "after", "--timeout=1m")
	}})
	t.Logf("after the upgrade of the operator, the pods are held: %s", n.Kubectl(t, "get", "rootshard", "kcp",
		`--output=jsonpath={.status.conditions[?(@.type=="RolloutHeld")].status}`))
}

// objects returns kind, name and UID of the objects of the namespace that must survive the operator, and starts of processes.
func (n *Installation) objects(t *testing.T) sets.Set[string] {
	t.Helper()
	kinds := "pods,statefulsets,services,persistentvolumeclaims,secrets,certificates,issuers,poddisruptionbudgets,kcp"
	lines := strings.Split(n.Kubectl(t, "get", kinds, "--output=jsonpath="+
		`{range .items[*]}{.kind} {.metadata.name} {.metadata.uid} {.status.containerStatuses[0].restartCount}{"\n"}{end}`), "\n")
	return sets.New(slices.DeleteFunc(lines, func(line string) bool { return line == "" })...)
}
