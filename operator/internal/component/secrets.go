package component

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/conditions"
	"github.com/kcplane/kcp/operator/internal/kcpaccess"
	"github.com/kcplane/kcp/operator/internal/settings"
)

// Named returns the CAs in the Secret that the spec names, or nil if it names none.
func (s *Scope) Named(ctx context.Context, field string, ref *v1alpha1.LocalReference) ([]byte, error) {
	if ref == nil {
		return nil, nil
	}
	data, err := s.Read(ctx, settings.Reference{Field: field, Secret: ref.Name, Keys: []string{corev1.TLSCertKey}})
	if err != nil {
		return nil, err
	}
	if err := kcpaccess.CheckAuthorities(data[corev1.TLSCertKey]); err != nil {
		return nil, conditions.Stall("NoCertificate", "spec.%s: tls.crt of Secret %s %v", field, ref.Name, err)
	}
	return data[corev1.TLSCertKey], nil
}

// Issued returns the Secret of a certificate that is ready.
func (s *Scope) Issued(ctx context.Context, name string) (map[string][]byte, error) {
	data, err := s.secretData(ctx, name)
	if err == nil && len(data[corev1.TLSCertKey]) == 0 {
		return nil, conditions.Wait("SecretNotReady", "waiting for cert-manager to write Secret %s", name)
	}
	return data, err
}
