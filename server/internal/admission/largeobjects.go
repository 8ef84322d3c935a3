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
	// largeObject is the weight from which on an object counts. maxDefinitions is the weight of the definitions of a logical cluster, and
	// maxOthers that of its other large objects, in bytes.
	largeObject, maxDefinitions, maxOthers = 16 << 10, 192 << 20, 64 << 20
	// schemaWeight is what each schema in a definition takes once the definition is served, besides its bytes. Values that an enumeration
	// allows, and expressions, which are compiled, take more.
	schemaWeight, valueWeight, expressionWeight = 3 << 10, 128, 80 << 10
	// ruleWeight is the same for each rule of a role, and subjectWeight for each subject of a binding.
	ruleWeight, subjectWeight = 256, 64
)

// largeObjects bounds how much of what the server keeps in memory for all clusters a cluster may store, and all clusters of a tenant. Small
// objects are not counted: only clusters with large ones are in memory.
type largeObjects struct {
	rules
	*weights
}

// held is what a logical cluster has of large objects.
type held struct{ definitions, others int }

func (h held) total() int { return h.definitions + h.others }

func (h *held) of(resource schema.GroupResource) *int {
	if defines(resource) {
		return &h.definitions
	}
	return &h.others
}

var (
	definitions = apiextensionsv1.Resource("customresourcedefinitions")
	schemas     = apisv1alpha1.SchemeGroupVersion.WithResource("apiresourceschemas").GroupResource()
)

// defines returns whether the objects of a resource define others.
func defines(resource schema.GroupResource) bool {
	return resource == definitions || resource == schemas
}

// weights are those of large objects.
type weights struct {
	followed map[schema.GroupResource]bool

	mu       sync.Mutex
	objects  map[weighed]int
	clusters map[logicalcluster.Name]held
	all      int
}

type weighed struct {
	resource schema.GroupResource
	informers.Key
}

var _ admission.ValidationInterface = largeObjects{}

func newLargeObjects(config Config) largeObjects {
	w := &weights{followed: map[schema.GroupResource]bool{}, objects: map[weighed]int{}, clusters: map[logicalcluster.Name]held{}}
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

// of returns the weight of what a cluster has that is like a resource, and of what all clusters have.
func (w *weights) of(cluster logicalcluster.Name, resource schema.GroupResource) (weight, all int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.clusters[cluster]
	return *h.of(resource), w.all
}

// ofTenant returns the weight of what the tenant has who pays for a cluster.
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

// weightOf returns how much memory an object takes: about its size, and what is made of the schemas in it.
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

// weightOfSchema returns how much memory is made of a schema and those in it.
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

// weightOfRaw returns about the same for schemas in JSON, without decoding them: what has a brace is a schema, a list of properties or an
// expression, and what has a comma may be a value.
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
		return forbidden(a, "the logical cluster has large %s that take %d MiB, and may have %d MiB, "+
			"because the server keeps these in memory: delete what is not needed, or ask an administrator of the installation to store this",
			what, weight>>20, limit>>20)
	}
	tenants := l.ofTenant(cluster, l.config.Payer)
	if all < l.config.MaxLargeObjects && tenants < max(l.config.MaxLargeObjects-all, l.config.MaxLargeObjects/64) {
		return nil
	}
	return forbidden(a, "the logical clusters of the owner have large definitions, roles, bindings, webhooks and policies that take %d MiB, "+
		"which is their share of what the server may keep in memory (--max-large-object-bytes): delete what is not needed, or ask an "+
		"administrator of the installation to store this", tenants>>20)
}

// grows returns whether a write makes a large object, or makes one larger.
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
