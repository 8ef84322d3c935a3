package rootshard

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kcplane/kcp/test/e2e/host/hosttest"
)

// store is a volume for snapshots, with the content of another one.
const store = `
apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s}
spec:
  accessModes: [ReadWriteOnce]
  capacity: {storage: 64Mi}
  persistentVolumeReclaimPolicy: Retain
  storageClassName: ""
  hostPath: {path: %[2]s}
---
` + snapshots + `
  storageClassName: ""
  volumeName: %[1]s
`

// moved creates another kcp from the Secrets and a snapshot, as docs/operations.md describes, and uses it with a kubeconfig of the first
// one.
func (n *installed) moved(t *testing.T, kubeconfig string, f *hosttest.Traffic, replace []string) {
	t.Helper()
	kept := filepath.Join(t.TempDir(), "kcp-secrets.json")
	n.Follow(t, "The Secrets", 0, "kcp-secrets.json", kept)
	volume := n.Kubectl(t, "get", "pvc", "snapshots", "--output=jsonpath={.spec.volumeName}")
	directory := n.Kubectl(t, "get", "pv", volume, "--output=jsonpath={.spec.hostPath.path}")

	begun := time.Now()
	other := namespace(t)
	t.Cleanup(func() {
		if err := other.Remove(); err != nil {
			t.Error(err)
		}
	})
	other.Kubectl(t, "apply", "--filename="+kept)
	other.Apply(t, fmt.Sprintf(store, other.Name, directory))
	manifest, err := os.ReadFile("testdata/managed.yaml")
	if err != nil {
		t.Fatal(err)
	}
	key := replace[1]
	other.Apply(t, strings.Replace(string(manifest), "replicas: 3",
		"replicas: 1\n      restore: {key: "+key+", store: {volume: {claimName: snapshots}}}", 1))
	other.Ready(t, "rootshard/kcp", "kubeconfig/admin")
	there := &hosttest.Traffic{Client: other.Client(t, kubeconfig, "root:team"), Acknowledged: f.Acknowledged}
	lost := there.Lost(t)
	t.Logf("a snapshot is restored into a new cluster within %.0f s: %d objects, %d lost", time.Since(begun).Seconds(), len(f.Acknowledged), len(lost))
	other.Kubectl(t, "delete", "pv", other.Name, "--wait=false")
	if len(lost) > 0 {
		t.Errorf("objects of the snapshot are lost in the new cluster: %v", lost)
	}
}
