package workspaces

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// The first requests to a workspace create its default objects, while others arrive at the same time.
func TestAllOfTheFirstRequestsAreServed(t *testing.T) {
	t.Parallel()
	org := server.Organization(t, kcptest.Alice)
	workspaces := org.Dynamic(t, kcptest.Alice).Resource(kcptest.Workspaces)
	paths := []string{
		"/api/v1/namespaces/default/configmaps/kube-root-ca.crt", "/apis/topology.kcp.io/v1alpha1/partitions", "/apis/tenancy.kcp.io/v1alpha1/workspaces",
		"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/workspace-admin", "/apis/apis.kcp.io/v1alpha2/apibindings",
	}
	for i := range 10 {
		name := fmt.Sprint("first-", i)
		if _, err := workspaces.Create(kcptest.Context(t), kcptest.Workspace(name, "", ""), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		var requests sync.WaitGroup
		for client := range 10 {
			requests.Go(func() {
				for n := range 3 {
					path := paths[(client+n)%len(paths)]
					code, answer := server.Get(t, kcptest.Alice, "/clusters/"+org.Name+":"+name+path)
					if code != http.StatusOK {
						t.Errorf("%s of a new workspace: %d %s", path, code, answer)
					}
				}
			})
		}
		requests.Wait()
	}
}
