package informers

import (
	"fmt"
	"reflect"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	cachev1alpha1 "github.com/kcplane/kcp/api/cache/v1alpha1"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	migrationv1alpha1 "github.com/kcplane/kcp/api/migration/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	topologyv1alpha1 "github.com/kcplane/kcp/api/topology/v1alpha1"
)

// Set has a lister for each of Kinds.
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
	LogicalClusterMigrations            Lister[*migrationv1alpha1.LogicalClusterMigration]
	Partitions                          Lister[*topologyv1alpha1.Partition]
	PartitionSets                       Lister[*topologyv1alpha1.PartitionSet]
}

// NewSet returns a set with the informers of f for all Kinds.
func NewSet(f *Factory) (*Set, error) {
	kinds := map[reflect.Type]Kind{}
	for _, k := range Kinds() {
		kinds[reflect.TypeOf(k.Example)] = k
	}
	s := &Set{}
	listers := reflect.ValueOf(s).Elem()
	for n := range listers.NumField() {
		get, _ := listers.Field(n).Type().MethodByName("Get")
		k, ok := kinds[get.Type.Out(0)]
		if !ok {
			return nil, fmt.Errorf("Kinds has no row for Set.%s", listers.Type().Field(n).Name)
		}
		i, err := f.For(k)
		if err != nil {
			return nil, err
		}
		listers.Field(n).FieldByName("Informer").Set(reflect.ValueOf(i))
	}
	return s, nil
}
