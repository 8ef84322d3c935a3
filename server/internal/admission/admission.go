// Package admission holds the rules that admit or refuse writes in a logical cluster. One chain serves all clusters: each plugin takes the
// cluster from the context.
package admission

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	admissionmetrics "k8s.io/apiserver/pkg/admission/metrics"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	"k8s.io/kubernetes/pkg/apis/rbac"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	cachev1alpha1 "github.com/kcplane/kcp/api/cache/v1alpha1"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/admission/objectlimit"
	"github.com/kcplane/kcp/server/internal/apis/conversion"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/tenancy/exports"
	"github.com/kcplane/kcp/server/internal/tenancy/pathindex"
	"github.com/kcplane/kcp/server/internal/tenancy/references"
	"github.com/kcplane/kcp/server/internal/tenancy/workspacetypes"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Config is what the chain needs. Clients reach the cluster in the context of each call.
type Config struct {
	Set        *informers.Set
	Kube       kubernetes.Interface
	Dynamic    dynamic.Interface
	Authorizer authorizer.UnconditionalAuthorizer
	Tree       *pathindex.Index
	Types      *workspacetypes.Types
	References *references.References
	Exports    *exports.Exports
	Limits     *objectlimit.Limits
	// Placed returns how many logical clusters a shard holds.
	Placed func(ctx context.Context, shard string) int64
	// Payer returns the tenant that a cluster is charged to. MaxLargeObjects is how many bytes of memory the large objects of all tenants may
	// take; zero means no limit.
	Payer           func(logicalcluster.Name) string
	MaxLargeObjects int
	// ClientFor returns a client for one cluster, for upstream code whose contexts do not carry a cluster.
	ClientFor func(logicalcluster.Name) (kubernetes.Interface, error)
	// RESTMapper returns the mapper of the cluster in the context. TypeConverter returns the converter that merges objects of a kind in a
	// cluster.
	RESTMapper    func(context.Context) (meta.RESTMapper, error)
	TypeConverter func(logicalcluster.Name, schema.GroupVersionKind) managedfields.TypeConverter
	// OfServer reports whether the server itself defines a resource, and not an export or a cluster.
	OfServer func(schema.GroupResource) bool
	// WebhookAuthentication returns how the server authenticates to webhooks.
	WebhookAuthentication webhook.AuthenticationInfoResolverWrapper
}

// New returns the chain of plugins, in the order in which they see a request.
func New(config Config) (admission.Interface, error) {
	chain, err := chainOf(config)
	if err != nil {
		return nil, err
	}
	// The upstream registry adds the metrics of each plugin, and the second round after mutations.
	plugins := admission.NewPlugins()
	names, groups := make([]string, len(chain)), map[string][]string{}
	for i, n := range chain {
		names[i], groups[n.name] = n.name, n.groups
		plugins.Register(n.name, func(io.Reader) (admission.Interface, error) { return n.plugin, nil })
	}
	none := admission.PluginInitializers{}
	return plugins.NewFromPlugins(names, noConfiguration{}, none, admission.Decorators{
		admission.DecoratorFunc(admissionmetrics.WithControllerMetrics),
		admission.DecoratorFunc(func(plugin admission.Interface, name string) admission.Interface {
			return chained{plugin, name, groups[name]}
		}),
	})
}

// The groups of several plugins.
var (
	tenancyGroup      = []string{tenancyv1alpha1.SchemeGroupVersion.Group}
	coreGroup         = []string{corev1alpha1.SchemeGroupVersion.Group}
	apisGroup         = []string{apisv1alpha1.SchemeGroupVersion.Group}
	cacheGroup        = []string{cachev1alpha1.SchemeGroupVersion.Group}
	registrationGroup = []string{admissionregistration.GroupName}
)

