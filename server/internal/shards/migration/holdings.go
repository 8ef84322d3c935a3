package migration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/tenancy/placement"
	"github.com/kcplane/kcp/server/logicalcluster"
)

const (
	// callHoldings is the call by which the root shard lists what a shard holds.
	callHoldings = "shards.holdings"
	// callSelectors is the call by which the holder of logical clusters reads where their Workspaces allow them.
	callSelectors = "placements.selectors"
	// maxHoldings is the maximum number of logical clusters in a page.
	maxHoldings = 500
)

// Holdings lists the logical clusters that shards hold, for those who move them to other shards.
type Holdings struct {
	// Shard is the name of this shard.
	Shard   string
	Set     *informers.Set
	Parents *Parents
	Clients *peers.Clients
	// Path returns the path of a logical cluster, or an empty string.
	Path func(logicalcluster.Name) string
}

// page selects a part of the logical clusters of a shard, in the order of their names.
type page struct {
	// After is the last name of the page before.
	After string `json:"after,omitempty"`
	Limit int    `json:"limit"`
}

// Serve adds the calls.
func (h *Holdings) Serve(s *peers.Server) {
	peers.Handle(s, callHoldings, []peers.Kind{peers.Shard}, h.list)
	peers.Handle(s, callSelectors, []peers.Kind{peers.Shard}, h.selectors)
}

// Of lists what a shard holds, which can be this one.
func (h *Holdings) Of(ctx context.Context, shard string, in page) (corev1alpha1.ShardLogicalClusters, error) {
	if shard == h.Shard {
		return h.list(ctx, peers.Identity{Kind: peers.Shard, Name: peers.Root}, in)
	}
	return peers.Call[page, corev1alpha1.ShardLogicalClusters](ctx, h.Clients, shard, callHoldings, in)
}

// list lists what this shard holds, for the root shard.
func (h *Holdings) list(ctx context.Context, caller peers.Identity, in page) (corev1alpha1.ShardLogicalClusters, error) {
	if caller.Name != peers.Root {
		return corev1alpha1.ShardLogicalClusters{}, apierrors.NewForbidden(corev1alpha1.Resource("shards"), h.Shard,
			fmt.Errorf("%s may not list its logical clusters: only the root shard may", caller))
	}
	names, total, more := firstAfter(h.Set.LogicalClusters.Clusters(), logicalcluster.Name(in.After), min(max(in.Limit, 1), maxHoldings))
	out := corev1alpha1.ShardLogicalClusters{Total: total, Items: []corev1alpha1.ShardLogicalCluster{}}
	out.SetGroupVersionKind(corev1alpha1.SchemeGroupVersion.WithKind("ShardLogicalClusters"))
	if more {
		out.Continue = string(names[len(names)-1])
	}
	var all []*corev1alpha1.LogicalCluster
	for _, name := range names {
		if lc, err := h.Set.LogicalClusters.GetLocal(name, "", corev1alpha1.LogicalClusterName); err == nil { // otherwise it is gone
			all = append(all, lc)
		}
	}
	for _, lc := range all {
		name := logicalcluster.Of(lc)
		out.Items = append(out.Items, corev1alpha1.ShardLogicalCluster{
			Name: string(name), Path: h.Path(name), Stays: staying(lc), Deleting: lc.DeletionTimestamp != nil,
		})
	}
	h.locate(ctx, all, out.Items)
	return out, nil
}

// firstAfter returns the first names after a name, in order, at most limit of them. It also returns the number of all names, and whether
// there are more. It keeps only a page of the names.
func firstAfter(all iter.Seq[logicalcluster.Name], after logicalcluster.Name, limit int) (
	page []logicalcluster.Name, total int64, more bool) {
	for name := range all {
		total++
		full := len(page) == limit
		if name <= after || (full && name > page[limit-1]) {
			more = more || name > after
			continue
		}
		at, _ := slices.BinarySearch(page, name)
		if page = slices.Insert(page, at, name); full {
			page, more = page[:limit], true
		}
	}
	return page, total, more
}

// staying returns why a logical cluster does not move to any shard, or an empty string.
func staying(lc *corev1alpha1.LogicalCluster) string {
	switch {
	case lc.Spec.Owner == nil || lc.Spec.Owner.Resource != "workspaces":
		return "the logical cluster has no Workspace"
	case lc.DeletionTimestamp != nil:
		return "the logical cluster is being deleted"
	}
	return ""
}

// locate sets the selectors of logical clusters that may move. It first asks the shards that were last seen to hold the Workspaces, and
// then those of the records.
func (h *Holdings) locate(ctx context.Context, all []*corev1alpha1.LogicalCluster, items []corev1alpha1.ShardLogicalCluster) {
	var open []int
	for i := range items {
		if items[i].Stays == "" {
			open = append(open, i)
		}
	}
	for _, current := range []bool{false, true} {
		open = h.ask(ctx, all, items, open, current)
	}
}

