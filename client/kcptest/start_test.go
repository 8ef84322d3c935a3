package kcptest

import (
	"strings"
	"testing"
)

func TestErrorOfStartIncludesLog(t *testing.T) {
	server, err := Start(t.Context(), Options{Arguments: []string{"--no-such-flag"}})
	if err == nil {
		_ = server.Stop()
		t.Fatal("started a server with an unknown flag")
	}
	if !strings.Contains(err.Error(), "unknown flag: --no-such-flag") {
		t.Error(err)
	}
}

func TestErrorOfStartNamesMissingProgram(t *testing.T) {
	t.Setenv("KCP_BIN", t.TempDir())
	if _, err := Start(t.Context(), Options{}); err == nil || !strings.Contains(err.Error(), "finding kcp: stat ") {
		t.Errorf("KCP_BIN is a directory without kcp: got error %v", err)
	}
	t.Setenv("KCP_BIN", "")
	t.Setenv("PATH", t.TempDir())
	if _, err := Start(t.Context(), Options{}); err == nil || !strings.Contains(err.Error(), "set the environment variable KCP_BIN") {
		t.Errorf("kcp is not in PATH: got error %v", err)
	}
}
