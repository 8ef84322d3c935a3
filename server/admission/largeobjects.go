package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	"github.com/kcplane/kcp/server/authorization"
	"github.com/kcplane/kcp/server/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

const (
	// largeObject is the weight from which on an object counts, and maxLargeObjects the weight of those of a logical cluster, in bytes.
	largeObject, maxLargeObjects = 16 << 10, 64 << 20
	// schemaWeight is what each schema in a definition weighs besides its bytes: in memory it takes some times as much, once it is served.
	schemaWeight = 512
	// ruleWeight is the same for each rule of a role, and subjectWeight for each subject of a binding.
	ruleWeight, subjectWeight = 256, 64
)

// largeObjects bounds how much of what the server keeps in memory for all clusters a cluster may store. Small objects are not counted:
// only clusters with large ones are in memory.
type largeObjects struct {
	rules
	*weights
}

// weights are those of large objects.
type weights struct {
	followed map[schema.GroupResource]bool

	mu       sync.Mutex
	objects  map[weighed]int
	clusters map[logicalcluster.Name]int
}

type weighed struct {
	resource schema.GroupResource
	informers.Key
}

var _ admission.ValidationInterface = largeObjects{}

func newLargeObjects(config Config) largeObjects {
	w := &weights{followed: map[schema.GroupResource]bool{}, objects: map[weighed]int{}, clusters: map[logicalcluster.Name]int{}}
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
	if w.clusters[object.Cluster] += change; w.clusters[object.Cluster] == 0 {
		delete(w.clusters, object.Cluster)
	}
}

func (w *weights) of(cluster logicalcluster.Name) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.clusters[cluster]
}

// weightOf returns how much memory an object takes: about its size, and what is made of the schemas in it.
func weightOf(obj runtime.Object) int {
	weight := 0
	switch obj := obj.(type) {
	case *apiextensionsv1.CustomResourceDefinition:
		weight = obj.Size()
		for _, v := range obj.Spec.Versions {
			if v.Schema != nil {
				weight += schemaWeight * schemasIn(v.Schema.OpenAPIV3Schema)
			}
		}
	case *apisv1alpha1.APIResourceSchema:
		for _, v := range obj.Spec.Versions {
			weight += 4 * len(v.Schema.Raw)
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

// schemasIn returns the number of schemas, itself included.
func schemasIn(s *apiextensionsv1.JSONSchemaProps) int {
	if s == nil {
		return 0
	}
	n := 1
	for _, property := range s.Properties {
		n += schemasIn(&property)
	}
	if s.Items != nil {
		n += schemasIn(s.Items.Schema)
	}
	if s.AdditionalProperties != nil {
		n += schemasIn(s.AdditionalProperties.Schema)
	}
	return n
}

// Validate implements admission.ValidationInterface.
func (l largeObjects) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !l.followed[a.GetResource().GroupResource()] || a.GetSubresource() != "" || a.GetObject() == nil {
		return nil
	}
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil || cluster == logicalcluster.Root || cluster.IsSystem() {
		return err
	}
	held := l.of(cluster)
	if held < maxLargeObjects || authorization.IsServer(ctx) || authorization.Administers(authorization.GroupsIn(ctx, a.GetUserInfo())) || !grows(a) {
		return nil
	}
	return forbidden(a, "%s", fmt.Sprintf("the logical cluster has %d MiB of large definitions, roles, bindings, webhooks and policies, and may have %d MiB, "+
		"because the server keeps these in memory: delete what is not needed, or ask an administrator of the installation to store this", held>>20, maxLargeObjects>>20))
}

// grows returns whether a write makes a large object, or makes one larger.
func grows(a admission.Attributes) bool {
	size := func(obj runtime.Object) int {
		content, err := json.Marshal(obj)
		if obj == nil || err != nil {
			return 0
		}
		return len(content)
	}
	n := size(a.GetObject())
	return n >= largeObject && n > size(a.GetOldObject())
}
