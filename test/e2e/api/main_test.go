// Package api tests that a logical cluster handles requests as Kubernetes does.
package api

import (
	"testing"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// server is shared by the tests of this package. Each test has its own logical clusters in it.
var server *kcptest.Server

func TestMain(m *testing.M) { kcptest.Main(m, &server) }
