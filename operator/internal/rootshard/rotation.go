package rootshard

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/apply"
	"github.com/kcplane/kcp/operator/internal/conditions"
	"github.com/kcplane/kcp/operator/internal/kcpaccess"
	"github.com/kcplane/kcp/operator/internal/pki"
	"github.com/kcplane/kcp/operator/internal/shard"
	"github.com/kcplane/kcp/operator/internal/workload"
)

// ownAuthorities is the key in a bundle with the CAs of the RootShard itself, the current one first.
const ownAuthorities = "authorities.crt"

// rotation describes the former keys that are accepted. It is computed in each reconciliation: Secrets hold the former keys until a user
// deletes them.
type rotation struct {
	kept    []string // Secrets with former keys
	renew   []string // Certificates that former authorities have signed
	waiting bool     // for pods to accept a new key, which does not sign yet
}

// trusted builds a bundle: the RootShard's own CA, the former ones with other keys, and those that the spec names. A former CA is trusted
// until its bundle is deleted, and in any case while a certificate that it signed is in use.
func (s *scope) trusted(ctx context.Context, own, bundle, field string, further *v1alpha1.LocalReference) (*corev1.Secret, error) {
	authority, err := s.issued(ctx, own)
	if err != nil {
		return nil, err
	}
	held, err := s.secret(ctx, bundle)
	if err != nil {
		return nil, err
	}
	before := held.Data[ownAuthorities]
	_, former := pki.Trusted(authority[corev1.TLSCertKey], before)
	signers, renew, err := s.signed(ctx, own, authority[corev1.TLSCertKey], former > 0 || len(before) == 0)
	if err != nil {
		return nil, err
	}
	all, former := pki.Trusted(authority[corev1.TLSCertKey], before, signers)
	named, err := s.named(ctx, field, further)
	if err != nil {
		return nil, err
	}
	if former > 0 {
		s.rotation.kept, s.rotation.renew = append(s.rotation.kept, bundle), append(s.rotation.renew, renew...)
	}
	secret := kcpaccess.Bundle(s.rs.Namespace, bundle, s.shard.Labels(), all, named)
	secret.Data[ownAuthorities] = all
	secret.UID = held.UID // if it was deleted since, apply must not create it again with its former content
	return secret, nil
}

// signed returns the former CAs of an issuer that have signed certificates in use, and these certificates. It reads certificates of other
// objects, such as Kubeconfigs, only while former CAs are trusted, or if no bundle exists and former CAs are unknown.
func (s *scope) signed(ctx context.Context, issuer string, authority []byte, others bool) (signers []byte, renew []string, err error) {
	certificates := map[string]string{} // names, and those of their Secrets
	add := func(c *certmanager.Certificate) {
		if c.Spec.IssuerRef == pki.IssuerNamed(issuer) {
			certificates[c.Name] = c.Spec.SecretName
		}
	}
	for _, leaf := range shard.Leaves(s.shard) {
		add(leaf.(*certmanager.Certificate))
	}
	if others {
		list := &certmanager.CertificateList{}
		if err := s.List(ctx, list, client.InNamespace(s.rs.Namespace)); err != nil {
			return nil, nil, err
		}
		for i := range list.Items {
			add(&list.Items[i])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(certificates)) {
		secret, err := s.secret(ctx, certificates[name])
		if err != nil {
			return nil, nil, err
		}
		if !pki.SignedBy(secret.Data[corev1.TLSCertKey], authority) {
			signers, renew = append(signers, pki.Signer(secret, issuer)...), append(renew, name)
		}
	}
	return signers, renew, nil
}

// compare requests new leaf certificates for those that a bundle does not verify, and returns an error for the first one.
func (s *scope) compare(ctx context.Context, own string, bundle []byte, field string, leaves ...string) error {
	var first error
	for _, leaf := range leaves {
		pair, err := s.secret(ctx, s.shard.Leaf(leaf))
		if err != nil {
			return err
		}
		if pki.TrustedBy(pair.Data[corev1.TLSCertKey], bundle) {
			continue
		}
		live := &certmanager.Certificate{}
		if err := s.Get(ctx, client.ObjectKey{Namespace: s.rs.Namespace, Name: s.shard.Leaf(leaf)}, live); err != nil {
			return client.IgnoreNotFound(err) // it is created again, and then issued
		}
		first = cmp.Or(first, pki.Distrusted(ctx, s.Client, live, own, "name a Secret with its authority in spec."+field))
	}
	return first
}

// serviceAccountKeys creates the Secret with the key that signs tokens of service accounts, and with all accepted keys. When cert-manager
// has issued a new key, every pod accepts it before the first one signs with it.
func (s *scope) serviceAccountKeys(ctx context.Context) error {
	issued, err := s.issued(ctx, s.shard.Leaf(shard.ServiceAccount))
	if err != nil {
		return err
	}
	name := s.shard.ServiceAccountKeys()
	held, err := s.secret(ctx, name)
	if err != nil {
		return err
	}
	accepted, former := pki.Trusted(issued[corev1.TLSCertKey], held.Data[corev1.TLSCertKey])
	keys := map[string][]byte{corev1.TLSCertKey: accepted, corev1.TLSPrivateKeyKey: issued[corev1.TLSPrivateKeyKey]}
	if former > 0 {
		s.rotation.kept = append(s.rotation.kept, name)
	}
	// A certificate that is renewed with the same key does not change the input of the server.
	input := func(signs []byte) string {
		return hash(map[string][]byte{"accepted": pki.Keys(accepted), "signs": signs}, []string{"accepted", "signs"})
	}
	if signs := held.Data[corev1.TLSPrivateKeyKey]; former > 0 && len(signs) > 0 && !bytes.Equal(signs, issued[corev1.TLSPrivateKeyKey]) {
		rolledOut, err := s.rolledOut(ctx, shard.ServiceAccountInput, input(signs))
		if err != nil {
			return err
		}
		if !rolledOut {
			keys[corev1.TLSPrivateKeyKey], s.rotation.waiting = signs, true
		}
	}
	s.shard.Inputs[shard.ServiceAccountInput] = input(keys[corev1.TLSPrivateKeyKey])
	return apply.Keep(ctx, s.Client, s.rs, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.rs.Namespace, Name: name, UID: held.UID, Labels: s.shard.Labels()},
		Type:       corev1.SecretTypeOpaque, Data: keys,
	})
}

