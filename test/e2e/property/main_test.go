// Package property checks that no data crosses from one logical cluster into another: clients with many identities concurrently perform
// random operations of every verb in many clusters, which use the same names. Each response, event and error is compared with a model of
// its cluster.
package property

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// server is shared by the tests of this package. Each test has its own logical clusters in it.
var server *kcptest.Server

func TestMain(m *testing.M) { kcptest.Main(m, &server) }

// number returns the value of an environment variable, or fallback if it is not set.
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

// seed returns the seed of a test: KCP_SEED, or a new one. It logs the seed, because with the same seed every actor repeats the same
// operations.
func seed(t *testing.T) uint64 {
	t.Helper()
	s := number(t, "KCP_SEED", rand.Uint64()>>16)
	t.Logf("KCP_SEED=%d repeats these operations", s)
	return s
}