// chainOf returns the plugins of New.
func chainOf(config Config) ([]namedPlugin, error) {
	config.Authorizer = authorization.Current(config.Set, config.Authorizer)
	certificates, err := certificatePlugins(config.Authorizer)
	if err != nil {
		return nil, err
	}
	r := rules{config}
	chain := []namedPlugin{
		{"kcp.io/ClusterAnnotation", clusterAnnotation{}, nil},
		{"LogicalClusterLifecycle", newLifecycle(config), nil},
		{"tenancy.kcp.io/Workspace", workspaceRules{r}, tenancyGroup},
		{"tenancy.kcp.io/WorkspaceType", workspaceTypeRules{r}, tenancyGroup},
		{"core.kcp.io/LogicalCluster", logicalClusterRules{}, coreGroup},
		{"core.kcp.io/Shard", shardDefaults{}, coreGroup},
		{"core.kcp.io/ShardDeletion", shardDeletion{r}, coreGroup},
		{"apis.kcp.io/APIResourceSchema", resourceSchemaRules{r}, apisGroup},
		{"apis.kcp.io/APIExport", exportRules{r}, apisGroup},
		{"apis.kcp.io/APIConversion", conversionRules{r}, apisGroup},
		{"apis.kcp.io/APIBinding", bindingRules{}, apisGroup},
		{"apis.kcp.io/APIBindingPermission", bindPermission{r}, slices.Concat(apisGroup, cacheGroup)},
		{"cache.kcp.io/ClusterCachedResource", cachedResourceRules{r}, cacheGroup},
		{"apis.kcp.io/SystemBindings", newSystemBindings(config), apisGroup},
		{"kcp.io/PathAnnotation", pathAnnotation{r}, nil},
		{"kcp.io/ReservedDefinitions", reservedDefinitions{}, []string{apiextensions.GroupName}},
		{"kcp.io/BoundedExpressions", boundedExpressions{}, registrationGroup},
		{"kcp.io/BoundedRules", boundedRules{r}, registrationGroup},
		{"kcp.io/BoundedOwners", boundedOwners{}, nil},
	}
	chain = append(chain, certificates...)
	chain = append(chain, []namedPlugin{
		{"MutatingAdmissionWebhook", newMutatingWebhooks(config), nil},
		{"MutatingAdmissionPolicy", newMutatingPolicies(config), nil},
		{"kcp.io/RoleCombinations", roleCombinations{r}, []string{rbac.GroupName}},
		{"apis.kcp.io/PermissionClaims", permissionClaims{r}, nil},
		{"ValidatingAdmissionPolicy", newValidatingPolicies(config), nil},
		{"ValidatingAdmissionWebhook", newValidatingWebhooks(config), nil},
		{"core.kcp.io/LogicalClusterLargeObjects", newLargeObjects(config), nil},
		{"core.kcp.io/LogicalClusterObjectCountLimit", objectCountLimit{config.Limits}, nil},
		{"ResourceQuota", newQuota(config), nil},
	}...)
	return chain, nil
}

// namedPlugin is a plugin with the name that its metrics have.
type namedPlugin struct {
	name   string
	plugin admission.Interface
	// groups are the API groups of the resources for which the plugin does anything; nil if it may for all resources.
	groups []string
}

// noConfiguration is the configuration of plugins without configuration files.
type noConfiguration struct{}

func (noConfiguration) ConfigFor(string) (io.Reader, error) { return nil, nil }

var (
	logicalClusterResource = corev1alpha1.Resource("logicalclusters")
	definitionResource     = schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}
	namespaceResource      = schema.GroupResource{Resource: "namespaces"}
)

// decode converts an object of a custom resource into its Go type, without the managed fields: no rule reads them, and decoding them would
// cost more than the rest of the object. An object that is not validated yet may have values of other types.
func decode(obj runtime.Object, into any) error {
	u, ok := obj.(runtime.Unstructured)
	if !ok {
		return fmt.Errorf("%w: %T", errUnexpected, obj)
	}
	content := u.UnstructuredContent()
	if metadata, ok := content["metadata"].(map[string]any); ok && metadata["managedFields"] != nil {
		content, metadata = maps.Clone(content), maps.Clone(metadata)
		delete(metadata, "managedFields")
		content["metadata"] = metadata
	}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, into)
	if err == nil {
		return nil
	}
	// Stored objects may have conditions that cannot be decoded. The storage refuses new ones and names the field.
	content, conditions := conversion.WithoutConditions(content)
	if conditions != nil && runtime.DefaultUnstructuredConverter.FromUnstructured(content, into) == nil {
		return nil
	}
	kind := u.GetObjectKind().GroupVersionKind()
	return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %[1]s: %[3]v", kind.Kind, kind.GroupVersion(),
		withField(err, content, into)))
}

