// Package observability proves that operators learn from a server what they need, and nobody learns more than they may.
package observability

import (
	"testing"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// server is shared by the tests of this package. It logs much, and in JSON.
var server *kcptest.Server

func TestMain(m *testing.M) { kcptest.Main(m, &server, "--logging-format=json", "--v=5") }
