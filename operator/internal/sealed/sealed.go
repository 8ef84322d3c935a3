// Package sealed keeps what is stored from whoever can read the store but has not the key.
package sealed

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

// ShortestKey is how many bytes a key has at the least.
const ShortestKey = 32

const saltSize = 32

// kind tells how content was sealed.
const kind = "KCP SEALED V1"

// Seal encrypts content, and makes it known if it is changed: AES-256-GCM, with a key of its own for each content. The result is
// text, as PEM.
func Seal(key, content []byte) ([]byte, error) {
	salt := make([]byte, saltSize)
	rand.Read(salt)
	box, err := box(key, salt)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: box.Seal(salt, nil, content, []byte(kind))}), nil
}

// Open is the reverse of Seal.
func Open(key, sealed []byte) ([]byte, error) {
	block, _ := pem.Decode(sealed)
	if block == nil || block.Type != kind || len(block.Bytes) < saltSize {
		return nil, errors.New("the content is not encrypted by the operator")
	}
	box, err := box(key, block.Bytes[:saltSize])
	if err != nil {
		return nil, err
	}
	content, err := box.Open(nil, nil, block.Bytes[saltSize:], []byte(kind))
	if err != nil {
		return nil, errors.New("decrypting: the content was encrypted with another key, or was changed since")
	}
	return content, nil
}

func box(key, salt []byte) (cipher.AEAD, error) {
	if len(key) < ShortestKey {
		return nil, fmt.Errorf("encryption key has %d bytes; at least %d random bytes are required", len(key), ShortestKey)
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
