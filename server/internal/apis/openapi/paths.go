package openapi

import (
	"fmt"
	"strings"

	"github.com/emicklei/go-restful/v3"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	generatedopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/common/restfuladapter"
)

// pathsBeside returns the documents of the paths of a view that do not belong to a version of resources: discovery, and the version
// of the server.
func (o *OpenAPI) pathsBeside(versions sets.Set[string]) (map[string]*groupV3, error) {
	services := map[string]func() *restful.WebService{
		"api": func() *restful.WebService {
			return discovery.NewLegacyRootAPIHandler(discovery.DefaultAddresses{}, apiextensionsapiserver.Codecs, "/api").WebService()
		},
		"apis": func() *restful.WebService {
			return discovery.NewRootAPIsHandler(discovery.DefaultAddresses{}, apiextensionsapiserver.Codecs).WebService()
		},
		"version": func() *restful.WebService {
			container := restful.NewContainer()
			routes.Version{Version: &version.Info{}}.Install(container)
			return container.RegisteredWebServices()[0]
		},
	}
	for path := range versions {
		if parts := strings.Split(path, "/"); len(parts) == 3 && parts[0] == "apis" {
			services["apis/"+parts[1]] = func() *restful.WebService {
				return discovery.NewAPIGroupHandler(apiextensionsapiserver.Codecs, metav1.APIGroup{Name: parts[1]}).WebService()
			}
		}
	}
	documents := map[string]*groupV3{}
	for path, service := range services {
		document, err := cached(o, o.groups, "service "+path, func() (*groupV3, error) { return describe(path, service()) })
		if err != nil {
			return nil, err
		}
		documents[path] = document
	}
	return documents, nil
}

// describe returns the document of a service.
func describe(path string, service *restful.WebService) (*groupV3, error) {
	config := genericapiserver.DefaultOpenAPIV3Config(generatedopenapi.GetOpenAPIDefinitions,
		openapinamer.NewDefinitionNamer(apiextensionsapiserver.Scheme))
	config.Info.Title, config.Info.Version = "Kubernetes", "v1"
	document, err := builder3.BuildOpenAPISpecFromRoutes(restfuladapter.AdaptWebServices([]*restful.WebService{service}), config)
	if err != nil {
		return nil, fmt.Errorf("OpenAPI of /%s: %w", path, err)
	}
	return newGroupV3(path, document)
}
