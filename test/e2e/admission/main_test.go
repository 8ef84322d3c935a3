// Package admission proves that webhooks, policies and quota of a logical cluster hold in it and nowhere else.
package admission

import (
	"testing"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// server is shared by the tests of this package. Each of them has logical clusters of its own in it.
var server *kcptest.Server

func TestMain(m *testing.M) { kcptest.Main(m, &server) }
