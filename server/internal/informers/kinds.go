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
	migrationv1alpha1 "github.com/kcplane/kcp/api/migration/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	topologyv1alpha1 "github.com/kcplane/kcp/api/topology/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers/compact"
	"github.com/kcplane/kcp/server/internal/informers/transform"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Kind describes how the server keeps the objects of a kind in memory.
type Kind struct {
	Resource schema.GroupVersionResource
	// Example is an empty object. Set has a Lister of its type.
	Example runtime.Object
	// Stored reports whether the server reads and writes the objects in storage, without a request to itself.
	Stored bool
	// Packed reports whether the objects are compacted, and have no indexes. The codec keeps all fields: a type that it cannot pack
	// fails when the server starts.
	Packed bool
	// PackedInOrder reports whether the objects are compacted, and have indexes. Listing the objects of a cluster unpacks each of them: no
	// request of a tenant may do so.
	PackedInOrder bool
	// PackedElsewhere reports whether the objects of other shards are compacted: very many, of which this shard reads few. Those of a kind
	// with Packed are.
	PackedElsewhere bool
	// Global reports whether shards offer the objects to each other, so that every shard can read them. No kind with secrets or tokens
	// may be global.
	Global bool
	// Edge reports whether shards offer trimmed objects to each other that say where clusters are. Listers return only those of this
	// shard, because readers ask for what this shard holds; GetAnywhere returns the others, too.
	Edge bool
	// Transform returns a function that changes the objects of one informer before they are kept; nil keeps them as they are.
	Transform func() func(runtime.Object)
	// Trimmed are the fields that Transform drops. Readers of the informer must not read them.
	Trimmed []Trimmed
}

// Trimmed is a field that an informer does not keep.
type Trimmed struct {
	// Path is the JSON path of the field, such as status.conditions, or metadata.annotations[key].
	Path string
	// Except are keys of the map at Path whose values are kept.
	Except []string
	// Kept reports for which objects the field is kept; nil means for none.
	Kept func(runtime.Object) bool
	// Reason says why no reader needs the field.
	Reason string
}

// Keep returns a function that returns a new object as the informer of the kind keeps it. The function may change its argument.
func (k Kind) Keep() (func(runtime.Object) runtime.Object, error) {
	change := func(runtime.Object) {}
	if k.Transform != nil {
		change = k.Transform()
	}
	if !k.Packed && !k.PackedInOrder {
		return func(obj runtime.Object) runtime.Object { change(obj); return obj }, nil
	}
	codec, err := compact.New(k.Example)
	return func(obj runtime.Object) runtime.Object {
		change(obj)
		return codec.Unpack("", codec.Pack("", obj))
	}, err
}

const (
	reasonTypeMeta      = "The type of an object is the type of the informer."
	reasonManagedFields = "Only the API server needs managed fields, of the stored object."
)

// trimmedMeta returns what transforms trim of every object, and more.
func trimmedMeta(more ...Trimmed) []Trimmed {
	return append([]Trimmed{
		{Path: "kind", Reason: reasonTypeMeta}, {Path: "apiVersion", Reason: reasonTypeMeta},
		{Path: "metadata.managedFields", Reason: reasonManagedFields},
	}, more...)
}

// stateless returns a Transform of a function that shares nothing among objects.
func stateless(f func(runtime.Object)) func() func(runtime.Object) {
	return func() func(runtime.Object) { return f }
}

// RootCAConfigMap is the name of the ConfigMap with the CA certificates of the server, which every namespace has.
const RootCAConfigMap = "kube-root-ca.crt"

// Kinds returns the kinds that the server keeps in memory. To keep another kind, add a row here and a field in Set.
func Kinds() []Kind { return append(kubernetesKinds(), kcpKinds()...) }

