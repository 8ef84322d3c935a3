package snapshot

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kcplane/kcp/operator/internal/retention"
)

func TestSecretsComeAndGoWithTheirSnapshots(t *testing.T) {
	content := []byte("sealed")
	file := filepath.Join(t.TempDir(), "sealed")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, store := range map[string]Store{"directory": Directory(t.TempDir()), "bucket": bucket(t)} {
		t.Run(name, func(t *testing.T) {
			endpoint := etcd(t, filepath.Join(t.TempDir(), "data"), peerURL)
			var kept []string
			for n, s := range []Store{WithSecrets(store, file), store, WithSecrets(store, file), store} {
				at := time.Date(2031, 1, 1, n, 0, 0, 0, time.UTC)
				taken, err := Save(t.Context(), clientv3.Config{Endpoints: []string{endpoint}}, s, "x", retention.Policy{Last: 2}, func() time.Time { return at })
				if err != nil {
					t.Fatal(err)
				}
				kept = append(kept, taken.Key)
			}
			want := []string{kept[2], kept[2] + ".secrets", kept[3]}
			if stored, err := store.List(t.Context(), "x/"); err != nil || !slices.Equal(stored, want) {
				t.Errorf("%v, %v is stored, not %v", stored, err, want)
			}
			if got, err := Secrets(t.Context(), store, kept[2]); err != nil || !bytes.Equal(got, content) {
				t.Errorf("read are %q (%v)", got, err)
			}
			if _, err := Secrets(t.Context(), store, kept[3]); err == nil {
				t.Error("a snapshot without Secrets has some")
			}
		})
	}
}
