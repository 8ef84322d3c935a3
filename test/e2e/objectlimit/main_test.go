// Package objectlimit proves that a logical cluster holds no more objects than it may, and that quotas count all of one.
package objectlimit

import (
	"fmt"
	"testing"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// standard is the limit of clusters that have none of their own.
const standard = 40

var server *kcptest.Server

func TestMain(m *testing.M) {
	kcptest.Main(m, &server, fmt.Sprintf("--logical-cluster-total-object-limit=%d", standard), "--logical-cluster-object-count-scan-interval=2s")
}
