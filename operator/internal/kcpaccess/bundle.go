package kcpaccess

import (
	"bytes"
	"encoding/pem"
	"errors"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Bundle builds a Secret with CAs: every certificate of parts, in PEM, without duplicates.
func Bundle(namespace, name string, labels map[string]string, parts ...[]byte) *corev1.Secret {
	var all bytes.Buffer
	seen := map[string]bool{}
	for _, part := range parts {
		for block, rest := pem.Decode(part); block != nil; block, rest = pem.Decode(rest) {
			if block.Type == "CERTIFICATE" && !seen[string(block.Bytes)] {
				seen[string(block.Bytes)] = true
				all.Write(pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes}))
			}
		}
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Type:       corev1.SecretTypeOpaque,
		Data:       map[string][]byte{corev1.TLSCertKey: all.Bytes()},
	}
}

// CheckAuthorities returns an error if content has no certificate.
func CheckAuthorities(content []byte) error {
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			return nil
		}
	}
	return errors.New("holds no certificate in PEM")
}
