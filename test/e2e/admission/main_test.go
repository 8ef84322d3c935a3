// Package admission tests the rules that clusters set for writes: webhooks, policies and quotas of one cluster, and that
// none applies in another.
package admission

import (
	"testing"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

var server *kcptest.Server

func TestMain(m *testing.M) { kcptest.Main(m, &server) }
