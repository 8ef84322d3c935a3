package apibinding

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/internal/informers"
)

// holder is the owner of the name of a resource.
type holder struct {
	// Binding is the name of an APIBinding. CRD is set for a definition of the cluster itself.
	Binding string `json:"n,omitempty"`
	CRD     bool   `json:"c,omitempty"`
	// Expiry ends the hold of a definition that was not created.
	Expiry *time.Time `json:"e,omitempty"`
}

// acquire makes the binding the holder of the offered resources without a holder, and returns all resources that it holds.
func (r *reconciler) acquire(ctx context.Context, key informers.Key, binding *apisv1alpha2.APIBinding,
	offers []offer) (map[string]bool, error) {
	definitions, err := r.Set.CustomResourceDefinitions.List(key.Cluster)
	if err != nil {
		return nil, err
	}
	others := sets.New[string]()
	for _, b := range r.Exports.BindingsIn(key.Cluster) {
		others.Insert(b.Name)
	}
	var taken map[string]bool
	lc, err := r.Set.LogicalClusters.Get(key.Cluster, "", corev1alpha1.LogicalClusterName)
	if err != nil {
		return nil, err
	}
	// Mostly nothing changes. Then nothing is read or written.
	held := decode(lc.Annotations[apisv1alpha2.ResourceBindingsAnnotation])
	now := maps.Clone(held)
	if taken = assign(now, binding.Name, others, definitions, offers, r.Clock.Now()); maps.Equal(held, now) &&
		lc.Annotations[apisv1alpha2.ResourceBindingsAnnotation] != "" {
		return taken, nil
	}
	err = r.Clusters.Update(ctx, corev1alpha1.LogicalClusterName, &corev1alpha1.LogicalCluster{}, func(obj runtime.Object) error {
		live := obj.(*corev1alpha1.LogicalCluster)
		holders := decode(live.Annotations[apisv1alpha2.ResourceBindingsAnnotation])
		taken = assign(holders, binding.Name, others, definitions, offers, r.Clock.Now())
		content, err := json.Marshal(holders)
		if err != nil {
			return err
		}
		metav1.SetMetaDataAnnotation(&live.ObjectMeta, apisv1alpha2.ResourceBindingsAnnotation, string(content))
		return nil
	})
	return taken, err
}

// decode returns the holders by resource. If the annotation is invalid there are none, and assign finds them again.
func decode(annotation string) map[string]holder {
	holders := map[string]holder{}
	if json.Unmarshal([]byte(annotation), &holders) != nil {
		return map[string]holder{}
	}
	return holders
}

// Holder returns the name of the APIBinding that holds a resource of a logical cluster, in the form of customresources.ResourceName, and
// the empty string if none does.
func Holder(lc *corev1alpha1.LogicalCluster, key string) string {
	return decode(lc.Annotations[apisv1alpha2.ResourceBindingsAnnotation])[key].Binding
}

// assign brings holders up to date with the existing definitions and bindings, assigns the free resources of the offers to the binding, and
// returns the resources that the binding holds.
func assign(holders map[string]holder, binding string, bindings sets.Set[string], definitions []*apiextensionsv1.CustomResourceDefinition,
	offers []offer, now time.Time) map[string]bool {
	own := sets.New[string]()
	for _, crd := range definitions {
		if key := customresources.ResourceName(crd.Spec.Names.Plural, crd.Spec.Group); apiextensionshelpers.IsCRDConditionTrue(crd,
			apiextensionsv1.Established) {
			own.Insert(key)
		}
	}
	for key, h := range holders {
		deleted := (h.Binding != "" && h.Binding != binding && !bindings.Has(h.Binding)) ||
			(h.CRD && !own.Has(key) && (h.Expiry == nil || h.Expiry.Before(now)))
		if deleted {
			delete(holders, key)
		}
	}
	for key := range own {
		if _, held := holders[key]; !held {
			holders[key] = holder{CRD: true}
		}
	}
	taken := map[string]bool{}
	for _, o := range offers {
		if h, held := holders[o.key()]; held && h.Binding != binding {
			continue
		}
		holders[o.key()] = holder{Binding: binding}
		taken[o.key()] = true
	}
	return taken
}

// conflict returns why a schema cannot be served beside the resources that a cluster serves already, other than those of the binding.
func conflict(s *apisv1alpha1.APIResourceSchema, served []customresources.Installed,
	builtIn []apiextensionsv1.CustomResourceDefinitionNames, binding string) error {
	wanted := s.Spec.Names
	resources := sets.New(wanted.ShortNames...).Insert(wanted.Plural, wanted.Singular).Delete("")
	kinds := sets.New(wanted.Kind, wanted.ListKind).Delete("")
	shared := func(names apiextensionsv1.CustomResourceDefinitionNames) []string {
		return sets.List(resources.Intersection(sets.New(names.ShortNames...).Insert(names.Plural, names.Singular)).
			Union(kinds.Intersection(sets.New(names.Kind, names.ListKind))))
	}
	inUse := func(with string, names []string) error {
		return fmt.Errorf("naming conflict with %s: the names %v of %s are in use", with, names,
			customresources.ResourceName(wanted.Plural, s.Spec.Group))
	}
	for _, names := range builtIn {
		if both := shared(names); len(both) > 0 {
			return inUse(fmt.Sprintf("%s, which is built in", customresources.ResourceName(names.Plural, s.Spec.Group)), both)
		}
	}
	for _, i := range served {
		if i.CRD.Spec.Group != s.Spec.Group || (i.Binding == binding && i.CRD.Spec.Names.Plural == wanted.Plural) {
			continue
		}
		both := shared(i.CRD.Status.AcceptedNames)
		if len(both) == 0 {
			continue
		}
		with := fmt.Sprintf("CustomResourceDefinition %q", i.CRD.Name)
		if i.Binding != "" {
			with = fmt.Sprintf("APIBinding %q bound to %s", i.Binding, i.CRD.Name)
		}
		return inUse(with, both)
	}
	return nil
}
