package etcd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// scratch is removed when the process ends: an etcd that cannot stop ends the process if its directory is gone.
var scratch string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if scratch, err = os.MkdirTemp("", "etcd-test-"); err != nil {
			panic(err)
		}
		defer os.RemoveAll(scratch)
		return m.Run()
	}())
}

// written returns a directory in which an etcd has stopped after some writes.
func written(t *testing.T) string {
	t.Helper()
	directory, err := os.MkdirTemp(scratch, "")
	if err != nil {
		t.Fatal(err)
	}
	server, err := Start(t.Context(), Config{Directory: directory, WALSizeBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	client := server.Client()
	defer client.Close()
	for n := range 300 {
		if _, err := client.Put(t.Context(), fmt.Sprintf("/key/%d", n), strings.Repeat("x", 8<<10)); err != nil {
			t.Fatal(err)
		}
	}
	return directory
}

func TestTheErrorOfAStartNamesTheDamagedFile(t *testing.T) {
	database := func(directory string) string { return databaseFile(filepath.Join(directory, "data")) }
	log := func(directory string) string {
		files, err := filepath.Glob(filepath.Join(directory, "data", "member", "wal", "*.wal"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no log below %s: %v", directory, err)
		}
		return slices.Max(files)
	}
	overwrite := func(from, to float64) func(*testing.T, string) {
		return func(t *testing.T, file string) {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for i := int(from * float64(len(content))); i < int(to*float64(len(content))); i++ {
				content[i] = 0
			}
			if err := os.WriteFile(file, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	scramble := func(t *testing.T, file string) {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i := 4096; i < 8192; i++ {
			content[i] ^= 0x5a
		}
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cut := func(size int64) func(*testing.T, string) {
		return func(t *testing.T, file string) {
			if err := os.Truncate(file, size); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		file   func(string) string
		damage func(*testing.T, string)
	}{
		"a log with other bytes":             {log, scramble},
		"a log without a beginning":          {log, overwrite(0, 1)},
		"a log whose end is zero":            {log, overwrite(0.01, 1)},
		"a database of zeros":                {database, overwrite(0, 1)},
		"a database of which most is zero":   {database, overwrite(0.002, 1)},
		"a database that is cut off":         {database, cut(1 << 20)},
		"a database of which little is left": {database, cut(10 << 10)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			directory := written(t)
			c.damage(t, c.file(directory))
			began := time.Now()
			server, err := Start(t.Context(), Config{Directory: directory, WALSizeBytes: 1 << 20})
			if err == nil {
				server.Stop()
				t.Fatal("it starts")
			}
			t.Logf("after %s: %v", time.Since(began), err)
			if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), filepath.Dir(c.file(directory))) || !strings.Contains(err.Error(), remedy) {
				t.Error("the error has no damaged file or next step")
			}
			if strings.Contains(err.Error(), "\n") {
				t.Error("the error has more than one line")
			}
		})
	}
}
