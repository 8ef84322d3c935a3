// Package encryption encrypts the Secrets that are stored with snapshots, so that only holders of the key can read them.
package encryption

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/pem"
	"errors"
	"fmt"
)

// MinKeySize is the smallest size of a key, in bytes.
const MinKeySize = 32

const saltSize = 32

// kind is the PEM type of encrypted content. It must not change, because stored files contain it.
const kind = "KCP SEALED V1"

// Encrypt encrypts and authenticates content with AES-256-GCM. Each call derives a separate key from the given key and a random salt. The
// result is PEM text.
func Encrypt(key, content []byte) ([]byte, error) {
	salt := make([]byte, saltSize)
	rand.Read(salt)
	box, err := box(key, salt)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: box.Seal(salt, nil, content, []byte(kind))}), nil
}

// Decrypt decrypts the result of Encrypt.
func Decrypt(key, encrypted []byte) ([]byte, error) {
	block, _ := pem.Decode(encrypted)
	if block == nil || block.Type != kind || len(block.Bytes) < saltSize {
		return nil, errors.New("decrypting: the content was not encrypted by the operator")
	}
	box, err := box(key, block.Bytes[:saltSize])
	if err != nil {
		return nil, err
	}
	content, err := box.Open(nil, nil, block.Bytes[saltSize:], []byte(kind))
	if err != nil {
		return nil, errors.New("decrypting: the content was encrypted with another key, or was changed afterwards")
	}
	return content, nil
}

func box(key, salt []byte) (cipher.AEAD, error) {
	if len(key) < MinKeySize {
		return nil, fmt.Errorf("encryption key has %d bytes; at least %d random bytes are required", len(key), MinKeySize)
	}
	own, err := hkdf.Key(sha256.New, key, salt, kind, 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(own)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}
