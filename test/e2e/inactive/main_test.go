// Package inactive tests that a logical cluster can be taken out of service and put back.
package inactive

import (
	"testing"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// server is shared by the tests of this package. Each test has its own logical clusters in it.
var server *kcptest.Server

func TestMain(m *testing.M) { kcptest.Main(m, &server) }
