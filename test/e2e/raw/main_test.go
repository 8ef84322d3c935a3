// Package raw sends the same raw requests to a workspace and to a vanilla kube-apiserver, because clients depend on every detail of the
// answers. The requests are in testdata, in the order in which they are sent. Each one that is answered differently has a reason, and
// docs/differences.md shows both; UPDATE=1 writes that page.
package raw

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

var (
	server  *kcptest.Server
	vanilla *rest.Config
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	apiserver, err := kcptest.Binary("kube-apiserver")
	if err != nil {
		return 1, err
	}
	etcd, err := kcptest.Binary("etcd")
	if err != nil {
		return 1, err
	}
	dir, err := os.MkdirTemp("", "kcp-e2e-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	if server, err = kcptest.Start(dir); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, server.Stop(), server.Panics()) }()

	environment := &envtest.Environment{ControlPlaneStartTimeout: 2 * time.Minute, ControlPlaneStopTimeout: time.Minute}
	environment.ControlPlane.Etcd = &envtest.Etcd{Path: etcd}
	environment.ControlPlane.APIServer = &envtest.APIServer{Path: apiserver}
	environment.ControlPlane.APIServer.Configure().Append("token-auth-file", filepath.Join(dir, "tokens.csv"))
	environment.ControlPlane.APIServer.Configure().Set("service-account-issuer", "https://kcp.default.svc")
	if vanilla, err = environment.Start(); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, environment.Stop()) }()
	return m.Run(), nil
}
