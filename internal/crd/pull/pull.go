// Package pull gets definitions of the resources that a cluster serves: existing CustomResourceDefinitions if they are readable, or
// definitions that it generates from discovery and OpenAPI.
package pull

import (
	"context"
	"encoding/json"
	"fmt"
	"path"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/openapi3"
	"k8s.io/client-go/rest"

	"github.com/kcplane/kcp/internal/crd"
)

// Cluster is the cluster to pull definitions from.
type Cluster struct {
	discovery   *discovery.DiscoveryClient
	definitions clientset.Interface
	documents   map[schema.GroupVersion]document
}

// New returns a cluster for a client configuration.
func New(config *rest.Config) (*Cluster, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1                           // the server has its own fairness between users
	config.WarningHandler = rest.NoWarnings{} // the user requested deprecated types explicitly
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	d, err := discovery.NewDiscoveryClientForConfigAndClient(config, http)
	if err != nil {
		return nil, err
	}
	definitions, err := clientset.NewForConfigAndClient(config, http)
	return &Cluster{d, definitions, map[schema.GroupVersion]document{}}, err
}

// Pulled is the result of Pull.
type Pulled struct {
	Definitions []*apiextensionsv1.CustomResourceDefinition
	// Notes explain where a definition is incomplete.
	Notes []string
}

// Pull returns definitions of the resources with the given names, such as widgets or widgets.example.com. Without names it returns
// definitions of all resources that store objects, except those that every workspace already has.
func (c *Cluster) Pull(ctx context.Context, names []string) (Pulled, error) {
	var pulled Pulled
	groups, lists, err := c.discovery.ServerGroupsAndResourcesWithContext(ctx)
	failed, partial := discovery.GroupDiscoveryFailedErrorGroups(err)
	if err != nil && !partial {
		return pulled, err
	} else if err != nil {
		pulled.Notes = append(pulled.Notes, err.Error()) // an unavailable API service does not hide the others
	}
	all, err := served(groups, lists)
	if err != nil {
		return pulled, err
	}
	resources, err := selected(all, names)
	if err != nil {
		err = orUnknown(err, failed)
		return pulled, err
	}
	for _, r := range resources {
		definition, notes, err := c.pull(ctx, r)
		if err != nil {
			err = fmt.Errorf("%s: %w", r, err)
			if len(names) > 0 {
				return pulled, err
			}
			pulled.Notes = append(pulled.Notes, err.Error()+"; skipped")
			continue
		}
		pulled.Definitions = append(pulled.Definitions, definition)
		for _, note := range notes {
			pulled.Notes = append(pulled.Notes, r.String()+": "+note)
		}
	}
	return pulled, nil
}

// pull returns the definition of one resource.
func (c *Cluster) pull(ctx context.Context, r *resource) (*apiextensionsv1.CustomResourceDefinition, []string, error) {
	var notes []string
	built := false
	stored, err := c.definitions.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, r.String(), metav1.GetOptions{})
	var definition *apiextensionsv1.CustomResourceDefinition
	switch {
	case err == nil:
		definition = crd.Clean(stored)
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		if apierrors.IsForbidden(err) {
			notes = append(notes, "you may not read its CustomResourceDefinition; generated from discovery and OpenAPI instead")
		}
		document, err := c.document(r.version)
		if err != nil {
			return nil, nil, err
		}
		if definition, err = build(r, document, c.table(ctx, r)); err != nil {
			return nil, nil, err
		}
		built = true
		if sub := definition.Spec.Versions[0].Subresources; sub != nil && sub.Scale != nil && document.isCustom(r.version.WithKind(r.Kind)) {
			notes = append(notes, "the paths of its scale subresource are not published; assuming .spec.replicas and .status.replicas")
		}
	default:
		return nil, nil, err
	}
	if definition.Spec.PreserveUnknownFields {
		notes = append(notes, "spec.preserveUnknownFields is true; replaced its schema by one that accepts everything")
		open(definition)
	} else if problems := crd.Problems(definition); built && len(problems) > 0 {
		notes = append(notes, "replaced its schema by one that accepts everything: "+problems.ToAggregate().Error())
		open(definition)
	}
	return definition, notes, nil
}

// document returns the OpenAPI document of a group version.
func (c *Cluster) document(gv schema.GroupVersion) (document, error) {
	if d, found := c.documents[gv]; found {
		return d, nil
	}
	openAPI, err := openapi3.NewRoot(c.discovery.OpenAPIV3()).GVSpec(gv)
	if err != nil {
		return document{}, fmt.Errorf("reading the OpenAPI document of %s: %w", gv, err)
	}
	c.documents[gv] = newDocument(openAPI)
	return c.documents[gv], nil
}

// table reads the printer columns of a resource. It returns nil on errors, because columns are optional.
func (c *Cluster) table(ctx context.Context, r *resource) *metav1.Table {
	prefix := "/apis"
	if r.version.Group == "" {
		prefix = "/api"
	}
	content, err := c.discovery.RESTClient().Get().AbsPath(path.Join(prefix, r.version.String(), r.Name)).Param("limit", "1").
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(ctx).Raw()
	table := &metav1.Table{}
	if err != nil || json.Unmarshal(content, table) != nil {
		return nil
	}
	return table
}
