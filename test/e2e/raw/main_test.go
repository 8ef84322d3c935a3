// Package raw sends the same raw requests to a workspace and to a vanilla kube-apiserver, because clients depend on every detail of the
// responses. The requests are in testdata, in the order in which they are sent. Each request with different responses must have a reason.
// docs/differences.md lists the differences and the reasons; UPDATE=1 updates that page.
package raw

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/kcplane/kcp/test/e2e/kcptest"
	"github.com/kcplane/kcp/test/e2e/vanilla"
)

var (
	server *kcptest.Server
	host   *rest.Config
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
	dir, err := os.MkdirTemp("", "kcp-e2e-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	if server, err = kcptest.Start(dir); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, server.Stop(), server.Panics()) }()

	environment := &envtest.Environment{}
	environment.ControlPlane.GetAPIServer().Configure().Append("token-auth-file", filepath.Join(dir, "tokens.csv")).
		Set("service-account-issuer", "https://kcp.default.svc")
	if host, err = vanilla.Start(environment); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, environment.Stop()) }()
	return m.Run(), nil
}
