package kubeconfig

import (
	"cmp"
	"context"
	"fmt"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/apply"
	"github.com/kcplane/kcp/operator/internal/conditions"
	"github.com/kcplane/kcp/operator/internal/installation"
	"github.com/kcplane/kcp/operator/internal/kcpaccess"
	"github.com/kcplane/kcp/operator/internal/pki"
	"github.com/kcplane/kcp/operator/internal/shard"
)

// target gets the server that the kubeconfig points at, and its RootShard.
func (s *scope) target(ctx context.Context) (err error) {
	t, namespace := s.kubeconfig.Spec.Target, s.kubeconfig.Namespace
	status := &s.kubeconfig.Status
	switch {
	case t.RootShardRef != nil:
		status.TargetName = "RootShard/" + t.RootShardRef.Name
		if err := s.rootShard(ctx, "target.rootShardRef", t.RootShardRef); err != nil {
			return err
		}
		s.endpoint = endpoint{shard: s.root.BaseURL(), external: s.root.ExternalURL(), bundle: s.root.ServerBundle()}
		return nil
	case t.ShardRef != nil:
		status.TargetName = "Shard/" + t.ShardRef.Name
		sh := &v1alpha1.Shard{}
		if err := s.get(ctx, "shardRef", "Shard", t.ShardRef.Name, sh); err != nil {
			return err
		}
		if err := s.rootShard(ctx, "rootShard.ref of Shard "+sh.Name, sh.Spec.RootShard.Reference); err != nil {
			return err
		}
		further := shard.Further(sh, s.rs)
		s.endpoint = endpoint{shard: further.BaseURL(), bundle: further.ServerBundle()}
		return nil
	case t.FrontProxyRef != nil:
		status.TargetName = "FrontProxy/" + t.FrontProxyRef.Name
		f := &v1alpha1.FrontProxy{}
		if err := s.get(ctx, "frontProxyRef", "FrontProxy", t.FrontProxyRef.Name, f); err != nil {
			return err
		}
		if err := s.rootShard(ctx, "rootShard.ref of FrontProxy "+f.Name, f.Spec.RootShard.Reference); err != nil {
			return err
		}
		host, port := installation.ProxyAddress(f, s.rs)
		service := fmt.Sprintf("%s.%s.svc.%s", installation.ProxyWorkload(f.Name), namespace, cmp.Or(s.rs.Spec.ClusterDomain, "cluster.local"))
		s.endpoint = endpoint{
			external: shard.Address(host, port), service: shard.Address(service, port), bundle: installation.ProxyBundle(f.Name),
		}
		return nil
	default:
		return conditions.Stall("NoTarget", "spec.target is empty: set rootShardRef, shardRef or frontProxyRef")
	}
}

// rootShard gets the RootShard in a field of a spec.
func (s *scope) rootShard(ctx context.Context, field string, ref *v1alpha1.LocalReference) error {
	rs, err := installation.Root(ctx, s.Client, s.kubeconfig.Namespace, field, ref)
	if err == nil {
		s.rs, s.root = rs, shard.Root(rs)
	}
	return err
}

// get gets a target.
func (s *scope) get(ctx context.Context, field, kind, name string, into client.Object) error {
	err := s.Get(ctx, client.ObjectKey{Namespace: s.kubeconfig.Namespace, Name: name}, into)
	if apierrors.IsNotFound(err) {
		return conditions.Stall("ReferenceNotFound", "spec.target.%s: there is no %s %s: create it", field, kind, name)
	}
	return err
}

// certificate requests the client certificate, and waits for it.
func (s *scope) certificate(ctx context.Context) error {
	wanted := certificate(s.kubeconfig, s.root)
	if err := apply.All(ctx, s.Client, s.kubeconfig, wanted); err != nil {
		return err
	}
	live := &certmanager.Certificate{}
	if err := s.Get(ctx, client.ObjectKeyFromObject(wanted), live); client.IgnoreNotFound(err) != nil {
		return err
	}
	if template := s.kubeconfig.Spec.CertificateTemplate; pki.IssuerOf(template) != nil {
		err := pki.CheckIssuer(ctx, s.Client, "spec.certificateTemplate.spec.issuerRef", wanted)
		if err != nil {
			return err
		}
	}
	all, status, err := []*certmanager.Certificate{live}, &s.kubeconfig.Status, error(nil)
	status.Certificates = pki.Statuses(all)
	s.after = conditions.Expiring(&status.Conditions, s.kubeconfig.Generation, all)
	if status.Renewed, err = pki.Renew(ctx, s.Client, s.kubeconfig, status.ObservedGeneration, status.Renewed, all); err != nil {
		return err
	}
	return cmp.Or(pki.Issued(wanted.Name, live), s.compare(ctx, live))
}

// compare requests a new certificate if the target does not trust the CA that signed the current one.
func (s *scope) compare(ctx context.Context, live *certmanager.Certificate) error {
	secrets := map[string]*corev1.Secret{}
	for _, name := range []string{certificateName(s.kubeconfig), s.root.ClientBundle()} {
		secrets[name] = &corev1.Secret{}
		if err := s.Get(ctx, client.ObjectKey{Namespace: s.kubeconfig.Namespace, Name: name}, secrets[name]); err != nil {
			return client.IgnoreNotFound(err) // a later step waits for it
		}
	}
	pair, bundle := secrets[certificateName(s.kubeconfig)], secrets[s.root.ClientBundle()]
	if pki.TrustedBy(pair.Data[corev1.TLSCertKey], bundle.Data[corev1.TLSCertKey]) {
		return nil
	}
	return pki.Distrusted(ctx, s.Client, live, s.root.ClientCA(),
		"name a Secret with its authority in spec.clientCABundleRef of RootShard "+s.rs.Name)
}

