// Package vanilla runs the API server of Kubernetes with an etcd, for tests that compare with it or need definitions and roles as
// a cluster has them.
package vanilla

import (
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// Start runs the programs of an environment, which kcptest builds, and installs its definitions. The caller stops the environment.
func Start(environment *envtest.Environment) (*rest.Config, error) {
	apiserver, err := kcptest.Binary("kube-apiserver")
	if err != nil {
		return nil, err
	}
	etcd, err := kcptest.Binary("etcd")
	if err != nil {
		return nil, err
	}
	environment.ControlPlaneStartTimeout, environment.ControlPlaneStopTimeout = 2*time.Minute, time.Minute
	environment.CRDInstallOptions.MaxTime = 2 * time.Minute
	environment.ControlPlane.GetAPIServer().Path = apiserver
	environment.ControlPlane.Etcd = &envtest.Etcd{Path: etcd}
	return environment.Start()
}