// ask asks the shards of Workspaces for the selectors of open items. It returns the items without an answer, which stay.
func (h *Holdings) ask(ctx context.Context, all []*corev1alpha1.LogicalCluster, items []corev1alpha1.ShardLogicalCluster, open []int,
	current bool) (unknown []int) {
	stays := func(i int, reason string) {
		items[i].Stays = reason
		unknown = append(unknown, i)
	}
	by := map[string][]int{}
	for _, i := range open {
		shard, err := h.ownerShard(ctx, all[i], current)
		if err != nil {
			stays(i, "the shard of its Workspace is not known: "+err.Error())
			continue
		}
		by[shard] = append(by[shard], i)
	}
	for shard, indexes := range by {
		in := selectorsQuestion{}
		for _, i := range indexes {
			o := all[i].Spec.Owner
			in.Items = append(in.Items, owned{Parent: logicalcluster.Name(o.Cluster), Name: o.Name, UID: o.UID, Cluster: logicalcluster.Of(all[i])})
		}
		out, err := h.selectorsOf(ctx, shard, in)
		for n, i := range indexes {
			switch {
			case err != nil:
				stays(i, fmt.Sprintf("shard %q, which has its Workspace, does not say where it may be: %v", shard, err))
			case out.Items[n].Error != "":
				stays(i, out.Items[n].Error)
			default:
				items[i].Selector, items[i].Stays = out.Items[n].Selector, ""
			}
		}
	}
	return unknown
}

// ownerShard returns the shard of the Workspace of a logical cluster: this one unless another was recorded.
func (h *Holdings) ownerShard(ctx context.Context, lc *corev1alpha1.LogicalCluster, current bool) (string, error) {
	if lc.Annotations[tenancyv1alpha1.OwnerShardAnnotation] == "" {
		return h.Shard, nil
	}
	return h.Parents.OwnerShard(ctx, lc, current)
}

// selectorsQuestion names Workspaces, and selectors has their selectors in the same order.
type (
	selectorsQuestion struct {
		Items []owned `json:"items"`
	}
	selectors struct {
		Items []selector `json:"items"`
	}
	selector struct {
		Selector string `json:"selector,omitempty"`
		// Error is why the selector is not known.
		Error string `json:"error,omitempty"`
	}
)

func (h *Holdings) selectorsOf(ctx context.Context, shard string, in selectorsQuestion) (out selectors, err error) {
	if shard == h.Shard {
		out, err = h.selectors(ctx, peers.Identity{Kind: peers.Shard, Name: shard}, in)
	} else {
		out, err = peers.Call[selectorsQuestion, selectors](ctx, h.Clients, shard, callSelectors, in)
	}
	if err == nil && len(out.Items) != len(in.Items) {
		err = fmt.Errorf("it responded with %d of %d selectors", len(out.Items), len(in.Items))
	}
	return out, err
}

// selectors returns the selectors of Workspaces whose logical clusters are placed on the caller.
func (h *Holdings) selectors(ctx context.Context, caller peers.Identity, in selectorsQuestion) (selectors, error) {
	if len(in.Items) > maxHoldings {
		return selectors{}, apierrors.NewBadRequest(fmt.Sprintf("more than %d Workspaces in one call", maxHoldings))
	}
	out := selectors{}
	for _, o := range in.Items {
		text, err := h.selectorOf(ctx, caller, o)
		item := selector{Selector: text}
		if err != nil {
			item.Error = "its Workspace: " + err.Error()
		}
		out.Items = append(out.Items, item)
	}
	return out, nil
}

func (h *Holdings) selectorOf(ctx context.Context, caller peers.Identity, o owned) (string, error) {
	ws, err := h.Parents.workspace(ctx, o)
	if err != nil {
		return "", err
	}
	if shard := cmp.Or(placement.Of(ws).Shard, h.Shard); shard != caller.Name {
		return "", apierrors.NewForbidden(workspaces, o.Name, errors.New("its logical cluster is on another shard"))
	}
	return selectorIn(ws)
}

// selectorIn returns the selector of a Workspace in the form of query parameters.
func selectorIn(ws *tenancyv1alpha1.Workspace) (string, error) {
	if ws.Spec.Location == nil || ws.Spec.Location.Selector == nil {
		return "", nil
	}
	parsed, err := metav1.LabelSelectorAsSelector(ws.Spec.Location.Selector)
	if err != nil {
		return "", fmt.Errorf("spec.location.selector is invalid: %w", err)
	}
	return strings.TrimSpace(parsed.String()), nil
}
