// Package objectlimit tests the limits for objects and requests of a logical cluster, and quotas for whole clusters.
package objectlimit

import (
	"fmt"
	"testing"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// standard is the default limit of clusters.
const standard = 40

var server *kcptest.Server

func TestMain(m *testing.M) {
	kcptest.Main(m, &server, fmt.Sprintf("--logical-cluster-total-object-limit=%d", standard), "--logical-cluster-object-count-scan-interval=2s")
}
