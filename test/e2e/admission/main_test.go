// Package admission tests that webhooks, policies and quotas of a cluster apply to writes in this cluster, and in no other.
package admission

import (
	"testing"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

var server *kcptest.Server

func TestMain(m *testing.M) { kcptest.Main(m, &server) }
