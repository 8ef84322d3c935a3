package encryption_test

import (
	"bytes"
	"encoding/pem"
	"strings"
	"testing"

	"github.com/kcplane/kcp/operator/internal/encryption"
)

func TestEncryptedContentIsReadWithItsKeyOnly(t *testing.T) {
	key, other := bytes.Repeat([]byte("k"), encryption.MinKeySize), bytes.Repeat([]byte("o"), encryption.MinKeySize)
	content := []byte("the key of service accounts")
	first, err := encryption.Encrypt(key, content)
	if err != nil {
		t.Fatal(err)
	}
	second, err := encryption.Encrypt(key, content)
	if err != nil || bytes.Equal(first, second) || bytes.Contains(first, content) {
		t.Errorf("it is encrypted as %q (%v)", first, err)
	}
	if got, err := encryption.Decrypt(key, first); err != nil || !bytes.Equal(got, content) {
		t.Errorf("read is %q (%v)", got, err)
	}
	block, _ := pem.Decode(first)
	block.Bytes[len(block.Bytes)-1] ^= 1
	changed := pem.EncodeToMemory(block)
	for name, test := range map[string]struct {
		key, content []byte
		want         string
	}{
		"another key": {other, first, "another key"}, "what was changed": {key, changed, "was changed"},
		"a part of it": {key, first[:20], "was not encrypted by the operator"}, "something else": {key, []byte("{}"), "not encrypted by the operator"},
		"a key that is too short": {key[:16], first, "encryption key has 16 bytes"},
	} {
		if _, err := encryption.Decrypt(test.key, test.content); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := encryption.Encrypt([]byte("password"), content); err == nil {
		t.Error("it is encrypted with a password")
	}
}
