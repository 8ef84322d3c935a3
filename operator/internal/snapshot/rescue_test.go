package snapshot

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestWhatCannotStartIsNotRescued(t *testing.T) {
	volume := t.TempDir()
	survivor, program := filepath.Join(volume, "data"), filepath.Join(t.TempDir(), "etcd")
	for file, content := range map[string]string{filepath.Join(survivor, "member"): "damaged",
		program: "#!/bin/sh\necho the log is damaged\nexit 1\n"} {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	member := Member{Name: "x-1", PeerURL: peerURL, Token: "t", DataDirectory: filepath.Join(volume, "data-1")}
	if err := Rescue(t.Context(), program, survivor, member); err == nil || !strings.Contains(err.Error(), "the log is damaged") {
		t.Errorf("rescued: %v", err)
	}
	left, err := filepath.Glob(filepath.Join(volume, "*"))
	if err != nil || !slices.Equal(left, []string{survivor}) {
		t.Errorf("the volume has %v, %v", left, err)
	}

	if err := os.Mkdir(member.DataDirectory, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Rescue(t.Context(), program, survivor, member); err != nil {
		t.Errorf("a second attempt, after one that was done: %v", err)
	}
}
