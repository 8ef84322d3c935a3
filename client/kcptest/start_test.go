package kcptest

import (
	"strings"
	"testing"
)

func TestAServerThatDoesNotStartShowsItsLog(t *testing.T) {
	server, err := Start(t.Context(), Options{Arguments: []string{"--no-such-flag"}})
	if err == nil {
		_ = server.Stop()
		t.Fatal("it has started")
	}
	if !strings.Contains(err.Error(), "unknown flag: --no-such-flag") {
		t.Error(err)
	}
}

func TestAMissingProgramIsNamed(t *testing.T) {
	t.Setenv("KCP_BIN", t.TempDir())
	if _, err := Start(t.Context(), Options{}); err == nil || !strings.Contains(err.Error(), "finding kcp: stat ") {
		t.Errorf("a directory without kcp: %v", err)
	}
	t.Setenv("KCP_BIN", "")
	t.Setenv("PATH", t.TempDir())
	if _, err := Start(t.Context(), Options{}); err == nil || !strings.Contains(err.Error(), "set the environment variable KCP_BIN") {
		t.Errorf("no kcp in PATH: %v", err)
	}
}
