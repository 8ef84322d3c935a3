// Package property looks for anything that crosses from one logical cluster into another: clients of many identities
// perform random operations of every verb in many clusters at once, in which all names are equal, and each answer, event
// and error is compared with a model of the one cluster that it is about.
package property

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// server is shared by the tests of this package. Each of them has logical clusters of its own in it.
var server *kcptest.Server

func TestMain(m *testing.M) { kcptest.Main(m, &server) }

// number returns what an environment variable says, or fallback when it is not set.
func number(t *testing.T, variable string, fallback uint64) uint64 {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return fallback
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

// seed returns the seed of a test: that of KCP_SEED, or a new one. It is printed, because the same seed makes every actor
// perform the same operations again.
func seed(t *testing.T) uint64 {
	t.Helper()
	s := number(t, "KCP_SEED", rand.Uint64()>>16)
	t.Logf("KCP_SEED=%d performs these operations again", s)
	return s
}
