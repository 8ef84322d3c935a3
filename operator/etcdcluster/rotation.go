package etcdcluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/apply"
	"github.com/kcplane/kcp/operator/pki"
)

// rotation is how many former authorities are trusted, and which Certificates they have signed.
type rotation struct {
	former int
	renew  []string
}

// applyTrust tells members whom to trust. They read it when they start, so that pods are replaced when it changes; and when other
// authorities have signed what they show, since pods that were replaced are the proof that none goes on with what it had before.
func (s *scope) applyTrust(ctx context.Context) error {
	name := s.cluster.Name
	clients, err := s.readKeys(ctx, ClientIssuerName(name), corev1.TLSCertKey)
	if err != nil {
		return err
	}
	peers, err := s.readKeys(ctx, peerCAName(name), corev1.TLSCertKey)
	if err != nil {
		return err
	}
	held := &corev1.Secret{}
	if err := s.Get(ctx, client.ObjectKey{Namespace: s.cluster.Namespace, Name: TrustSecretName(name)}, held); client.IgnoreNotFound(err) != nil {
		return err
	}
	trusted, former, err := trust(s.cluster, clients, peers, held.Data)
	if err != nil {
		return err
	}
	trusted.UID = held.UID // one that is deleted meanwhile is not made again with what it held
	s.trusted, s.rotation.former = trusted.Data[TrustedClients], former
	sum := sha256.New()
	sum.Write(trusted.Data[TrustedClients])
	sum.Write(trusted.Data[trustedPeers])
	for _, leaf := range []struct {
		name  string
		by    *corev1.Secret
		shown bool
	}{
		{serverName(name), clients, true}, {peerName(name), peers, true}, {ClientSecretName(name), clients, false}, {operatorName(name), clients, false},
	} {
		secret, err := s.readKeys(ctx, leaf.name, corev1.TLSCertKey)
		if err != nil {
			return err
		}
		if !pki.SignedBy(secret.Data[corev1.TLSCertKey], leaf.by.Data[corev1.TLSCertKey]) {
			s.rotation.renew = append(s.rotation.renew, leaf.name)
		}
		if leaf.shown {
			sum.Write(pki.AuthorityKey(secret.Data[corev1.TLSCertKey]))
		}
	}
	s.authorities = hex.EncodeToString(sum.Sum(nil)[:8])
	return apply.All(ctx, s.Client, s.cluster, trusted)
}

// reportRotation tells how far it is, and what somebody has to do next.
func (s *scope) reportRotation() {
	reason, message := v1alpha1.RotatingRenewed, fmt.Sprintf("what former authorities have signed is accepted until this Secret is deleted: %s",
		TrustSecretName(s.cluster.Name))
	if len(s.rotation.renew) > 0 {
		reason, message = v1alpha1.RotatingRenewable, fmt.Sprintf("former authorities have signed what is to be renewed: Certificates %s",
			strings.Join(s.rotation.renew, ", "))
	}
	s.set(v1alpha1.ConditionRotating, s.rotation.former > 0, reason, message)
}