// rolledOut reports whether all pods were started with an input.
func (s *scope) rolledOut(ctx context.Context, input, value string) (bool, error) {
	set := &appsv1.StatefulSet{}
	err := s.Get(ctx, client.ObjectKey{Namespace: s.rs.Namespace, Name: s.shard.WorkloadName()}, set)
	if err != nil {
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}
	return workload.Input(set, input) == value && workload.RolledOut(set), nil
}

// authoritiesInput hashes the CAs that the server trusts, and the CAs that signed its certificates. The server reloads both without a
// restart; but replacing the pods after a change proves that no server still uses the former ones.
func (s *scope) authoritiesInput(ctx context.Context, clients *corev1.Secret) error {
	inputs := map[string][]byte{"clients": pki.Keys(clients.Data[ownAuthorities])}
	var leaves []string
	if !s.foreignServer() {
		leaves = append(leaves, s.shard.Leaf(shard.Server))
	}
	if s.shard.Etcd.Trust != "" {
		leaves = append(leaves, s.shard.Etcd.Secret)
	}
	for _, name := range leaves {
		pair, err := s.issued(ctx, name)
		if err != nil {
			return err
		}
		inputs[name] = pki.AuthorityKey(pair[corev1.TLSCertKey])
	}
	s.shard.Inputs[shard.AuthoritiesInput] = hash(inputs, append([]string{"clients"}, leaves...))
	return nil
}

// secretData returns the data of a Secret, or nil if it does not exist.
func (s *scope) secretData(ctx context.Context, name string) (map[string][]byte, error) {
	secret, err := s.secret(ctx, name)
	if err != nil {
		return nil, err
	}
	return secret.Data, nil
}

// secret returns a Secret, or an empty one if it does not exist. Each Secret is read once per reconciliation.
func (s *scope) secret(ctx context.Context, name string) (*corev1.Secret, error) {
	if secret := s.found[name]; secret != nil {
		return secret, nil
	}
	secret := &corev1.Secret{}
	if err := s.Get(ctx, client.ObjectKey{Namespace: s.rs.Namespace, Name: name}, secret); client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	s.found[name] = secret
	return secret, nil
}

// reportRotation sets the condition Rotating to the progress of a rotation, and the next step.
func (s *scope) reportRotation() {
	c := metav1.Condition{Type: v1alpha1.ConditionRotating, Status: metav1.ConditionTrue, ObservedGeneration: s.rs.Generation}
	kept := strings.Join(s.rotation.kept, ", ")
	switch {
	case len(s.rotation.kept) == 0:
		c.Status, c.Reason = metav1.ConditionFalse, "AsExpected"
	case s.rotation.waiting:
		c.Reason, c.Message = v1alpha1.RotatingDistributing, "waiting for every pod to accept the new service account key"
		s.report.Set(conditions.Rest, conditions.Wait("RollingOut", "%s", c.Message))
	case len(s.rotation.renew) > 0:
		slices.Sort(s.rotation.renew)
		c.Reason, c.Message = v1alpha1.RotatingRenewable, fmt.Sprintf("renew these Certificates, which former authorities have signed: %s",
			strings.Join(s.rotation.renew, ", "))
	default:
		c.Reason, c.Message = v1alpha1.RotatingRenewed,
			fmt.Sprintf("signatures of former keys are accepted until these Secrets are deleted: %s", kept)
	}
	meta.SetStatusCondition(&s.rs.Status.Conditions, c)
}
