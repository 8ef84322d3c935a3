package sharded

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kcplane/kcp/test/e2e/host/hosttest"
)

// beginFormer creates the root shard with the former operator and the former server, and upgrades the operator. The former operator has no
// other components, so they are created after the upgrade, also with the former server.
func (n *installation) beginFormer(t *testing.T) {
	t.Helper()
	manifest := n.manifest(t)
	n.Apply(t, hosttest.FormerManifest(t, manifest))
	service := n.Service
	n.Service = "kcp-kcp"
	n.UpgradeFormer(t, "the operator is upgraded from the former version", func() {
		host.LoadImages(t)
		n.Operator.Upgrade(t, "test")
	})
	n.Service = service
	n.begin(t, hosttest.FormerImage(manifest))
}

// upgradeFormer upgrades the installation from the former version, with what that has stored.
func (n *installation) upgradeFormer(t *testing.T) {
	n.upgrade(t, "the installation is upgraded from the former version", "test")
}

// upgrade changes the image of the root shard, which all components follow.
func (n *installation) upgrade(t *testing.T, name, tag string) {
	t.Helper()
	hosttest.During(t, n.users(t, hosttest.NoneFails), n.disturbance(t, name, func() {
		n.image(t, "rootshard/kcp", tag)
		for _, object := range n.components() {
			n.Kubectl(t, "wait", "--for=jsonpath={.status.image}=localhost/kcp:"+tag, object, "--timeout=8m")
		}
	}))
	images := n.Kubectl(t, "get", "pods", "--selector=app.kubernetes.io/component!=etcd",
		"--output=jsonpath={.items[*].spec.containers[0].image}")
	if got := sets.New(strings.Fields(images)...); len(got) != 1 || !got.Has("localhost/kcp:"+tag) {
		t.Errorf("pods run the images %v", sets.List(got))
	}
	n.inOrder(t)
	n.serves(t)
}

// components returns what runs kcp, in the order of an upgrade.
func (n *installation) components() []string {
	var components []string
	for _, part := range n.parts {
		if kind, _, _ := strings.Cut(part, "/"); sets.New("cacheserver", "rootshard", "shard", "frontproxy").Has(kind) {
			components = append(components, part)
		}
	}
	return components
}

// image changes the tag of a component's image.
func (n *installation) image(t *testing.T, component, tag string) {
	t.Helper()
	n.Kubectl(t, "patch", component, "--type=merge", `--patch={"spec":{"image":{"tag":"`+tag+`"}}}`)
}

// inOrder checks that the first pod of each component was replaced after the last one of the component before it.
func (n *installation) inOrder(t *testing.T) {
	t.Helper()
	before, last := "", time.Time{}
	for _, component := range n.components() {
		_, name, _ := strings.Cut(component, "/")
		var first, latest time.Time
		for created := range strings.FieldsSeq(n.Kubectl(t, "get", "pods", "--output=jsonpath={.items[*].metadata.creationTimestamp}",
			"--selector=app.kubernetes.io/component!=etcd,app.kubernetes.io/instance="+name)) {
			at, err := time.Parse(time.RFC3339, created)
			if err != nil {
				t.Fatal(err)
			}
			if first.IsZero() || at.Before(first) {
				first = at
			}
			if at.After(latest) {
				latest = at
			}
		}
		if first.IsZero() || first.Before(last) {
			t.Errorf("a pod of %s is from %v, and one of %s from %v", component, first, before, last)
		}
		before, last = component, latest
	}
}

// mix runs one component after the other with the former version, beside the current version of all others.
func (n *installation) mix(t *testing.T) {
	for _, component := range n.components() {
		n.image(t, component, "test") // otherwise, it follows the image of the root shard
	}
	n.Ready(t, n.parts...)
	var rows []hosttest.Disturbance
	for _, c := range []struct{ object, name string }{
		{"shard/east", "the shard east"}, {"rootshard/kcp", "the root shard"}, {"frontproxy/public", "the front proxy"},
	} {
		for _, change := range []struct{ tag, name string }{
			{hosttest.FormerTag, c.name + " runs the former version, and the others the current one"},
			{"test", c.name + " returns to the current version"},
		} {
			rows = append(rows, n.disturbance(t, change.name, func() {
				n.image(t, c.object, change.tag)
				n.Kubectl(t, "wait", "--for=jsonpath={.status.image}=localhost/kcp:"+change.tag, c.object, "--timeout=5m")
				n.Ready(t, n.parts...)
				n.uses(t)
			}))
		}
	}
	hosttest.During(t, n.users(t, hosttest.NoneFails), rows...)
	for _, component := range n.components() {
		if component != "rootshard/kcp" {
			n.Kubectl(t, "patch", component, "--type=merge", `--patch={"spec":{"image":null}}`)
		}
	}
	n.Ready(t, n.parts...)
	n.serves(t)
}

// uses creates a workspace on each shard, binds an API of another shard there, creates an object of it, and deletes the workspace.
func (n *installation) uses(t *testing.T) {
	t.Helper()
	for _, shard := range []string{"root", "east", "west"} {
		name := shard + "-mixed"
		onShard := strings.ReplaceAll(workspace, "NAME", shard)
		n.apply(t, "root", strings.Replace(onShard, `"metadata": {"name": "`+shard, `"metadata": {"name": "`+name, 1))
		n.kcp(t, "root", "wait", "--for=jsonpath={.status.phase}=Ready", "workspace/"+name, "--timeout=2m")
		n.apply(t, "root:"+name, binding)
		n.kcp(t, "root:"+name, "wait", "--for=jsonpath={.status.phase}=Bound", "apibinding/widgets", "--timeout=1m")
		n.apply(t, "root:"+name, widget)
		n.kcp(t, "root", "delete", "workspace", name, "--timeout=3m")
	}
	n.serves(t)
}
