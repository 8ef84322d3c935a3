package server

import (
	"context"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/utils/clock"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	cachev1alpha1 "github.com/kcplane/kcp/api/cache/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/internal/request/inflight"
	"github.com/kcplane/kcp/server/internal/shards/lookup"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/shards/tree"
	"github.com/kcplane/kcp/server/internal/views/endpoints"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// findReferences makes requests find what other shards have created a moment ago, and lets others ask this shard.
func (i *installation) findReferences() {
	i.locator = i.workspaces.NewLocator(i.shardNames)
	i.finder = lookup.New(lookup.Config{
		Shard: i.opts.ShardName, Holder: i.holders.Holder, Search: i.locator.LocateNow, Resolve: i.resolveAt, Clock: clock.RealClock{},
		Payer: inflight.Payer(i.tenancy.set.LogicalClusters),
		Exists: func(ctx context.Context, shard string, q lookup.Question) (lookup.Answer, error) {
			if shard == i.opts.ShardName {
				return i.answers.Exists(ctx, peers.Identity{Kind: peers.Shard, Name: shard}, q)
			}
			return peers.Call[lookup.Question, lookup.Answer](ctx, i.clients, shard, lookup.CallExists, q)
		},
	})
	i.tenancy.references.Share(i.finder)
	stored := i.tenancy.stored
	i.answers = lookup.NewAnswers(i.holdsNow,
		lookup.Kind{Resource: apisv1alpha2.Resource("apiexports"), Stored: stored["apiexports"],
			New: func() runtime.Object { return &apisv1alpha2.APIExport{} }},
		lookup.Kind{Resource: tenancyv1alpha1.Resource("workspacetypes"), Stored: stored["workspacetypes"],
			New: func() runtime.Object { return &tenancyv1alpha1.WorkspaceType{} }},
		lookup.Kind{Resource: tenancyv1alpha1.Resource("workspaceauthenticationconfigurations"),
			Stored: stored["workspaceauthenticationconfigurations"],
			New:    func() runtime.Object { return &tenancyv1alpha1.WorkspaceAuthenticationConfiguration{} }},
		lookup.Kind{Resource: cachev1alpha1.Resource("clustercachedresources"), Stored: stored["clustercachedresources"],
			New: func() runtime.Object { return &cachev1alpha1.ClusterCachedResource{} }},
		lookup.Kind{Resource: cachev1alpha1.Resource("clustercachedresourceendpointslices"),
			Stored: stored["clustercachedresourceendpointslices"],
			New:    func() runtime.Object { return &cachev1alpha1.ClusterCachedResourceEndpointSlice{} }},
	)
	peers.Handle(i.calls, lookup.CallExists, []peers.Kind{peers.Shard}, i.answers.Exists)
}

// slicesElsewhere asks other shards for the endpoint slices of virtual storage.
func (i *installation) slicesElsewhere() *endpoints.Elsewhere {
	if i == nil {
		return nil
	}
	return &endpoints.Elsewhere{
		Shard: i.opts.ShardName, Holder: i.holders.Holder, Holds: i.holds, Find: i.finder.Holder,
		Ask: func(ctx context.Context, shard string, q endpoints.Question) (endpoints.Answer, error) {
			return peers.Call[endpoints.Question, endpoints.Answer](ctx, i.clients, shard, endpoints.CallSlice, q)
		},
	}
}

// answerSlices answers other shards about the endpoint slices of this shard.
func (i *installation) answerSlices(e *endpoints.Endpoints) {
	if i == nil {
		return
	}
	peers.Handle(i.calls, endpoints.CallSlice, []peers.Kind{peers.Shard},
		func(ctx context.Context, caller peers.Identity, q endpoints.Question) (endpoints.Answer, error) {
			held, err := i.holdsNow(ctx, caller, q.Cluster)
			if err == nil && !held {
				err = apierrors.NewBadRequest(fmt.Sprintf("this shard does not hold the logical cluster %q", q.Cluster))
			}
			if err != nil {
				return endpoints.Answer{}, err
			}
			return e.Slice(ctx, q)
		})
}

// resolveAt resolves a path at a shard.
func (i *installation) resolveAt(ctx context.Context, shard string, q tree.Question) (tree.Answer, error) {
	if shard == i.opts.ShardName {
		return i.places.Resolve(ctx, peers.Identity{Kind: peers.Shard, Name: shard}, q)
	}
	return peers.Call[tree.Question, tree.Answer](ctx, i.clients, shard, tree.CallResolve, q)
}

// holdsNow reports whether this shard holds a logical cluster, also if another server of it has just created it.
func (i *installation) holdsNow(ctx context.Context, caller peers.Identity, cluster logicalcluster.Name) (bool, error) {
	answer, err := i.places.Resolve(ctx, caller, tree.Question{Path: string(cluster)})
	return answer.Cluster != nil, err
}

// withUndecided makes clients retry requests that were not authorized because another shard did not respond.
func (i *installation) withUndecided(next http.Handler, g *genericapiserver.Config) http.Handler {
	if i == nil {
		return next
	}
	return authorization.WithUndecided(next, g.Serializer)
}
