package storage

import (
	"crypto/tls"
	"errors"
	"testing"

	"github.com/kcplane/kcp/server/internal/process/outbound"
)

func TestAnEtcdClientKeepsItsCertificateWhileItsFilesAreBroken(t *testing.T) {
	first, second, broken := &tls.Certificate{}, &tls.Certificate{}, errors.New("broken")
	var file *tls.Certificate
	config := &tls.Config{GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if file == nil {
			return nil, broken
		}
		return file, nil
	}}
	outbound.KeepCertificate(config)
	for _, step := range []struct {
		when       string
		file, want *tls.Certificate
		err        error
	}{
		{"never readable", nil, nil, broken},
		{"read", first, first, nil},
		{"broken", nil, first, nil},
		{"renewed", second, second, nil},
	} {
		file = step.file
		if got, err := config.GetClientCertificate(nil); got != step.want || !errors.Is(err, step.err) {
			t.Errorf("%s: %p, %v; want %p, %v", step.when, got, err, step.want, step.err)
		}
	}
}