func kubernetesKinds() []Kind {
	core, rbac := corev1.SchemeGroupVersion, rbacv1.SchemeGroupVersion
	admission := admissionregistrationv1.SchemeGroupVersion
	return []Kind{
		{
			Resource: core.WithResource("namespaces"), Example: &corev1.Namespace{}, PackedInOrder: true,
			Transform: stateless(transform.Namespace), Trimmed: trimmedMeta(),
		},
		{
			Resource: core.WithResource("serviceaccounts"), Example: &corev1.ServiceAccount{}, PackedInOrder: true,
			Transform: stateless(transform.ServiceAccount), Trimmed: trimmedMeta(),
		},
		{
			Resource: core.WithResource("secrets"), Example: &corev1.Secret{}, Packed: true, Transform: stateless(transform.Secret),
			Trimmed: []Trimmed{
				{Path: "metadata.managedFields", Reason: reasonManagedFields},
				{
					Path:   "metadata.annotations",
					Except: []string{logicalcluster.AnnotationKey, corev1.ServiceAccountNameKey, corev1.ServiceAccountUIDKey},
					Reason: "The controller serviceaccounttoken reads which service account a Secret is for.",
				},
				{Path: "data", Reason: "Controllers read data of the stored Secret. It is large, and the Secrets of most tenants are their own."},
				{Path: "stringData", Reason: "It is part of requests only."},
			},
		},
		{
			Resource: core.WithResource("configmaps"), Example: &corev1.ConfigMap{},
			Packed: true, Transform: stateless(transform.ConfigMap(RootCAConfigMap)),
			Trimmed: []Trimmed{
				{Path: "metadata.managedFields", Reason: reasonManagedFields},
				{
					Path: "metadata.annotations", Except: []string{logicalcluster.AnnotationKey}, Kept: isRootCA,
					Reason: "Only the controller rootca reads ConfigMaps, of one name.",
				},
				{Path: "data", Kept: isRootCA, Reason: "Only the controller rootca reads ConfigMaps, of one name."},
				{Path: "binaryData", Reason: "The controller rootca writes text only."},
			},
		},
		{Resource: core.WithResource("resourcequotas"), Example: &corev1.ResourceQuota{}},
		{Resource: rbac.WithResource("clusterroles"), Global: true, Example: &rbacv1.ClusterRole{}},
		{
			Resource: rbac.WithResource("clusterrolebindings"), Global: true, Example: &rbacv1.ClusterRoleBinding{},
			Transform: func() func(runtime.Object) { return transform.New().ClusterRoleBinding }, Trimmed: trimmedMeta(),
		},
		{Resource: rbac.WithResource("roles"), Example: &rbacv1.Role{}},
		{Resource: rbac.WithResource("rolebindings"), Example: &rbacv1.RoleBinding{}},
		{
			// The registry of package customresources also makes equal definitions share memory.
			Resource:  apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"),
			Example:   &apiextensionsv1.CustomResourceDefinition{},
			Transform: stateless(transform.CustomResourceDefinition),
			Trimmed: []Trimmed{
				{Path: "metadata.managedFields", Reason: reasonManagedFields},
				{
					Path:   "metadata.annotations[" + corev1.LastAppliedConfigAnnotation + "]",
					Reason: "Only kubectl reads it, of the stored object. It is as large as the definition.",
				},
			},
		},
		{Resource: certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests"),
			Example: &certificatesv1.CertificateSigningRequest{}},
		{Resource: admission.WithResource("validatingwebhookconfigurations"),
			Global: true, Example: &admissionregistrationv1.ValidatingWebhookConfiguration{}},
		{Resource: admission.WithResource("mutatingwebhookconfigurations"),
			Global: true, Example: &admissionregistrationv1.MutatingWebhookConfiguration{}},
		{Resource: admission.WithResource("validatingadmissionpolicies"),
			Global: true, Example: &admissionregistrationv1.ValidatingAdmissionPolicy{}},
		{Resource: admission.WithResource("validatingadmissionpolicybindings"),
			Global: true, Example: &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}},
		{Resource: admission.WithResource("mutatingadmissionpolicies"),
			Global: true, Example: &admissionregistrationv1.MutatingAdmissionPolicy{}},
		{Resource: admission.WithResource("mutatingadmissionpolicybindings"),
			Global: true, Example: &admissionregistrationv1.MutatingAdmissionPolicyBinding{}},
	}
}

