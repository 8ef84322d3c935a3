package component

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
	"github.com/kcplane/kcp/operator/internal/workload"
)

// OwnAuthorities is the key in a bundle with the CAs of the component itself, the current one first.
const OwnAuthorities = "authorities.crt"

// rotation describes the former keys that are accepted. It is computed in each reconciliation: Secrets hold the former keys until a user
// deletes them.
type rotation struct {
	kept    []string // Secrets with former keys
	renew   []string // Certificates that former authorities have signed
	waiting bool     // for pods to accept a new key, which does not sign yet
}

// Trusted builds a bundle: the component's own CA, the former ones with other keys, and those that the spec names. A former CA is trusted
// until its bundle is deleted, and in any case while a certificate that it signed is in use.
func (s *Scope) Trusted(ctx context.Context, own, bundle, field string, further *v1alpha1.LocalReference) (*corev1.Secret, error) {
	authority, err := s.Issued(ctx, own)
	if err != nil {
		return nil, err
	}
	if !pki.IsAuthority(authority[corev1.TLSCertKey]) {
		return nil, conditions.Stall("NotAnAuthority", "Certificate %s: its issuer has signed a certificate that is not one of a CA: name "+
			"another issuer in spec.certificates.issuerRef", own)
	}
	held, err := s.Secret(ctx, bundle)
	if err != nil {
		return nil, err
	}
	before := held.Data[OwnAuthorities]
	_, former := pki.Trusted(authority[corev1.TLSCertKey], before)
	signers, renew, err := s.signed(ctx, own, authority[corev1.TLSCertKey], former > 0 || len(before) == 0)
	if err != nil {
		return nil, err
	}
	all, former := pki.Trusted(authority[corev1.TLSCertKey], before, signers)
	named, err := s.Named(ctx, field, further)
	if err != nil {
		return nil, err
	}
	if former > 0 {
		s.rotation.kept, s.rotation.renew = append(s.rotation.kept, bundle), append(s.rotation.renew, renew...)
	}
	secret := kcpaccess.Bundle(s.Owner.GetNamespace(), bundle, s.Labels, all, named)
	secret.Data[OwnAuthorities] = all
	secret.UID = held.UID // if it was deleted since, apply must not create it again with its former content
	return secret, nil
}

// signed returns the former CAs of an issuer that have signed certificates in use, and these certificates. It reads certificates of other
// objects, such as Kubeconfigs, only while former CAs are trusted, or if no bundle exists and former CAs are unknown.
func (s *Scope) signed(ctx context.Context, issuer string, authority []byte, others bool) (signers []byte, renew []string, err error) {
	certificates := map[string]string{} // names, and those of their Secrets
	add := func(c *certmanager.Certificate) {
		if c.Spec.IssuerRef == pki.IssuerNamed(issuer) {
			certificates[c.Name] = c.Spec.SecretName
		}
	}
	for _, leaf := range s.leaves {
		add(leaf.(*certmanager.Certificate))
	}
	if others {
		list := &certmanager.CertificateList{}
		if err := s.List(ctx, list, client.InNamespace(s.Owner.GetNamespace())); err != nil {
			return nil, nil, err
		}
		for i := range list.Items {
			add(&list.Items[i])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(certificates)) {
		secret, err := s.Secret(ctx, certificates[name])
		if err != nil {
			return nil, nil, err
		}
		if !pki.SignedBy(secret.Data[corev1.TLSCertKey], authority) {
			signers, renew = append(signers, pki.Signer(secret, issuer)...), append(renew, name)
		}
	}
	return signers, renew, nil
}

// Compare requests new leaf certificates for those that a bundle does not verify, and returns an error for the first one.
func (s *Scope) Compare(ctx context.Context, own string, bundle []byte, field string, leaves ...string) error {
	var first error
	for _, leaf := range leaves {
		pair, err := s.Secret(ctx, leaf)
		if err != nil {
			return err
		}
		if pki.TrustedBy(pair.Data[corev1.TLSCertKey], bundle) {
			continue
		}
		live := &certmanager.Certificate{}
		if err := s.Get(ctx, client.ObjectKey{Namespace: s.Owner.GetNamespace(), Name: leaf}, live); err != nil {
			return client.IgnoreNotFound(err) // it is created again, and then issued
		}
		first = cmp.Or(first, pki.Distrusted(ctx, s.Client, live, own, "name a Secret with its authority in spec."+field))
	}
	return first
}

// ServiceAccountKeys creates the Secret with the key that signs tokens of service accounts, and with all accepted keys. When cert-manager
// has issued a new key, every pod accepts it before the first one signs with it.
func (s *Scope) ServiceAccountKeys(ctx context.Context, leaf, name, inputName string) error {
	issued, err := s.Issued(ctx, leaf)
	if err != nil {
		return err
	}
	held, err := s.Secret(ctx, name)
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
		rolledOut, err := s.rolledOut(ctx, inputName, input(signs))
		if err != nil {
			return err
		}
		if !rolledOut {
			keys[corev1.TLSPrivateKeyKey], s.rotation.waiting = signs, true
		}
	}
	s.Inputs[inputName] = input(keys[corev1.TLSPrivateKeyKey])
	return apply.Keep(ctx, s.Client, s.Owner, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Owner.GetNamespace(), Name: name, UID: held.UID, Labels: s.Labels},
		Type:       corev1.SecretTypeOpaque, Data: keys,
	})
}

