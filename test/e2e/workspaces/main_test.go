// Package workspaces proves the life of workspaces: types, owners, steps of initialization and termination, deletion.
package workspaces

import (
	"testing"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

var server *kcptest.Server

func TestMain(m *testing.M) { kcptest.Main(m, &server) }