func kcpKinds() []Kind {
	core, tenancy, topology := corev1alpha1.SchemeGroupVersion, tenancyv1alpha1.SchemeGroupVersion, topologyv1alpha1.SchemeGroupVersion
	apis1, apis2, cache := apisv1alpha1.SchemeGroupVersion, apisv1alpha2.SchemeGroupVersion, cachev1alpha1.SchemeGroupVersion
	return []Kind{
		{
			Resource: core.WithResource("logicalclusters"), Edge: true, Example: &corev1alpha1.LogicalCluster{}, Stored: true,
			Packed: true, Transform: stateless(transform.LogicalCluster),
			Trimmed: trimmedMeta(Trimmed{
				Path: "status.conditions", Kept: isBeingDeleted,
				Reason: "The controller of Workspaces reads them of clusters that are being deleted. Views read stored objects.",
			}),
		},
		{Resource: core.WithResource("shards"), Global: true, Example: &corev1alpha1.Shard{}, Stored: true},
		{
			Resource: tenancy.WithResource("workspaces"), Edge: true, Example: &tenancyv1alpha1.Workspace{}, Stored: true,
			Packed: true, Transform: stateless(transform.Workspace),
			Trimmed: trimmedMeta(
				Trimmed{Path: "status.conditions", Reason: "Controllers set them in the stored object."},
				Trimmed{
					Path: "metadata.annotations[" + tenancyv1alpha1.ClusterAnnotation + "]", Kept: isUnscheduled,
					Reason: "spec.cluster of a scheduled workspace has the same value.",
				},
			),
		},
		{Resource: tenancy.WithResource("workspacetypes"), Global: true, Example: &tenancyv1alpha1.WorkspaceType{}, Stored: true},
		{Resource: tenancy.WithResource("workspaceauthenticationconfigurations"),
			Global: true, Example: &tenancyv1alpha1.WorkspaceAuthenticationConfiguration{}, Stored: true},
		{Resource: apis2.WithResource("apiexports"), Global: true, PackedElsewhere: true, Example: &apisv1alpha2.APIExport{}, Stored: true},
		{
			Resource: apis2.WithResource("apibindings"), Example: &apisv1alpha2.APIBinding{}, Stored: true,
			Transform: func() func(runtime.Object) { return transform.New().APIBinding }, Trimmed: trimmedMeta(),
		},
		{Resource: apis1.WithResource("apiresourceschemas"), Global: true, Example: &apisv1alpha1.APIResourceSchema{}, Stored: true},
		{Resource: apis1.WithResource("apiexportendpointslices"),
			Global: true, PackedElsewhere: true, Example: &apisv1alpha1.APIExportEndpointSlice{}, Stored: true},
		{Resource: apis1.WithResource("apiconversions"), Global: true, Example: &apisv1alpha1.APIConversion{}, Stored: true},
		{Resource: cache.WithResource("clustercachedresources"),
			Global: true, Example: &cachev1alpha1.ClusterCachedResource{}, Stored: true},
		{Resource: cache.WithResource("clustercachedresourceendpointslices"),
			Global: true, Example: &cachev1alpha1.ClusterCachedResourceEndpointSlice{}, Stored: true},
		{Resource: migrationv1alpha1.SchemeGroupVersion.WithResource("logicalclustermigrations"),
			Global: true, Example: &migrationv1alpha1.LogicalClusterMigration{}, Stored: true},
		{Resource: topology.WithResource("partitions"), Example: &topologyv1alpha1.Partition{}, Stored: true},
		{Resource: topology.WithResource("partitionsets"), Example: &topologyv1alpha1.PartitionSet{}, Stored: true},
	}
}

func isRootCA(obj runtime.Object) bool { return obj.(*corev1.ConfigMap).Name == RootCAConfigMap }

func isBeingDeleted(obj runtime.Object) bool {
	return obj.(*corev1alpha1.LogicalCluster).DeletionTimestamp != nil
}

func isUnscheduled(obj runtime.Object) bool {
	return obj.(*tenancyv1alpha1.Workspace).Spec.Cluster == ""
}
