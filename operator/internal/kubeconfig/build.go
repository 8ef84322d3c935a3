package kubeconfig

import (
	"cmp"
	"slices"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/apply"
	"github.com/kcplane/kcp/operator/internal/kcpaccess"
	"github.com/kcplane/kcp/operator/internal/pki"
	"github.com/kcplane/kcp/operator/internal/shard"
)

const (
	// ownerLabel has the UID of a Kubeconfig, on its Certificate and its Secrets.
	ownerLabel = "operator.kcp.io/kubeconfig"
	// workspaceAnnotation has the workspace where roles are bound.
	workspaceAnnotation = "operator.kcp.io/roles-in"
	// Prefixes of the names of a Certificate and its Secret, and of a record.
	certificatePrefix, recordPrefix = "kubeconfig-cert-", "kubeconfig-roles-"
)

// certificateName returns the name of the Certificate and of its Secret.
func certificateName(k *v1alpha1.Kubeconfig) string { return certificatePrefix + k.Name }

// group returns the group to which roles are bound. A Kubeconfig that is created again with the same name has another group, so that
// certificates of the former one have no roles.
func group(k *v1alpha1.Kubeconfig) string { return "kubeconfig:" + string(k.UID) }

// record builds the Secret that records where roles are bound. It has no data; another kind would require an additional permission of the
// operator. Its owner is the RootShard, where the roles are bound, not the Kubeconfig.
func record(k *v1alpha1.Kubeconfig, root *shard.Shard, workspace string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: k.Namespace, Name: recordPrefix + string(k.UID),
			Labels:      map[string]string{ownerLabel: string(k.UID), shard.RootLabel: root.Name},
			Annotations: map[string]string{workspaceAnnotation: workspace},
		},
		Type: corev1.SecretTypeOpaque,
	}
}

func labels(k *v1alpha1.Kubeconfig) map[string]string {
	return map[string]string{apply.ManagedByLabel: apply.FieldOwner, ownerLabel: string(k.UID)}
}

// workspace returns the workspace that the kubeconfig points at.
func workspace(k *v1alpha1.Kubeconfig) string {
	return cmp.Or(k.Spec.TargetWorkspace, "root")
}

// roleWorkspace returns the workspace where roles are bound.
func roleWorkspace(k *v1alpha1.Kubeconfig) string {
	if a := k.Spec.Authorization; k.Spec.TargetWorkspace == "" && a != nil && a.ClusterRoleBindings.Cluster != "" {
		return a.ClusterRoleBindings.Cluster
	}
	return workspace(k)
}

// certificate builds the client certificate. One of its groups has the name of the Kubeconfig, for role bindings of users.
func certificate(k *v1alpha1.Kubeconfig, root *shard.Shard) *certmanager.Certificate {
	return pki.Certificate(pki.Request{
		Namespace: k.Namespace, Name: certificateName(k), Labels: labels(k),
		CommonName: k.Spec.Username, Organizations: slices.Concat(k.Spec.Groups, []string{"kubeconfig:" + k.Name, group(k)}),
		Usages: pki.ClientUsages, Duration: k.Spec.Validity.Duration.Duration, Template: k.Spec.CertificateTemplate,
		Issuer: pki.IssuerNamed(root.ClientCA()),
	})
}

// endpoint is the server that a kubeconfig points at.
type endpoint struct {
	// shard is the URL of a shard inside of the cluster. Empty: the target is a front proxy, with the URL service inside of the cluster.
	shard, service string
	// external is the URL outside of the cluster. Shards other than the root shard have none.
	external string
	// bundle is the Secret with the CAs of the server.
	bundle string
}

// contexts returns the URLs of a kubeconfig by the names of contexts. path is the one of the workspace.
func (e endpoint) contexts(path string) map[string]string {
	all := map[string]string{}
	if e.shard == "" {
		all["default"], all["base"], all["internal"] = e.external+path, e.external, e.service+path
	} else {
		all["default"], all["base"], all["shard-base"] = e.shard+path, e.shard, e.shard
	}
	if e.external != "" {
		all["external"] = e.external + path
	}
	return all
}

// secret builds the Secret with the kubeconfig.
func secret(k *v1alpha1.Kubeconfig, e endpoint, pair map[string][]byte, authorities []byte) (*corev1.Secret, error) {
	return kcpaccess.Secret(k.Namespace, k.Spec.SecretRef.Name, labels(k), kcpaccess.Kubeconfig{
		User: k.Spec.Username, Certificate: pair[corev1.TLSCertKey], CertificateKey: pair[corev1.TLSPrivateKeyKey], Authorities: authorities,
		Contexts: e.contexts("/clusters/" + workspace(k)), Current: "default",
	})
}
