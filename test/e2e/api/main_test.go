// Package api proves that requests to a logical cluster are answered as Kubernetes answers them.
package api

import (
	"testing"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// server is shared by the tests of this package. Each of them has logical clusters of its own in it.
var server *kcptest.Server

func TestMain(m *testing.M) { kcptest.Main(m, &server) }