// rolledOut reports whether all pods were started with an input, including those of a follower.
func (s *Scope) rolledOut(ctx context.Context, input, value string) (bool, error) {
	set := &appsv1.StatefulSet{}
	err := s.Get(ctx, client.ObjectKey{Namespace: s.Owner.GetNamespace(), Name: s.Workload}, set)
	if err != nil {
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}
	if workload.Input(set, input) != value || !workload.RolledOut(set) || s.Follower == "" {
		return workload.Input(set, input) == value && workload.RolledOut(set), nil
	}
	follower := &appsv1.StatefulSet{}
	err = s.Get(ctx, client.ObjectKey{Namespace: s.Owner.GetNamespace(), Name: s.Follower}, follower)
	if err != nil {
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}
	return workload.Input(follower, input) == value && workload.RolledOut(follower), nil
}

// AuthoritiesInput sets the hash of the CAs in bundles, and of the CAs that signed certificates. A component reloads both without a
// restart; but replacing the pods after a change proves that none still uses the former ones.
func (s *Scope) AuthoritiesInput(ctx context.Context, name string, bundles map[string][]byte, leaves ...string) error {
	inputs := map[string][]byte{}
	for bundle, authorities := range bundles {
		inputs[bundle] = pki.Keys(authorities)
	}
	for _, leaf := range leaves {
		pair, err := s.Issued(ctx, leaf)
		if err != nil {
			return err
		}
		inputs[leaf] = pki.AuthorityKey(pair[corev1.TLSCertKey])
	}
	s.Inputs[name] = hash(inputs, slices.Concat(slices.Sorted(maps.Keys(bundles)), leaves))
	return nil
}

// secretData returns the data of a Secret, or nil if it does not exist.
func (s *Scope) secretData(ctx context.Context, name string) (map[string][]byte, error) {
	secret, err := s.Secret(ctx, name)
	if err != nil {
		return nil, err
	}
	return secret.Data, nil
}

// Secret returns a Secret, or an empty one if it does not exist. Each Secret is read once per reconciliation.
func (s *Scope) Secret(ctx context.Context, name string) (*corev1.Secret, error) {
	if secret := s.found[name]; secret != nil {
		return secret, nil
	}
	secret := &corev1.Secret{}
	if err := s.Get(ctx, client.ObjectKey{Namespace: s.Owner.GetNamespace(), Name: name}, secret); client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	s.found[name] = secret
	return secret, nil
}

// ReportRotation sets the condition Rotating to the progress of a rotation, and the next step.
func (s *Scope) ReportRotation() {
	c := metav1.Condition{Type: v1alpha1.ConditionRotating, Status: metav1.ConditionTrue, ObservedGeneration: s.Owner.GetGeneration()}
	kept := strings.Join(s.rotation.kept, ", ")
	switch {
	case len(s.rotation.kept) == 0:
		c.Status, c.Reason = metav1.ConditionFalse, "AsExpected"
	case s.rotation.waiting:
		c.Reason, c.Message = v1alpha1.RotatingDistributing, "waiting for every pod to accept the new service account key"
		s.Report.Set(conditions.Rest, conditions.Wait("RollingOut", "%s", c.Message))
	case len(s.rotation.renew) > 0:
		slices.Sort(s.rotation.renew)
		c.Reason, c.Message = v1alpha1.RotatingRenewable, fmt.Sprintf("renew these Certificates, which former authorities have signed: %s",
			strings.Join(s.rotation.renew, ", "))
	default:
		c.Reason, c.Message = v1alpha1.RotatingRenewed,
			fmt.Sprintf("signatures of former keys are accepted until these Secrets are deleted: %s", kept)
	}
	meta.SetStatusCondition(&s.Status.Conditions, c)
}
