package server

import (
	"context"
	"strings"
	"testing"

	"github.com/kcplane/kcp/server/internal/shards"
)

// records are in memory.
type records map[string]string

func (r records) Record(_ context.Context, name string) (string, error) { return r[name], nil }
func (r records) SetRecord(context.Context, string, string) error       { return nil }

func TestAServerWithoutTheOptionsOfAShardRefusesTheStoreOfAShard(t *testing.T) {
	if err := refuseShard(t.Context(), records{}); err != nil {
		t.Errorf("the store of a single shard is refused: %v", err)
	}
	err := refuseShard(t.Context(), records{shards.InstallationRecord: "a-1"})
	if err == nil || !strings.Contains(err.Error(), "installation a-1") {
		t.Errorf("the store of a shard is accepted: %v", err)
	}
}
