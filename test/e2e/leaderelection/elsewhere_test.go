package leaderelection

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// The other server has no event of the workspace when it gets the request. It must read the workspace from etcd.
func TestNewWorkspaceIsServedByOtherServersImmediately(t *testing.T) {
	port, err := kcptest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	here := start(t, fmt.Sprintf("--embedded-etcd-client-port=%d", port))
	gate, address := newGate(t, fmt.Sprintf("127.0.0.1:%d", port))
	// This delay is not limited: the other server does not close connections while it has no events.
	there := start(t, "--etcd-servers=http://"+address, "--run-controllers=false", "--authorization-max-staleness=0")
	organization := here.Organization(t, kcptest.Alice)
	for name, read := range map[string]func(path, cluster string) (used, key string){
		"by-path":    func(path, _ string) (string, string) { return path, "by-path" },
		"by-cluster": func(_, cluster string) (string, string) { return cluster, cluster },
	} {
		t.Run(name, func(t *testing.T) {
			gate.shut()
			workspace := organization.CreateWorkspace(t, kcptest.Alice, kcptest.Workspace(name, "", ""))
			used, key := read(workspace.Name, organization.GetWorkspace(t, name).Spec.Cluster)
			gate.openAtReadOf(key)
			code, body := there.Get(t, kcptest.Alice, "/clusters/"+used+"/api/v1/namespaces/default")
			if code != http.StatusOK {
				t.Errorf("another server, immediately after the workspace became ready: got %d %s", code, body)
			}
			if !gate.wasRead() {
				t.Error("the other server did not read from etcd")
			}
		})
	}
}
