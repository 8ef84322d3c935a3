package informers

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	cachev1alpha1 "github.com/kcplane/kcp/api/cache/v1alpha1"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	topologyv1alpha1 "github.com/kcplane/kcp/api/topology/v1alpha1"
)

// Set are the resources that the server itself reads. Taking one from Set declares the input.
type Set struct {
	Namespaces                        Lister[*corev1.Namespace]
	ServiceAccounts                   Lister[*corev1.ServiceAccount]
	Secrets                           Lister[*corev1.Secret]
	ConfigMaps                        Lister[*corev1.ConfigMap]
	ResourceQuotas                    Lister[*corev1.ResourceQuota]
	ClusterRoles                      Lister[*rbacv1.ClusterRole]
	ClusterRoleBindings               Lister[*rbacv1.ClusterRoleBinding]
	Roles                             Lister[*rbacv1.Role]
	RoleBindings                      Lister[*rbacv1.RoleBinding]
	CustomResourceDefinitions         Lister[*apiextensionsv1.CustomResourceDefinition]
	CertificateSigningRequests        Lister[*certificatesv1.CertificateSigningRequest]
	ValidatingWebhookConfigurations   Lister[*admissionregistrationv1.ValidatingWebhookConfiguration]
	MutatingWebhookConfigurations     Lister[*admissionregistrationv1.MutatingWebhookConfiguration]
	ValidatingAdmissionPolicies       Lister[*admissionregistrationv1.ValidatingAdmissionPolicy]
	ValidatingAdmissionPolicyBindings Lister[*admissionregistrationv1.ValidatingAdmissionPolicyBinding]
	MutatingAdmissionPolicies         Lister[*admissionregistrationv1.MutatingAdmissionPolicy]
	MutatingAdmissionPolicyBindings   Lister[*admissionregistrationv1.MutatingAdmissionPolicyBinding]
	LogicalClusters                   Lister[*corev1alpha1.LogicalCluster]
	Shards                            Lister[*corev1alpha1.Shard]
	Workspaces                        Lister[*tenancyv1alpha1.Workspace]
	WorkspaceTypes                    Lister[*tenancyv1alpha1.WorkspaceType]

	WorkspaceAuthenticationConfigurations Lister[*tenancyv1alpha1.WorkspaceAuthenticationConfiguration]

	APIExports              Lister[*apisv1alpha2.APIExport]
	APIBindings             Lister[*apisv1alpha2.APIBinding]
	APIResourceSchemas      Lister[*apisv1alpha1.APIResourceSchema]
	APIExportEndpointSlices Lister[*apisv1alpha1.APIExportEndpointSlice]
	APIConversions          Lister[*apisv1alpha1.APIConversion]

	ClusterCachedResources              Lister[*cachev1alpha1.ClusterCachedResource]
	ClusterCachedResourceEndpointSlices Lister[*cachev1alpha1.ClusterCachedResourceEndpointSlice]
	Partitions                          Lister[*topologyv1alpha1.Partition]
	PartitionSets                       Lister[*topologyv1alpha1.PartitionSet]
}

