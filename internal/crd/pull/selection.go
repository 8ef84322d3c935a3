package pull

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// resource is one version of a resource that a cluster serves.
type resource struct {
	metav1.APIResource
	version schema.GroupVersion
	// preferred marks the version to use if the name has none.
	preferred    bool
	subresources []string
}

// String returns <resource>.<group>. The empty group is core.
func (r *resource) String() string { return r.Name + "." + r.group() }

func (r *resource) group() string { return cmp.Or(r.version.Group, "core") }

// servedByKcp are the resources that every workspace has: all of a group, or the given ones.
var servedByKcp = map[string][]string{
	"":                             {"namespaces", "configmaps", "secrets", "events", "resourcequotas", "serviceaccounts"},
	"rbac.authorization.k8s.io":    nil,
	"authentication.k8s.io":        nil,
	"authorization.k8s.io":         nil,
	"admissionregistration.k8s.io": nil,
	"apiextensions.k8s.io":         nil,
	"certificates.k8s.io":          nil,
	"coordination.k8s.io":          nil,
	"events.k8s.io":                nil,
	"apis.kcp.io":                  nil,
	"cache.kcp.io":                 nil,
	"core.kcp.io":                  nil,
	"tenancy.kcp.io":               nil,
	"topology.kcp.io":              nil,
}

// isExtra reports whether to pull a resource without being named: it stores objects, and workspaces do not have it by default.
func (r *resource) isExtra() bool {
	names, known := servedByKcp[r.version.Group]
	served := known && (names == nil || slices.Contains(names, r.Name))
	return !served && slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "create")
}

// served returns the resources in discovery, in its order.
func served(groups []*metav1.APIGroup, lists []*metav1.APIResourceList) ([]*resource, error) {
	var all []*resource
	byName := map[string]*resource{} // version/name
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			if !strings.Contains(r.Name, "/") {
				found := &resource{APIResource: r, version: gv}
				all = append(all, found)
				byName[gv.String()+"/"+r.Name] = found
			}
		}
		for _, r := range list.APIResources {
			name, subresource, isSub := strings.Cut(r.Name, "/")
			if parent := byName[gv.String()+"/"+name]; isSub && parent != nil {
				parent.subresources = append(parent.subresources, subresource)
			}
		}
	}
	preferred := map[string]bool{}
	for _, group := range groups {
		for _, v := range append([]metav1.GroupVersionForDiscovery{group.PreferredVersion}, group.Versions...) {
			for _, r := range all {
				if r.version.String() == v.GroupVersion && !preferred[r.String()] {
					r.preferred, preferred[r.String()] = true, true
				}
			}
		}
	}
	return all, nil
}

// selected returns the resources with the given names. Without names it returns all that isExtra selects.
func selected(all []*resource, names []string) ([]*resource, error) {
	var result []*resource
	if len(names) == 0 {
		for _, r := range all {
			if r.preferred && r.isExtra() {
				result = append(result, r)
			}
		}
		return result, nil
	}
	for _, name := range names {
		found, err := lookUp(all, strings.ToLower(name))
		if err != nil {
			return nil, err
		}
		if !slices.Contains(result, found) {
			result = append(result, found)
		}
	}
	return result, nil
}

// lookUp returns the resource with a name: its plural, or its singular, kind or a short name.
func lookUp(all []*resource, name string) (*resource, error) {
	for _, spellings := range []func(*resource) []string{
		func(r *resource) []string { return []string{r.Name} },
		func(r *resource) []string {
			return append([]string{r.SingularName, strings.ToLower(r.Kind)}, r.ShortNames...)
		},
	} {
		var found []*resource
		for _, r := range all {
			if slices.ContainsFunc(spellings(r), func(spelled string) bool { return spelled != "" && r.hasName(spelled, name) }) {
				found = append(found, r)
			}
		}
		switch len(found) {
		case 0:
		case 1:
			return found[0], nil
		default:
			return nil, fmt.Errorf("resource name %q is ambiguous: use one of %s", name, strings.Join(texts(found), ", "))
		}
	}
	return nil, notServedError(name)
}

// notServedError is the error for a name that no resource has.
type notServedError string

func (name notServedError) Error() string {
	return fmt.Sprintf("the cluster serves no resource %q; run kubectl api-resources to list them", string(name))
}

// IsNotServed reports whether Pull failed because the cluster serves no resource of a name.
func IsNotServed(err error) bool {
	var e notServedError
	return errors.As(err, &e)
}

// orUnknown replaces the error for a name that no resource has, if a group version that could have such a resource could not be discovered:
// an API service that is unavailable for a moment is no reason to take its resources for removed.
func orUnknown(err error, failed map[schema.GroupVersion]error) error {
	var name notServedError
	if !errors.As(err, &name) {
		return err
	}
	spelled, _, _ := strings.Cut(string(name), ".")
	for gv, cause := range failed {
		if r := (&resource{version: gv, preferred: true}); r.hasName(spelled, string(name)) {
			return fmt.Errorf("looking for resource %q: discovering %s: %w", string(name), gv, cause)
		}
	}
	return err
}

// texts returns the sorted names of resources.
func texts(resources []*resource) []string {
	result := make([]string, len(resources))
	for i, r := range resources {
		result[i] = r.String()
	}
	slices.Sort(result)
	return result
}

// hasName reports whether name refers to the resource by one of its spellings: alone, with the group, or with version and group.
func (r *resource) hasName(spelled, name string) bool {
	group := r.group()
	return (r.preferred && (name == spelled || name == spelled+"."+group)) || name == spelled+"."+r.version.Version+"."+group
}
