// Package pull gets definitions of the resources that a cluster serves: its CustomResourceDefinitions where they can be read,
// and else ones that are made from discovery and OpenAPI.
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

	"github.com/kcplane/kcp/cli/crd"
)

// Cluster is where definitions are pulled from.
type Cluster struct {
	discovery   *discovery.DiscoveryClient
	definitions clientset.Interface
	documents   map[schema.GroupVersion]document
}

// New returns the cluster that a config leads to.
func New(config *rest.Config) (*Cluster, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1                           // the server has its own fairness between users
	config.WarningHandler = rest.NoWarnings{} // that a type is deprecated is no news to whoever asks for it
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

// Pulled is what there is to know about the resources that were asked for.
type Pulled struct {
	Definitions []*apiextensionsv1.CustomResourceDefinition
	// Notes say where a definition is less than the resource has.
	Notes []string
}

// Pull returns definitions of the resources with these names, such as widgets or widgets.example.com. Without names it returns
// those of all that hold objects, apart from what every workspace of kcp has already.
func (c *Cluster) Pull(ctx context.Context, names []string) (Pulled, error) {
	var pulled Pulled
	groups, lists, err := c.discovery.ServerGroupsAndResourcesWithContext(ctx)
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return pulled, err
	} else if err != nil {
		pulled.Notes = append(pulled.Notes, err.Error()) // that of another API server must not keep us from the rest
	}
	all, err := served(groups, lists)
	if err != nil {
		return pulled, err
	}
	resources, err := selected(all, names)
	if err != nil {
		return pulled, err
	}
	for _, r := range resources {
		definition, notes, err := c.pull(ctx, r)
		if err != nil {
			err = fmt.Errorf("%s: %w", r, err)
			if len(names) > 0 {
				return pulled, err
			}
			pulled.Notes = append(pulled.Notes, err.Error()+"; it is left out")
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
			notes = append(notes, "you may not read a CustomResourceDefinition, so this is made from discovery and OpenAPI")
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
			notes = append(notes, "where its scale finds the replicas is not published; .spec.replicas and .status.replicas are assumed")
		}
	default:
		return nil, nil, err
	}
	if definition.Spec.PreserveUnknownFields {
		notes = append(notes, "spec.preserveUnknownFields is true, so the schema is replaced by one that accepts everything")
		open(definition)
	} else if problems := crd.Problems(definition); built && len(problems) > 0 {
		notes = append(notes, "the schema is replaced by one that accepts everything: "+problems.ToAggregate().Error())
		open(definition)
	}
	return definition, notes, nil
}

// document returns the OpenAPI description of a version of a group.
func (c *Cluster) document(gv schema.GroupVersion) (document, error) {
	if d, found := c.documents[gv]; found {
		return d, nil
	}
	openAPI, err := openapi3.NewRoot(c.discovery.OpenAPIV3()).GVSpec(gv)
	if err != nil {
		return document{}, fmt.Errorf("reading the OpenAPI description of %s: %w", gv, err)
	}
	c.documents[gv] = newDocument(openAPI)
	return c.documents[gv], nil
}

// table asks for the columns of a resource. That they cannot be had is no reason to fail: every resource can be shown without.
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
