package cacheserver

import (
	"regexp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	cachev1alpha1 "github.com/kcplane/kcp/api/cache/v1alpha1"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	migrationv1alpha1 "github.com/kcplane/kcp/api/migration/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
)

// Kind is a kind of objects that shards may offer. All of them are cluster-scoped.
type Kind struct {
	schema.GroupVersionKind
	Resource string
}

// GroupVersionResource returns the resource of the objects.
func (k Kind) GroupVersionResource() schema.GroupVersionResource {
	return k.GroupVersion().WithResource(k.Resource)
}

// Kinds are the kinds that shards may offer besides cached resources. None of them contains a secret or a token: the tests list them.
var Kinds = []Kind{
	{admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingAdmissionPolicy"), "mutatingadmissionpolicies"},
	{admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingAdmissionPolicyBinding"), "mutatingadmissionpolicybindings"},
	{admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingWebhookConfiguration"), "mutatingwebhookconfigurations"},
	{admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy"), "validatingadmissionpolicies"},
	{admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicyBinding"), "validatingadmissionpolicybindings"},
	{admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration"), "validatingwebhookconfigurations"},
	{apisv1alpha1.SchemeGroupVersion.WithKind("APIConversion"), "apiconversions"},
	{apisv1alpha1.SchemeGroupVersion.WithKind("APIExportEndpointSlice"), "apiexportendpointslices"},
	{apisv1alpha1.SchemeGroupVersion.WithKind("APIResourceSchema"), "apiresourceschemas"},
	{apisv1alpha2.SchemeGroupVersion.WithKind("APIExport"), "apiexports"},
	{cachev1alpha1.SchemeGroupVersion.WithKind("ClusterCachedResource"), "clustercachedresources"},
	{cachev1alpha1.SchemeGroupVersion.WithKind("ClusterCachedResourceEndpointSlice"), "clustercachedresourceendpointslices"},
	{corev1alpha1.SchemeGroupVersion.WithKind("LogicalCluster"), "logicalclusters"},
	{corev1alpha1.SchemeGroupVersion.WithKind("Shard"), "shards"},
	{migrationv1alpha1.SchemeGroupVersion.WithKind("LogicalClusterMigration"), "logicalclustermigrations"},
	{rbacv1.SchemeGroupVersion.WithKind("ClusterRole"), "clusterroles"},
	{rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"), "clusterrolebindings"},
	{tenancyv1alpha1.SchemeGroupVersion.WithKind("Workspace"), "workspaces"},
	{tenancyv1alpha1.SchemeGroupVersion.WithKind("WorkspaceAuthenticationConfiguration"), "workspaceauthenticationconfigurations"},
	{tenancyv1alpha1.SchemeGroupVersion.WithKind("WorkspaceType"), "workspacetypes"},
}

var (
	identity = regexp.MustCompile(`^[a-z0-9]{1,64}$`)
	label    = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
)

// authenticationGroup is the group of tokens.
const authenticationGroup = "authentication.k8s.io"

// mayBeCached reports whether objects of a resource can enter under an identity. Groups without a dot are those of Kubernetes: they have
// Secrets and tokens, and no ClusterCachedResource publishes them.
func mayBeCached(resource schema.GroupVersionResource, id string) bool {
	labels := strings.Split(resource.Group, ".")
	valid := func(s string) bool { return label.MatchString(s) }
	return len(labels) > 1 && len(resource.Group) <= 253 && !slices.ContainsFunc(labels, func(s string) bool { return !valid(s) }) &&
		resource.Group != authenticationGroup && valid(resource.Version) && valid(resource.Resource) && identity.MatchString(id)
}
