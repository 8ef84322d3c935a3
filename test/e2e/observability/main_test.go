// Package observability tests that operators get the information that they need from a server, and that others get no more than
// permitted.
package observability

import (
	"testing"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// server is shared by the tests of this package. It logs verbosely, in JSON.
var server *kcptest.Server

func TestMain(m *testing.M) { kcptest.Main(m, &server, "--logging-format=json", "--v=5") }
