// Package workspaces tests the lifecycle of workspaces: types, owners, initialization and termination, deletion.
package workspaces

import (
	"testing"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

var server *kcptest.Server

func TestMain(m *testing.M) { kcptest.Main(m, &server) }