// withField returns the error of the decoder of JSON for an object that the converter has refused with err, which names no field.
func withField(err error, content map[string]any, into any) error {
	data, unencodable := json.Marshal(content)
	if unencodable != nil {
		return err
	}
	return cmp.Or(json.Unmarshal(data, into), err)
}

// decodeBoth converts an object and, in an update, the old object.
func decodeBoth(a admission.Attributes, obj, old any) error {
	if err := decode(a.GetObject(), obj); err != nil || a.GetOperation() != admission.Update {
		return err
	}
	return decode(a.GetOldObject(), old)
}

func annotations(obj runtime.Object) map[string]string {
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil
	}
	return m.GetAnnotations()
}

// refusal returns the response to a request that err refuses: 403, unless err only says that the answer is not known now.
func refusal(a admission.Attributes, err error) error {
	if references.IsRetriable(err) {
		return err
	}
	return forbidden(a, "%w", err)
}

func forbidden(a admission.Attributes, format string, args ...any) error {
	return admission.NewForbidden(a, fmt.Errorf(format, args...))
}

// invalid returns the errors in the fields of an object as one error, or nil if there are none.
func invalid(a admission.Attributes, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(a.GetKind().GroupKind(), a.GetName(), errs)
}

// rules is embedded by plugins that handle requests to create or update objects.
type rules struct{ config Config }

// Handles implements admission.Interface.
func (rules) Handles(op admission.Operation) bool {
	return op == admission.Create || op == admission.Update
}

// allows reports whether the user of a request may perform an action in the cluster of ctx.
func (r rules) allows(ctx context.Context, a admission.Attributes, action authorizer.AttributesRecord) bool {
	action.User, action.ResourceRequest = a.GetUserInfo(), true
	decision, _, err := r.config.Authorizer.Authorize(ctx, action)
	return err == nil && decision == authorizer.DecisionAllow
}

// mayBind reports whether the user of a request may bind an object of a cluster. Access to the cluster is not required.
func (r rules) mayBind(ctx context.Context, a admission.Attributes, cluster logicalcluster.Name,
	resource schema.GroupResource, name string) (bool, error) {
	return r.decides(ctx, a, cluster, authorizer.AttributesRecord{
		Verb: "bind", APIGroup: resource.Group, APIVersion: "*", Resource: resource.Resource, Name: name,
	})
}

// decides reports whether a cluster, which another shard can hold, lets the user of a request perform an action. Access to the cluster is
// not required. An error is retriable: it is not known whether the action is allowed.
func (r rules) decides(ctx context.Context, a admission.Attributes, cluster logicalcluster.Name,
	action authorizer.AttributesRecord) (bool, error) {
	action.User, action.ResourceRequest = a.GetUserInfo(), true
	decision, _, err := r.config.Authorizer.Authorize(authorization.Deep(logicalcluster.WithName(ctx, cluster)), action)
	if references.IsRetriable(err) {
		return false, err
	}
	return err == nil && decision == authorizer.DecisionAllow, nil
}

// isReview reports whether a request is a review. Nothing is stored for it, and a webhook that refuses reviews could lock all users out.
func isReview(a admission.Attributes) bool {
	group := a.GetResource().Group
	return group == "authorization.k8s.io" || group == "authentication.k8s.io"
}

// errUnexpected is wrapped by errors about objects that clients cannot send.
var errUnexpected = errors.New("unexpected object")

func handles(operations ...admission.Operation) *admission.Handler {
	return admission.NewHandler(operations...)
}
