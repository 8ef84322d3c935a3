// Package apis proves what APIs that are provided in one workspace and used in others need: here, the resources of the
// group apis.kcp.io themselves.
package apis

import (
	"testing"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// server is shared by the tests of this package. Each of them has logical clusters of its own in it.
var server *kcptest.Server

func TestMain(m *testing.M) { kcptest.Main(m, &server) }
