// Package definitions proves what the plugins do with CustomResourceDefinitions, with those that people run.
package definitions

import (
	"testing"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// server is shared by the tests of this package. Each of them has logical clusters of its own in it.
var server *kcptest.Server

func TestMain(m *testing.M) { kcptest.Main(m, &server) }
