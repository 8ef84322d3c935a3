package authentication

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"path/filepath"
	"testing"

	"k8s.io/client-go/util/keyutil"

	"github.com/kcplane/kcp/server/logicalcluster"
)

func newSigners(t *testing.T) *Signers {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	text, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key")
	if err := keyutil.WriteKey(file, text); err != nil {
		t.Fatal(err)
	}
	signers, err := NewSigners([]string{file})
	if err != nil {
		t.Fatal(err)
	}
	return signers
}

func TestKeysOfFormerShardsCountInTheMovedClusterOnly(t *testing.T) {
	origin, destination := newSigners(t), newSigners(t)
	moved, err := origin.AddTo("")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := origin.AddTo(moved); err != nil || again != moved {
		t.Errorf("the keys are added twice: %v", err)
	}
	destination.Former = func(cluster logicalcluster.Name) string {
		return map[logicalcluster.Name]string{"moved": moved}[cluster]
	}
	id := origin.GetPublicKeys(t.Context(), "")[0].KeyID
	has := func(ctx context.Context) bool {
		for _, key := range destination.GetPublicKeys(ctx, "") {
			if key.KeyID == id {
				return true
			}
		}
		return false
	}
	for cluster, want := range map[logicalcluster.Name]bool{"moved": true, "other": false} {
		if got := has(logicalcluster.WithName(t.Context(), cluster)); got != want {
			t.Errorf("cluster %s: got %t", cluster, got)
		}
	}
	if has(t.Context()) {
		t.Error("the key counts without a cluster")
	}
}
