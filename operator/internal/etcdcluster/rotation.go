package etcdcluster

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/apply"
	"github.com/kcplane/kcp/operator/internal/pki"
)

// rotation is the number of former authorities that are trusted, and the Certificates that they have signed.
type rotation struct {
	former int
	renew  []string
}

// leaves returns the leaf certificates of a cluster, by the key of the trust Secret that verifies them.
func leaves(name string) map[string][]string {
	return map[string][]string{
		TrustedClients: {ClientSecretName(name), operatorName(name), serverName(name)}, trustedPeers: {peerName(name)},
	}
}

// applyTrust applies the Secret with the trusted authorities. Members read it when they start, so pods are replaced when it changes. Pods
// are also replaced when another authority has signed the certificates of members, because only that proves that no member still uses the
// previous certificate. While an authority is issued again, the trusted authorities do not change.
func (s *scope) applyTrust(ctx context.Context) error {
	name := s.cluster.Name
	held := &corev1.Secret{}
	if err := s.Get(ctx, client.ObjectKey{Namespace: s.cluster.Namespace, Name: TrustSecretName(name)},
		held); client.IgnoreNotFound(err) != nil {
		return err
	}
	authorities, missing := map[string]*corev1.Secret{}, error(nil)
	for key, authority := range map[string]string{TrustedClients: ClientIssuerName(name), trustedPeers: peerCAName(name)} {
		secret, err := s.readKeys(ctx, authority, corev1.TLSCertKey)
		if err != nil {
			if missing = err; retriable(err) != nil {
				return err
			}
		}
		authorities[key] = secret
	}
	trusted := held
	if missing == nil {
		var err error
		if trusted, err = s.trust(ctx, authorities, held); err != nil {
			return err
		}
	} else if len(held.Data[TrustedClients]) == 0 || len(held.Data[trustedPeers]) == 0 {
		return missing
	}
	s.certificatesErr = cmp.Or(s.certificatesErr, missing)
	s.trusted = trusted.Data[TrustedClients]
	sum := sha256.New()
	sum.Write(trusted.Data[TrustedClients])
	sum.Write(trusted.Data[trustedPeers])
	for _, leaf := range []string{serverName(name), peerName(name)} {
		if secret := s.leaves[leaf]; secret != nil {
			sum.Write(pki.AuthorityKey(secret.Data[corev1.TLSCertKey]))
		}
	}
	s.authorities = hex.EncodeToString(sum.Sum(nil)[:8])
	return nil
}

// trust applies the Secret with the trusted authorities, and verifies all certificates with it.
func (s *scope) trust(ctx context.Context, authorities map[string]*corev1.Secret, held *corev1.Secret) (*corev1.Secret, error) {
	signers := map[string][]byte{}
	for key, names := range leaves(s.cluster.Name) {
		for _, leaf := range names {
			secret, by := s.leaves[leaf], authorities[key]
			if secret != nil && !pki.SignedBy(secret.Data[corev1.TLSCertKey], by.Data[corev1.TLSCertKey]) {
				s.rotation.renew, signers[key] = append(s.rotation.renew, leaf), append(signers[key], pki.Signer(secret, by.Name)...)
			}
		}
	}
	slices.Sort(s.rotation.renew)
	trusted, former, err := trust(s.cluster, authorities, held.Data, signers)
	if err != nil {
		return nil, err
	}
	trusted.UID, s.rotation.former = held.UID, former // a Secret that was deleted in between must not be created again with its old content
	if err := apply.Keep(ctx, s.Client, s.cluster, trusted); err != nil {
		return nil, err
	}
	for key, names := range leaves(s.cluster.Name) {
		for _, leaf := range names {
			if secret := s.leaves[leaf]; secret == nil || pki.TrustedBy(secret.Data[corev1.TLSCertKey], trusted.Data[key]) {
				continue
			}
			live := &certmanager.Certificate{}
			if err := s.Get(ctx, client.ObjectKey{Namespace: s.cluster.Namespace, Name: leaf}, live); apierrors.IsNotFound(err) {
				continue // it is created again, and then issued
			} else if err != nil {
				return nil, err
			}
			err := pki.Distrusted(ctx, s.Client, live, authorities[key].Name, "")
			if s.certificatesErr = cmp.Or(s.certificatesErr, err); retriable(err) != nil {
				return nil, err
			}
		}
	}
	return trusted, nil
}

// reportRotation reports the progress of a rotation, and the next step of the user.
func (s *scope) reportRotation() {
	reason, message := v1alpha1.RotatingRenewed,
		fmt.Sprintf("certificates of former authorities are accepted until this Secret is deleted: %s",
			TrustSecretName(s.cluster.Name))
	if len(s.rotation.renew) > 0 {
		reason, message = v1alpha1.RotatingRenewable, fmt.Sprintf("renew these Certificates, which former authorities have signed: %s",
			strings.Join(s.rotation.renew, ", "))
	}
	s.set(v1alpha1.ConditionRotating, s.rotation.former > 0, reason, message)
}