// secret writes the Secret with the kubeconfig.
func (s *scope) secret(ctx context.Context) error {
	pair, err := read(ctx, s.Client, s.kubeconfig.Namespace, certificateName(s.kubeconfig))
	if err != nil {
		return err
	}
	authorities, err := read(ctx, s.Client, s.kubeconfig.Namespace, s.endpoint.bundle)
	if err != nil {
		return err
	}
	wanted, err := secret(s.kubeconfig, s.endpoint, pair, authorities[corev1.TLSCertKey])
	if err != nil {
		return err
	}
	if err := apply.All(ctx, s.Client, s.kubeconfig, wanted); err != nil {
		return err
	}
	return s.removeFormer(ctx)
}

// removeFormer deletes Secrets with former names of spec.secretRef, because their keys are no longer renewed or used.
func (s *scope) removeFormer(ctx context.Context) error {
	secrets := &metav1.PartialObjectMetadataList{}
	secrets.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	if err := s.List(ctx, secrets, client.InNamespace(s.kubeconfig.Namespace), client.MatchingLabels(labels(s.kubeconfig))); err != nil {
		return err
	}
	for i := range secrets.Items {
		secret := &secrets.Items[i]
		if secret.Name == s.kubeconfig.Spec.SecretRef.Name || !metav1.IsControlledBy(secret, s.kubeconfig) {
			continue
		}
		if err := client.IgnoreNotFound(s.Delete(ctx, secret, client.Preconditions{UID: &secret.UID})); err != nil {
			return err
		}
	}
	return nil
}

// roles binds the roles in the spec, and unbinds others. The workspace is recorded first, so that the roles can be found and unbound later.
func (s *scope) roles(ctx context.Context) error {
	provisioned, wanted := s.kubeconfig.Status.Authorization, ""
	roles := kcpaccess.Roles{ID: string(s.kubeconfig.UID), Group: group(s.kubeconfig)}
	if s.kubeconfig.Spec.Authorization != nil {
		wanted, roles.ClusterRoles = roleWorkspace(s.kubeconfig), s.kubeconfig.Spec.Authorization.ClusterRoleBindings.ClusterRoles
	}
	if provisioned != nil && provisioned.ProvisionedCluster != "" && provisioned.ProvisionedCluster != wanted {
		if err := s.bind(ctx, provisioned.ProvisionedCluster, kcpaccess.Roles{ID: roles.ID}); err != nil {
			return err
		}
		if err := s.provision(ctx, ""); err != nil {
			return err
		}
	}
	if err := s.provision(ctx, wanted); wanted == "" || err != nil {
		return err
	}
	return s.bind(ctx, wanted, roles)
}

// provision records the workspace where roles are bound, or none: in the status for users, and in the Secret for the Revoker, which exists
// longer than the Kubeconfig.
func (s *scope) provision(ctx context.Context, workspace string) error {
	before := s.kubeconfig.DeepCopy()
	s.kubeconfig.Status.Authorization = nil
	record := record(s.kubeconfig, s.root, workspace)
	if workspace == "" {
		if err := apply.Remove(ctx, s.Client, s.rs, record); err != nil {
			return err
		}
	} else {
		s.kubeconfig.Status.Authorization = &v1alpha1.KubeconfigAuthorizationStatus{ProvisionedCluster: workspace}
		if err := apply.All(ctx, s.Client, s.rs, record); err != nil {
			return err
		}
	}
	saved := s.kubeconfig.DeepCopy() // the rest of the status is saved later
	err := conditions.Save(ctx, s.Client, s.Recorder, before, saved, nil, nil)
	s.kubeconfig.ResourceVersion = saved.ResourceVersion
	return err
}

// bind binds roles in kcp. It returns an error to retry if kcp does not answer or the workspace does not exist.
func (s *scope) bind(ctx context.Context, workspace string, roles kcpaccess.Roles) error {
	available := meta.FindStatusCondition(s.rs.Status.Conditions, v1alpha1.ConditionAvailable)
	switch {
	case available != nil && available.Reason == conditions.ScaledToZero:
		return conditions.Wait(conditions.ScaledToZero,
			"waiting for RootShard %s, whose spec.replicas is 0, to bind roles in the workspace %s", s.rs.Name, workspace)
	case available == nil || available.Status != metav1.ConditionTrue:
		return conditions.Wait("TargetNotAvailable", "waiting for RootShard %s, to bind roles in the workspace %s", s.rs.Name, workspace)
	}
	credentials, err := installation.Credentials(ctx, s.Client, s.root)
	if err != nil {
		return err
	}
	err = s.Bind(ctx, credentials, workspace, roles)
	if gone := apierrors.IsNotFound(err) && len(roles.ClusterRoles) == 0; err != nil && !gone {
		return conditions.Unwatched(again, conditions.Wait("RolesNotBound", "%v", err))
	}
	return nil
}

func read(ctx context.Context, c client.Reader, namespace, name string) (map[string][]byte, error) {
	return installation.ReadSecret(ctx, c, namespace, name)
}
