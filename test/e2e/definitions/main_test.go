// Package definitions tests the commands of the plugin for CustomResourceDefinitions, with the definitions of widely used projects.
package definitions

import (
	"testing"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// server is shared by the tests of this package. Each test has its own logical clusters in it.
var server *kcptest.Server

func TestMain(m *testing.M) { kcptest.Main(m, &server) }
