package apis

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/cli/internal/location"
)

// Kinds of providers.
const (
	BuiltIn    = "BuiltIn"
	Definition = "CustomResourceDefinition"
	Binding    = "APIBinding"
	// Unknown is a provider that the user may not read.
	Unknown = "Unknown"
)

// Provider is the source of a resource in a workspace.
type Provider struct {
	Kind string `json:"kind"`
	// Name of the CustomResourceDefinition or APIBinding.
	Name string `json:"name,omitempty"`
	// Export that is bound, as <path>:<name>.
	Export string `json:"export,omitempty"`
	// Schema is the name of the APIResourceSchema that is in effect.
	Schema string `json:"schema,omitempty"`
}

// String returns a description for people.
func (p Provider) String() string {
	switch p.Kind {
	case BuiltIn:
		return "built in"
	case Binding:
		return fmt.Sprintf("%s %s → %s", p.Kind, p.Name, p.Export)
	case Unknown:
		return "unknown"
	}
	return p.Kind
}

// Provided is a resource that a workspace serves.
type Provided struct {
	Resource string `json:"resource"`
	Group    string `json:"group"`
	// Versions that are served, in order of preference.
	Versions   []string `json:"versions"`
	Kind       string   `json:"kind"`
	ShortNames []string `json:"shortNames,omitempty"`
	Namespaced bool     `json:"namespaced"`
	ProvidedBy Provider `json:"providedBy"`
}

// Name returns the resource with its group, as kubectl accepts it.
func (p Provided) Name() string {
	return schema.GroupResource{Group: p.Group, Resource: p.Resource}.String()
}

// Known holds the possible providers that the user may read.
type Known struct {
	Bindings []apisv1alpha2.APIBinding
	// Definitions are the names of CustomResourceDefinitions.
	Definitions []string
	// Hidden are the resources that the user may not list.
	Hidden []string
}

func (k Known) provider(resource schema.GroupResource) Provider {
	for i := range k.Bindings {
		for _, bound := range k.Bindings[i].Status.BoundResources {
			if bound.Group == resource.Group && bound.Resource == resource.Resource {
				return Provider{Kind: Binding, Name: k.Bindings[i].Name, Export: Export(&k.Bindings[i]), Schema: bound.Schema.Name}
			}
		}
	}
	switch {
	case slices.Contains(k.Definitions, resource.String()):
		return Provider{Kind: Definition, Name: resource.String()}
	case len(k.Hidden) > 0:
		return Provider{Kind: Unknown}
	}
	return Provider{Kind: BuiltIn}
}

// Resources returns the resources that a workspace serves and their providers, sorted by group and resource.
func Resources(lists []*metav1.APIResourceList, known Known) ([]Provided, error) {
	var all []Provided
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") {
				continue // a subresource
			}
			i := slices.IndexFunc(all, func(p Provided) bool { return p.Group == gv.Group && p.Resource == r.Name })
			if i >= 0 {
				all[i].Versions = append(all[i].Versions, gv.Version)
				continue
			}
			all = append(all, Provided{Resource: r.Name, Group: gv.Group, Versions: []string{gv.Version}, Kind: r.Kind, ShortNames: r.ShortNames,
				Namespaced: r.Namespaced, ProvidedBy: known.provider(gv.WithResource(r.Name).GroupResource())})
		}
	}
	for _, p := range all {
		slices.SortFunc(p.Versions, func(a, b string) int { return version.CompareKubeAwareVersionStrings(b, a) })
	}
	slices.SortFunc(all, func(a, b Provided) int {
		return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Resource, b.Resource))
	})
	return all, nil
}

// Provided returns the resources that the workspace at l serves, and their providers. config must refer to that workspace. Notes
// explain what could not be read.
func (c Client) Provided(ctx context.Context, l location.Location, config *rest.Config) (provided []Provided, notes []string, err error) {
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	_, lists, err := d.ServerGroupsAndResourcesWithContext(ctx)
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, nil, c.workspaces.Explain(ctx, l, err)
	} else if err != nil {
		notes = append(notes, err.Error()) // one unavailable group does not hide the others
	}
	known, err := c.known(ctx, l, config)
	if err != nil {
		return nil, nil, err
	}
	for _, hidden := range known.Hidden {
		notes = append(notes, fmt.Sprintf("you may not list the %s of %s, so some providers are unknown", hidden, l))
	}
	provided, err = Resources(lists, known)
	return provided, notes, err
}

// known reads bindings and definitions. Missing permissions are not an error.
func (c Client) known(ctx context.Context, l location.Location, config *rest.Config) (Known, error) {
	var known Known
	found, err := c.Bindings(ctx, l)
	switch {
	case apierrors.IsForbidden(err):
		known.Hidden = append(known.Hidden, "APIBindings")
	case err != nil:
		return known, err
	}
	known.Bindings = found
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return known, err
	}
	definitions, err := objects.Resource(
		apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"),
	).List(
		ctx,
		metav1.ListOptions{},
	)
	switch {
	case apierrors.IsForbidden(err):
		known.Hidden = append(known.Hidden, "CustomResourceDefinitions")
		return known, nil
	case err != nil:
		return known, c.workspaces.Explain(ctx, l, err)
	}
	for i := range definitions.Items {
		known.Definitions = append(known.Definitions, definitions.Items[i].Name)
	}
	return known, nil
}
