package leaderelection

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

func TestWorkspacesAreUsedThroughAnotherServerAtOnce(t *testing.T) {
	port, err := kcptest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	here := start(t, fmt.Sprintf("--embedded-etcd-client-port=%d", port))
	there := start(t, fmt.Sprintf("--etcd-servers=http://127.0.0.1:%d", port), "--run-controllers=false")
	organization := here.Organization(t, kcptest.Alice)
	client := organization.Dynamic(t, kcptest.Alice).Resource(kcptest.Workspaces)
	ctx := kcptest.Context(t)
	// isReady asks as fast as it can, because the other server then has the least time to see the events of the workspace.
	isReady := func(name string) bool {
		for ctx.Err() == nil {
			workspace := tenancyv1alpha1.Workspace{}
			_, body := here.Get(t, kcptest.Alice, "/clusters/"+organization.Name+"/apis/tenancy.kcp.io/v1alpha1/workspaces/"+name)
			if err := json.Unmarshal([]byte(body), &workspace); err != nil {
				t.Errorf("workspace %s: %v: %s", name, err, body)
				return false
			}
			if workspace.Status.Phase == "Ready" {
				return true
			}
		}
		t.Errorf("workspace %s does not become ready", name)
		return false
	}
	var creating sync.WaitGroup
	for worker := range 10 {
		creating.Go(func() {
			for i := range 5 {
				name := fmt.Sprintf("ws-%d-%d", worker, i)
				if _, err := client.Create(ctx, kcptest.Workspace(name, "", ""), metav1.CreateOptions{}); err != nil {
					t.Errorf("creating workspace %s: %v", name, err)
					return
				}
				if !isReady(name) {
					return
				}
				code, body := there.Get(t, kcptest.Alice, "/clusters/"+organization.Name+":"+name+"/api/v1/namespaces/default")
				if code != http.StatusOK {
					t.Errorf("workspace %s, at another server right after it became ready: %d %s", name, code, body)
				}
			}
		})
	}
	creating.Wait()
}
