package endpointslice

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Consumption says whether the shard that reports it has consumers for a slice of another shard.
type Consumption struct {
	// Kind is the name of the controller of the slices.
	Kind    string `json:"kind"`
	Cluster string `json:"cluster"`
	Name    string `json:"name"`
	// Consumes is true if a logical cluster of the reporting shard has bound the export of the slice.
	Consumes bool `json:"consumes"`
}

// CallConsumers is the peer call by which a shard reports a Consumption to the shard that holds the slice.
const CallConsumers = "endpointslices.consumers"

// Shards are the other shards of the installation.
type Shards interface {
	// Holder returns the shard that holds a logical cluster; empty if that is not known.
	Holder(cluster logicalcluster.Name) string
	// Report reports to another shard.
	Report(ctx context.Context, shard string, c Consumption) error
}

// url returns the URL of the view of a slice on a shard.
func (k kind[T]) url(shard *corev1alpha1.Shard, slice T, export *apisv1alpha2.APIExport) string {
	return cmp.Or(shard.Spec.VirtualWorkspaceURL, shard.Spec.BaseURL) + k.path(slice, export)
}

// selects reports whether the selector of a slice selects a shard.
func selects(selector string, shard *corev1alpha1.Shard) (bool, error) {
	parsed, err := labels.Parse(selector)
	return err == nil && parsed.Matches(labels.Set(shard.Labels)), err
}

// others returns those endpoints of a slice that other shards reported, if the shards exist and the selector selects them.
func (r *reconciler[T]) others(slice T, export *apisv1alpha2.APIExport, selector string) ([]apisv1alpha1.APIExportEndpoint, error) {
	all, err := r.Set.Shards.List(logicalcluster.Root)
	if err != nil {
		return nil, err
	}
	var kept []apisv1alpha1.APIExportEndpoint
	for _, e := range r.status(slice).Endpoints {
		known := slices.ContainsFunc(all, func(shard *corev1alpha1.Shard) bool {
			selected, err := selects(selector, shard)
			return shard.Name != r.ShardName && err == nil && selected && e.URL == r.url(shard, slice, export)
		})
		if known {
			kept = append(kept, e)
		}
	}
	return kept, nil
}

// consume reports to the holder of a slice whether this shard has consumers, unless the slice shows that already.
func (r *reconciler[T]) consume(ctx context.Context, key informers.Key) error {
	slice, err := r.lister.Get(key.Cluster, "", key.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	listed, wanted, err := r.consumption(slice)
	holder := r.Others.Holder(key.Cluster)
	if err != nil || listed == wanted || holder == "" || holder == r.ShardName {
		return err
	}
	return r.Others.Report(ctx, holder, Consumption{
		Kind: r.name, Cluster: string(key.Cluster), Name: key.Name, Consumes: wanted,
	})
}

// consumption reports whether a slice of another shard lists this shard, and whether it should.
func (r *reconciler[T]) consumption(slice T) (listed, wanted bool, err error) {
	var ignored []corev1alpha1.Condition
	export, err := r.check(slice, &ignored)
	if err != nil || export == nil {
		return false, false, err
	}
	shard, err := r.Set.Shards.Get(logicalcluster.Root, "", r.ShardName)
	if err != nil {
		return false, false, fmt.Errorf("the Shard of this server: %w", err)
	}
	listed = contains(r.status(slice).Endpoints, r.url(shard, slice, export))
	selected, err := r.selected(r.status(slice).ShardSelector)
	return listed, err == nil && selected && r.Exports.HasBindings(logicalcluster.Of(export), export.Name), err
}

func contains(endpoints []apisv1alpha1.APIExportEndpoint, url string) bool {
	return slices.ContainsFunc(endpoints, func(e apisv1alpha1.APIExportEndpoint) bool { return e.URL == url })
}

// report handles a Consumption of another shard, which can only add and remove its own URL.
func (r *reconciler[T]) report(ctx context.Context, caller peers.Identity, in Consumption) error {
	cluster := logicalcluster.Name(in.Cluster)
	slice, err := r.lister.GetLocal(cluster, "", in.Name)
	if err != nil {
		return err
	}
	shard, err := r.Set.Shards.Get(logicalcluster.Root, "", caller.Name)
	if err != nil {
		return apierrors.NewServiceUnavailable(fmt.Sprintf("shard %q is not known here yet", caller.Name))
	}
	var ignored []corev1alpha1.Condition
	export, err := r.check(slice, &ignored)
	if err != nil || export == nil {
		return err
	}
	url := r.url(shard, slice, export)
	ctx = logicalcluster.WithName(ctx, cluster)
	return r.Slices.Update(ctx, in.Name, r.empty(), func(obj runtime.Object) error {
		if err := runner.Same(obj.(T), slice); err != nil {
			return err
		}
		status := r.status(obj.(T))
		selected, err := selects(status.ShardSelector, shard)
		if err != nil {
			return err
		}
		status.Endpoints = slices.DeleteFunc(status.Endpoints, func(e apisv1alpha1.APIExportEndpoint) bool { return e.URL == url })
		if in.Consumes && selected {
			status.Endpoints = append(status.Endpoints, apisv1alpha1.APIExportEndpoint{URL: url})
		}
		sortEndpoints(status.Endpoints)
		return nil
	})
}

// sortEndpoints sorts by URL, so that the order does not depend on who reported first.
func sortEndpoints(endpoints []apisv1alpha1.APIExportEndpoint) {
	slices.SortFunc(endpoints, func(a, b apisv1alpha1.APIExportEndpoint) int { return cmp.Compare(a.URL, b.URL) })
}

// Accepted is the answer to CallConsumers. It has no fields.
type Accepted struct{}

// Reports returns the handler of CallConsumers.
func Reports(exports, cached Inputs) func(context.Context, peers.Identity, Consumption) (Accepted, error) {
	byKind := map[string]func(context.Context, peers.Identity, Consumption) error{}
	ofExports, ofCached := kindOfExports(exports), kindOfCachedResources(cached)
	byKind[ofExports.name] = (&reconciler[*apisv1alpha1.APIExportEndpointSlice]{exports, ofExports}).report
	byKind[ofCached.name] = (&reconciler[*cachedSlice]{cached, ofCached}).report
	return func(ctx context.Context, caller peers.Identity, in Consumption) (Accepted, error) {
		report, ok := byKind[in.Kind]
		if !ok || caller.Name == "" {
			return Accepted{}, apierrors.NewBadRequest(fmt.Sprintf("%q is no kind of endpoint slices", in.Kind))
		}
		return Accepted{}, report(ctx, caller, in)
	}
}
