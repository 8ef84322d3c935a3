package openapi

import (
	"errors"
	"fmt"
	"net/http"

	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/logicalcluster"
)

func (o *OpenAPI) documentV2(cluster logicalcluster.Name) (http.Handler, error) {
	installed := o.custom(cluster)
	return cached(o, o.v2, setKey(installed), func() (http.Handler, error) {
		static := o.static()
		if static == nil {
			return nil, errors.New("the OpenAPI document of the built-in types is not ready yet")
		}
		return buildV2(static, installed)
	})
}

func buildV2(static *spec.Swagger, installed []customresources.Installed) (http.Handler, error) {
	var documents []*spec.Swagger
	for _, i := range installed {
		for _, v := range i.CRD.Spec.Versions {
			if !v.Served {
				continue
			}
			document, err := builder.BuildOpenAPIV2(i.CRD, v.Name, builder.Options{V2: true, IncludeSelectableFields: true})
			if err != nil {
				return nil, fmt.Errorf("OpenAPI of %s: %w", i.CRD.Name, err)
			}
			// As in the static document; otherwise types in both documents would count as different types.
			document.Definitions = handler.PruneDefaults(document.Definitions)
			if i.CRD.Spec.Group == "" {
				paths := make(map[string]spec.PathItem, len(document.Paths.Paths))
				for path, item := range document.Paths.Paths {
					paths[corePath(path)] = item
				}
				document.Paths = &spec.Paths{VendorExtensible: document.Paths.VendorExtensible, Paths: paths}
			}
			for path, item := range document.Paths.Paths {
				if !i.CanBeWritten(subresourceOf(path)) {
					item.Post, item.Put, item.Patch, item.Delete = nil, nil, nil, nil
					document.Paths.Paths[path] = item
				}
			}
			documents = append(documents, document)
		}
	}
	merged, err := builder.MergeSpecs(static, documents...)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	handler.NewOpenAPIService(merged).RegisterOpenAPIVersionedService(pathV2, mux)
	return mux, nil
}