// NewSet takes every informer of the set from f.
func NewSet(f *Factory) (*Set, error) {
	s := &Set{}
	core, rbac := corev1.SchemeGroupVersion, rbacv1.SchemeGroupVersion
	admission := admissionregistrationv1.SchemeGroupVersion
	for _, e := range []struct {
		gv       schema.GroupVersion
		resource string
		example  runtime.Object
		into     **Informer
	}{
		{core, "namespaces", &corev1.Namespace{}, &s.Namespaces.Informer},
		{core, "serviceaccounts", &corev1.ServiceAccount{}, &s.ServiceAccounts.Informer},
		{core, "secrets", &corev1.Secret{}, &s.Secrets.Informer},
		{core, "configmaps", &corev1.ConfigMap{}, &s.ConfigMaps.Informer},
		{core, "resourcequotas", &corev1.ResourceQuota{}, &s.ResourceQuotas.Informer},
		{rbac, "clusterroles", &rbacv1.ClusterRole{}, &s.ClusterRoles.Informer},
		{rbac, "clusterrolebindings", &rbacv1.ClusterRoleBinding{}, &s.ClusterRoleBindings.Informer},
		{rbac, "roles", &rbacv1.Role{}, &s.Roles.Informer},
		{rbac, "rolebindings", &rbacv1.RoleBinding{}, &s.RoleBindings.Informer},
		{apiextensionsv1.SchemeGroupVersion, "customresourcedefinitions", &apiextensionsv1.CustomResourceDefinition{},
			&s.CustomResourceDefinitions.Informer},
		{certificatesv1.SchemeGroupVersion, "certificatesigningrequests", &certificatesv1.CertificateSigningRequest{},
			&s.CertificateSigningRequests.Informer},
		{admission, "validatingwebhookconfigurations", &admissionregistrationv1.ValidatingWebhookConfiguration{},
			&s.ValidatingWebhookConfigurations.Informer},
		{admission, "mutatingwebhookconfigurations", &admissionregistrationv1.MutatingWebhookConfiguration{},
			&s.MutatingWebhookConfigurations.Informer},
		{admission, "validatingadmissionpolicies", &admissionregistrationv1.ValidatingAdmissionPolicy{}, &s.ValidatingAdmissionPolicies.Informer},
		{admission, "validatingadmissionpolicybindings", &admissionregistrationv1.ValidatingAdmissionPolicyBinding{},
			&s.ValidatingAdmissionPolicyBindings.Informer},
		{admission, "mutatingadmissionpolicies", &admissionregistrationv1.MutatingAdmissionPolicy{}, &s.MutatingAdmissionPolicies.Informer},
		{admission, "mutatingadmissionpolicybindings", &admissionregistrationv1.MutatingAdmissionPolicyBinding{},
			&s.MutatingAdmissionPolicyBindings.Informer},
		{corev1alpha1.SchemeGroupVersion, "logicalclusters", &corev1alpha1.LogicalCluster{}, &s.LogicalClusters.Informer},
		{corev1alpha1.SchemeGroupVersion, "shards", &corev1alpha1.Shard{}, &s.Shards.Informer},
		{tenancyv1alpha1.SchemeGroupVersion, "workspaces", &tenancyv1alpha1.Workspace{}, &s.Workspaces.Informer},
		{tenancyv1alpha1.SchemeGroupVersion, "workspacetypes", &tenancyv1alpha1.WorkspaceType{}, &s.WorkspaceTypes.Informer},
		{tenancyv1alpha1.SchemeGroupVersion, "workspaceauthenticationconfigurations", &tenancyv1alpha1.WorkspaceAuthenticationConfiguration{},
			&s.WorkspaceAuthenticationConfigurations.Informer},
		{apisv1alpha2.SchemeGroupVersion, "apiexports", &apisv1alpha2.APIExport{}, &s.APIExports.Informer},
		{apisv1alpha2.SchemeGroupVersion, "apibindings", &apisv1alpha2.APIBinding{}, &s.APIBindings.Informer},
		{apisv1alpha1.SchemeGroupVersion, "apiresourceschemas", &apisv1alpha1.APIResourceSchema{}, &s.APIResourceSchemas.Informer},
		{apisv1alpha1.SchemeGroupVersion, "apiexportendpointslices", &apisv1alpha1.APIExportEndpointSlice{}, &s.APIExportEndpointSlices.Informer},
		{apisv1alpha1.SchemeGroupVersion, "apiconversions", &apisv1alpha1.APIConversion{}, &s.APIConversions.Informer},
		{cachev1alpha1.SchemeGroupVersion, "clustercachedresources", &cachev1alpha1.ClusterCachedResource{}, &s.ClusterCachedResources.Informer},
		{cachev1alpha1.SchemeGroupVersion, "clustercachedresourceendpointslices", &cachev1alpha1.ClusterCachedResourceEndpointSlice{},
			&s.ClusterCachedResourceEndpointSlices.Informer},
		{topologyv1alpha1.SchemeGroupVersion, "partitions", &topologyv1alpha1.Partition{}, &s.Partitions.Informer},
		{topologyv1alpha1.SchemeGroupVersion, "partitionsets", &topologyv1alpha1.PartitionSet{}, &s.PartitionSets.Informer},
	} {
		i, err := f.For(e.gv.WithResource(e.resource), e.example)
		if err != nil {
			return nil, err
		}
		*e.into = i
	}
	return s, nil
}
