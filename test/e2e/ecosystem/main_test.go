// Package ecosystem installs what people run, with the programs that they use, in logical clusters.
package ecosystem

import (
	"testing"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// server is shared by the tests of this package. Each of them has logical clusters of its own in it.
var server *kcptest.Server

func TestMain(m *testing.M) { kcptest.Main(m, &server) }
