// Package sharding tests an installation of several processes: a root shard, two more shards, a cache server and front proxies.
package sharding

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kcplane/kcp/test/e2e/kcptest"
	"github.com/kcplane/kcp/test/sharded"
)

// installation is shared by the tests that disturb no process. Each test has its own workspaces in it.
var installation *sharded.Installation

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "kcp-sharding-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if installation, err = sharded.Start(dir, options()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := installation.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

func options() sharded.Options {
	o := sharded.Options{Shards: 2, Cache: true, Proxies: 2, Distance: distance, Relays: distance > 0, Former: former}
	o.Users, o.ProxyUsers = sharded.TestUsers()
	return o
}

// former are the processes that run the version before: the value of KCP_FORMER, such as root,shard-2.
var former = strings.FieldsFunc(os.Getenv("KCP_FORMER"), func(r rune) bool { return r == ',' })

// distance is the time by which each round trip between two processes takes longer: the value of KCP_DELAY, such as 150ms.
var distance = parsedDistance(os.Getenv("KCP_DELAY"))

func parsedDistance(text string) time.Duration {
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		panic("KCP_DELAY: " + err.Error())
	}
	return d
}

// root returns the workspace root at the root shard.
func root() *kcptest.Cluster { return installation.Root().Server().Named("root") }

// shard returns a shard of the shared installation.
func shard(t *testing.T, name string) *sharded.Process {
	t.Helper()
	for _, s := range installation.Shards {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no shard is named %s", name)
	return nil
}
