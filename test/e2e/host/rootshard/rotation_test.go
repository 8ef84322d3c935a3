package rootshard

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kcplane/kcp/test/e2e/host/hosttest"
)

func (n *installed) rotateServiceAccounts(t *testing.T, client kubernetes.Interface, config *rest.Config) {
	const section = "The key of service accounts"
	hosttest.RotateServiceAccounts(t, []hosttest.Tenant{{Client: client, Config: config}},
		hosttest.Disturbance{Name: "the key of service accounts is rotated", By: func() { n.Follow(t, section, 0) }},
		hosttest.Disturbance{Name: "the former key of service accounts is accepted no more", By: func() { n.Follow(t, section, 1) }})
}

func (n *installed) rotateAuthorities(t *testing.T, first string) {
	const section = "Authorities"
	user := func(kubeconfig string) kubernetes.Interface { return n.Client(t, kubeconfig, "root:team") }
	n.Undisturbed(t, user(first), hosttest.Disturbance{Name: "every authority has a new key", By: func() { n.Follow(t, section, 0) }})
	second := n.Trusting(t, "admin-kubeconfig", 2)
	// Both are created again from the volumes, the CAs, and the former CAs that are still trusted.
	n.survives(
		t,
		second,
		"the EtcdCluster is deleted while two authorities are trusted",
		func() { n.Kubectl(t, "delete", theEtcd, "--timeout=3m") },
	)
	n.Undisturbed(t, user(second), hosttest.Disturbance{Name: "what the former authorities have signed is renewed", By: func() {
		n.Follow(t, "Leaf certificates", 0)
		n.Follow(t, section, 1)
	}})
	n.survives(t, second, "the RootShard is deleted when everything is renewed", func() {
		n.Kubectl(t, "delete", "rootshard/kcp", "--cascade=foreground", "--timeout=5m")
		n.Manifest(t, "managed.yaml")
	})
	third := n.Trusting(t, "admin-kubeconfig", 2)
	n.Undisturbed(
		t,
		user(third),
		hosttest.Disturbance{Name: "the former authorities are trusted no more", By: func() { n.Follow(t, section, 2) }},
	)
	fourth := n.Trusting(t, "admin-kubeconfig", 1)
	for what, test := range map[string]struct {
		kubeconfig string
		want       string // of the error
	}{
		"only trusts the former CA": {first, "certificate signed by unknown authority"}, "has a certificate of the former CA": {second, "Unauthorized"},
		"trusts both CAs": {third, ""}, "trusts the current CA": {fourth, ""},
	} {
		_, err := user(test.kubeconfig).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{Limit: 1})
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("a client that %s: got %v", what, err)
		}
	}
}

// survives deletes an object during a rotation. The test fails if a kubeconfig that trusts both CAs cannot use kcp when it is Ready
// again, if acknowledged data is lost, or if the rotation changes its phase.
func (n *installed) survives(t *testing.T, kubeconfig, name string, deletes func()) {
	t.Helper()
	phases := func() string {
		return n.Kubectl(t, "get", theEtcd, "rootshard/kcp",
			`--output=jsonpath={range .items[*]}{.kind}={range .status.conditions[?(@.type=="Rotating")]}{.status}/{.reason}{end} {end}`)
	}
	f := hosttest.StartTraffic(t, n.Client(t, kubeconfig, "root:team"))
	f.Take(t)
	f.Stop()
	before, begun := phases(), time.Now()
	deletes()
	n.Kubectl(t, "wait", "--for=create", theEtcd, "--timeout=2m")
	n.Ready(t, theEtcd, "rootshard/kcp", "kubeconfig/admin")
	f.Client = n.Client(t, kubeconfig, "root:team") // the address of the Service can change
	if lost := f.Lost(t); len(lost) > 0 {
		t.Errorf("%s: writes are lost: %v", name, lost)
	}
	if err := f.Write(t.Context()); err != nil {
		t.Errorf("%s: a write fails after everything is Ready: %v", name, err)
	}
	if after := phases(); after != before {
		t.Errorf("%s: the phase of the rotation was %s and is %s", name, before, after)
	}
	t.Logf("%s: ready after %.0f s, the rotation is %s", name, time.Since(begun).Seconds(), before)
}
