// Package apiresourceschema implements the virtual workspace with the schemas of the APIs that a consumer binds: users who
// may read the APIBindings of a logical cluster can read their schemas, without permissions in the workspaces of providers.
package apiresourceschema

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/tenancy/exports"
	"github.com/kcplane/kcp/server/logicalcluster"
	"github.com/kcplane/kcp/server/virtual"
	"github.com/kcplane/kcp/server/virtual/resources"
)

// Name of the virtual workspace, as in paths.
const Name = "apiresourceschema"

// Config of the virtual workspace.
type Config struct {
	// Stored are the APIBindings of all clusters.
	Stored exports.Stored
	// Schemas are those of all clusters, and Kept reads a copy that the server keeps for consumers.
	Schemas informers.Lister[*apisv1alpha1.APIResourceSchema]
	Kept    interface {
		Get(ctx context.Context, name string, out runtime.Object) error
	}
	Authorizer authorizer.UnconditionalAuthorizer
}

// Find returns the function that finds the view at <cluster>/[clusters/<the same or *>/]…, for virtual.Views.
func (c Config) Find() (func(path string) (virtual.View, string, error), error) {
	crd, err := customresources.System("apiresourceschemas.apis.kcp.io")
	if err != nil {
		return nil, err
	}
	api, err := resources.New(resources.Resource{
		Definition: crd, ReadOnly: true,
		Objects: func(ctx context.Context, _ string) (resources.Objects, error) {
			cluster, err := logicalcluster.NameFrom(ctx)
			return objects{Config: c, cluster: cluster}, err
		},
	})
	return func(path string) (virtual.View, string, error) {
		consumer, rest, err := target(path)
		return view{config: c, api: api, consumer: consumer}, rest, err
	}, err
}

// target splits <cluster>/[clusters/<the same or *>/]<path>.
func target(path string) (logicalcluster.Name, string, error) {
	consumer, rest, err := virtual.Consumer(path)
	if err != nil || !strings.HasPrefix(rest, "clusters/") {
		return consumer, rest, err
	}
	cluster, rest, err := virtual.Cluster(rest)
	if err == nil && !cluster.Wildcard && cluster.Name != consumer {
		err = apierrors.NewBadRequest(fmt.Sprintf("this virtual workspace serves only logical cluster %s", consumer))
	}
	return consumer, rest, err
}

// view is the view of one consumer.
type view struct {
	config   Config
	api      http.Handler
	consumer logicalcluster.Name
}

// Home implements virtual.Homed.
func (v view) Home() logicalcluster.Name { return v.consumer }

// Authorize allows users who may get the APIBindings of the consumer.
func (v view) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	decision, _, err := v.config.Authorizer.Authorize(logicalcluster.WithName(ctx, v.consumer), authorizer.AttributesRecord{
		User: a.GetUser(), Verb: "get", APIGroup: apisv1alpha1.SchemeGroupVersion.Group, APIVersion: apisv1alpha1.SchemeGroupVersion.Version,
		Resource: "apibindings", ResourceRequest: true,
	})
	if err != nil || decision != authorizer.DecisionAllow {
		return authorizer.DecisionDeny, fmt.Sprintf("missing verb='get' permission on apibindings in %s", v.consumer), err
	}
	return authorizer.DecisionAllow, "", nil
}

// Serve serves the schemas of the consumer.
func (v view) Serve(_ http.Handler, w http.ResponseWriter, r *http.Request) {
	v.api.ServeHTTP(w, r.WithContext(logicalcluster.WithName(r.Context(), v.consumer)))
}
