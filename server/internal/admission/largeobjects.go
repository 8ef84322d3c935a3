package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

const (
	// largeObject is the weight from which an object counts. maxDefinitions limits the weight of the definitions of a logical cluster, and
	// maxOthers that of its other large objects, in bytes.
	largeObject, maxDefinitions, maxOthers = 16 << 10, 192 << 20, 64 << 20
	// schemaWeight is the memory of each schema in a definition while the definition is served, in addition to its bytes. valueWeight is
	// that of each value of an enumeration, and expressionWeight that of each expression, which is compiled.
	schemaWeight, valueWeight, expressionWeight = 3 << 10, 128, 80 << 10
	// ruleWeight is the memory of each rule of a role, and subjectWeight that of each subject of a binding, in addition to their bytes.
	ruleWeight, subjectWeight = 256, 64
)

// largeObjects limits the objects of a cluster, and of all clusters of a tenant, that the server keeps in memory. Small objects are not
// counted: only clusters with large objects have an entry.
type largeObjects struct {
	rules
	*weights
}

// clusterWeight is the weight of the large objects of a logical cluster.
type clusterWeight struct{ definitions, others int }

func (h clusterWeight) total() int { return h.definitions + h.others }

func (h *clusterWeight) of(resource schema.GroupResource) *int {
	if defines(resource) {
		return &h.definitions
	}
	return &h.others
}

var (
	definitions = apiextensionsv1.Resource("customresourcedefinitions")
	schemas     = apisv1alpha1.SchemeGroupVersion.WithResource("apiresourceschemas").GroupResource()
)

// defines reports whether the objects of a resource are definitions.
func defines(resource schema.GroupResource) bool {
	return resource == definitions || resource == schemas
}

// weights records the weights of large objects.
type weights struct {
	followed map[schema.GroupResource]bool

	mu       sync.Mutex
	objects  map[weighed]int
	clusters map[logicalcluster.Name]clusterWeight
	all      int
}

type weighed struct {
	resource schema.GroupResource
	informers.Key
}

var _ admission.ValidationInterface = largeObjects{}

func newLargeObjects(config Config) largeObjects {
	w := &weights{followed: map[schema.GroupResource]bool{}, objects: map[weighed]int{}, clusters: map[logicalcluster.Name]clusterWeight{}}
	for _, i := range []*informers.Informer{
		config.Set.ClusterRoles.Informer, config.Set.ClusterRoleBindings.Informer, config.Set.Roles.Informer, config.Set.RoleBindings.Informer,
		config.Set.CustomResourceDefinitions.Informer, config.Set.APIResourceSchemas.Informer,
		config.Set.ValidatingWebhookConfigurations.Informer, config.Set.MutatingWebhookConfigurations.Informer,
		config.Set.ValidatingAdmissionPolicies.Informer, config.Set.ValidatingAdmissionPolicyBindings.Informer,
		config.Set.MutatingAdmissionPolicies.Informer, config.Set.MutatingAdmissionPolicyBindings.Informer,
	} {
		w.follow(i)
	}
	return largeObjects{rules{config}, w}
}

func (w *weights) follow(i *informers.Informer) {
	resource := i.Resource().GroupResource()
	w.followed[resource] = true
	i.AddHandler(func(old, obj runtime.Object) {
		weight, of := 0, old
		if obj != nil {
			weight, of = weightOf(obj), obj
		}
		if key, err := informers.KeyOf(of); err == nil {
			w.set(weighed{resource, key}, weight)
		}
	})
}

func (w *weights) set(object weighed, weight int) {
	if weight < largeObject {
		weight = 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	change := weight - w.objects[object]
	if change == 0 {
		return
	}
	if w.objects[object] = weight; weight == 0 {
		delete(w.objects, object)
	}
	w.all += change
	h := w.clusters[object.Cluster]
	if *h.of(object.resource) += change; h.total() == 0 {
		delete(w.clusters, object.Cluster)
		return
	}
	w.clusters[object.Cluster] = h
}

// of returns the weight of the objects of a cluster that share the limit of a resource, and the weight of the objects of all clusters.
func (w *weights) of(cluster logicalcluster.Name, resource schema.GroupResource) (weight, all int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.clusters[cluster]
	return *h.of(resource), w.all
}

// ofTenant returns the weight of the objects in all clusters of the tenant that a cluster is charged to.
func (w *weights) ofTenant(cluster logicalcluster.Name, payer func(logicalcluster.Name) string) int {
	w.mu.Lock()
	clusters := maps.Clone(w.clusters)
	w.mu.Unlock()
	who, sum := payer(cluster), 0
	for name, h := range clusters {
		if payer(name) == who {
			sum += h.total()
		}
	}
	return sum
}

// weightOf returns the approximate memory of an object: its size, and the memory of the schemas in it.
func weightOf(obj runtime.Object) int {
	weight := 0
	switch obj := obj.(type) {
	case *apiextensionsv1.CustomResourceDefinition:
		weight = obj.Size()
		for _, v := range obj.Spec.Versions {
			if v.Schema != nil {
				weight += weightOfSchema(v.Schema.OpenAPIV3Schema)
			}
		}
	case *apisv1alpha1.APIResourceSchema:
		for _, v := range obj.Spec.Versions {
			weight += weightOfRaw(v.Schema.Raw)
		}
	case *rbacv1.ClusterRole:
		weight = obj.Size() + ruleWeight*len(obj.Rules)
	case *rbacv1.Role:
		weight = obj.Size() + ruleWeight*len(obj.Rules)
	case *rbacv1.ClusterRoleBinding:
		weight = obj.Size() + subjectWeight*len(obj.Subjects)
	case *rbacv1.RoleBinding:
		weight = obj.Size() + subjectWeight*len(obj.Subjects)
	case interface{ Size() int }:
		weight = obj.Size()
	}
	return weight
}

// weightOfSchema returns the approximate memory of a schema with those in it.
func weightOfSchema(s *apiextensionsv1.JSONSchemaProps) int {
	if s == nil {
		return 0
	}
	weight := schemaWeight + valueWeight*len(s.Enum) + expressionWeight*len(s.XValidations) + weightOfSchema(s.Not)
	for _, named := range []map[string]apiextensionsv1.JSONSchemaProps{s.Properties, s.PatternProperties, s.Definitions} {
		for _, property := range named {
			weight += weightOfSchema(&property)
		}
	}
	for _, list := range [][]apiextensionsv1.JSONSchemaProps{s.AllOf, s.AnyOf, s.OneOf} {
		for i := range list {
			weight += weightOfSchema(&list[i])
		}
	}
	if s.Items != nil {
		weight += weightOfSchema(s.Items.Schema)
	}
	if s.AdditionalProperties != nil {
		weight += weightOfSchema(s.AdditionalProperties.Schema)
	}
	return weight
}

// weightOfRaw returns an estimate of weightOfSchema for schemas in JSON without decoding them: each brace begins a schema, a list of
// properties or an expression, and each comma may separate values.
func weightOfRaw(content []byte) int {
	expressions := bytes.Count(content, []byte(`"rule":`))
	braces := bytes.Count(content, []byte{'{'}) - bytes.Count(content, []byte(`"properties":{`)) - expressions
	return len(content) + schemaWeight*braces + valueWeight*bytes.Count(content, []byte{','}) + expressionWeight*expressions
}

// Validate implements admission.ValidationInterface.
func (l largeObjects) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	resource := a.GetResource().GroupResource()
	if !l.followed[resource] || a.GetSubresource() != "" || a.GetObject() == nil {
		return nil
	}
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil || cluster == logicalcluster.Root || cluster.IsSystem() {
		return err
	}
	limit, what := maxOthers, "roles, bindings, webhooks and policies"
	if defines(resource) {
		limit, what = maxDefinitions, "definitions"
	}
	weight, all := l.of(cluster, resource)
	full, scarce := weight >= limit, l.config.MaxLargeObjects > 0 && all >= l.config.MaxLargeObjects/2
	if (!full && !scarce) || authorization.IsServer(ctx) ||
		authorization.Administers(authorization.GroupsIn(ctx, a.GetUserInfo())) || !grows(a) {
		return nil
	}
	if full {
		return forbidden(a, "the logical cluster has large %s that take %d MiB, the limit is %d MiB, "+
			"because the server keeps these in memory: delete unneeded ones, or ask an administrator of the installation to store this object",
			what, weight>>20, limit>>20)
	}
	tenants := l.ofTenant(cluster, l.config.Payer)
	if all < l.config.MaxLargeObjects && tenants < max(l.config.MaxLargeObjects-all, l.config.MaxLargeObjects/64) {
		return nil
	}
	return forbidden(a, "the logical clusters of the owner have large definitions, roles, bindings, webhooks and policies that take %d MiB, "+
		"which is their share of the memory of the server for such objects (--max-large-object-bytes): delete unneeded ones, or ask an "+
		"administrator of the installation to store this object", tenants>>20)
}

// grows reports whether a write creates a large object, or makes one larger.
func grows(a admission.Attributes) bool {
	size := func(obj runtime.Object) int {
		content, err := json.Marshal(obj)
		if obj == nil || err != nil {
			return 0
		}
		if defines(a.GetResource().GroupResource()) {
			return weightOfRaw(content)
		}
		return len(content)
	}
	n := size(a.GetObject())
	return n >= largeObject && n > size(a.GetOldObject())
}
