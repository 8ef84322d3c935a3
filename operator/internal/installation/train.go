package installation

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/component"
	"github.com/kcplane/kcp/operator/internal/conditions"
	"github.com/kcplane/kcp/operator/internal/shard"
)

// An installation is upgraded in this order, and each component after those before it are ready with their image: the cache server, the
// root shard, the other shards in batches, their virtual workspaces, the front proxies. It begins after Preflight. A component
// whose spec has an image is not upgraded with the others, but they wait for it to be ready.

// turn is the interval of checks whether it is the turn of a component, because a component does not watch all others.
const turn = 10 * time.Second

// part is a component of an installation.
type part struct {
	kind, name string
	generation int64
	spec       *v1alpha1.ComponentSpec
	status     *v1alpha1.ComponentStatus
	// shard is the image of the shard that the part belongs to. Empty: it belongs to none.
	shard string
}

func partOf(kind string, o client.Object, spec *v1alpha1.ComponentSpec, status *v1alpha1.ComponentStatus) part {
	return part{kind: kind, name: o.GetName(), generation: o.GetGeneration(), spec: spec, status: status}
}

// has returns an error unless the part is ready with an image, or with the one in its spec.
func (p part) has(image string) error {
	image = component.Image(p.spec.Image, cmp.Or(p.shard, image))
	ready := meta.FindStatusCondition(p.status.Conditions, v1alpha1.ConditionReady)
	switch {
	case p.status.Image != image:
		return p.wait("it does not have the image " + image + " yet")
	case ready == nil || ready.ObservedGeneration < p.generation:
		return p.wait("it has no current status yet")
	case ready.Status != metav1.ConditionTrue:
		return p.wait(ready.Message)
	}
	return nil
}

func (p part) wait(why string) error {
	return conditions.Unwatched(turn,
		conditions.Wait("WaitingForUpgrade", "keeping the former image until %s %s is upgraded: %s", p.kind, p.name, why))
}

// Turn returns nil if a component that follows the image of its RootShard may be upgraded to it now, or what it waits for.
func Turn(ctx context.Context, c client.Reader, rs *v1alpha1.RootShard, of client.Object) error {
	if rs.Spec.Upgrade != nil && rs.Spec.Upgrade.Paused {
		return conditions.Wait("UpgradePaused", "keeping the former image because spec.upgrade.paused of RootShard %s is set", rs.Name)
	}
	if err := ownEtcd(ctx, c, of); err != nil {
		return err
	}
	before, err := shardsBefore(ctx, c, rs, of)
	if err != nil {
		return err
	}
	if _, ok := of.(*v1alpha1.FrontProxy); ok {
		views, err := allViews(ctx, c, rs, before)
		if err != nil {
			return err
		}
		before = slices.Concat(before, views)
	}
	before = slices.Insert(before, 0, partOf(rootKind, rs, &rs.Spec.ComponentSpec, &rs.Status.ComponentStatus))
	for _, p := range before {
		if err := p.has(rs.Status.Image); err != nil {
			return err
		}
	}
	return nil
}

// PartTurn returns nil if a component may have another image now, or what it waits for. One whose spec has a version does not wait for
// others, but must not be too old or too new for its root shard.
func PartTurn(ctx context.Context, c client.Reader, rs *v1alpha1.RootShard, of client.Object, spec *v1alpha1.ImageSpec,
	image string) error {
	if spec == nil || spec.Tag == "" && spec.Digest == "" {
		return Turn(ctx, c, rs, of)
	}
	allowed := of.GetAnnotations()[v1alpha1.AllowVersionAnnotation]
	if err := Skew(component.Version(image), rs.Status.Version); err != nil && allowed != component.Version(image) {
		return conditions.Stall("VersionRefused", "spec.image: RootShard %s has run kcp %s, and %s is not the same minor version or the one "+
			"before: set another, or allow it with the annotation %s", rs.Name, rs.Status.Version, component.Version(image),
			v1alpha1.AllowVersionAnnotation)
	}
	return nil
}

// shardsBefore returns the Shards of an installation that are upgraded before a component: for a Shard, those of earlier batches.
func shardsBefore(ctx context.Context, c client.Reader, rs *v1alpha1.RootShard, of client.Object) ([]part, error) {
	list := &v1alpha1.ShardList{}
	if err := c.List(ctx, list, client.InNamespace(rs.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	var all []part
	for i := range list.Items {
		s := &list.Items[i]
		if Refers(s.Spec.RootShard, rs) && s.DeletionTimestamp.IsZero() {
			all = append(all, partOf("Shard", s, &s.Spec.ComponentSpec, &s.Status.ComponentStatus))
		}
	}
	slices.SortFunc(all, func(a, b part) int { return cmp.Compare(a.name, b.name) })
	if _, isShard := of.(*v1alpha1.Shard); !isShard {
		return all, nil
	}
	size := 1
	if rs.Spec.Upgrade != nil {
		size = max(1, int(rs.Spec.Upgrade.ShardBatchSize))
	}
	return earlierBatches(all, of.GetName(), size), nil
}

// earlierBatches returns the parts in batches before that of a name. Batches have a size and are in order of names. They do not depend on
// what is upgraded, so a part that is not ready stops all later batches.
func earlierBatches(sorted []part, name string, size int) []part {
	at, _ := slices.BinarySearchFunc(sorted, name, func(p part, name string) int { return cmp.Compare(p.name, name) })
	return sorted[:at/size*size]
}

// allViews returns the VirtualWorkspaces of an installation that run kcp.
func allViews(ctx context.Context, c client.Reader, rs *v1alpha1.RootShard, shards []part) ([]part, error) {
	list := &v1alpha1.VirtualWorkspaceList{}
	if err := c.List(ctx, list, client.InNamespace(rs.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	var all []part
	for i := range list.Items {
		v := &list.Items[i]
		kind, name := TargetOf(v)
		p := partOf("VirtualWorkspace", v, &v.Spec.ComponentSpec, &v.Status)
		of := kind == shard.RootKind && name == rs.Name
		if i := slices.IndexFunc(shards, func(p part) bool { return p.name == name }); kind == shard.FurtherKind && i >= 0 {
			of, p.shard = true, shards[i].status.Image
		}
		if of && len(v.Spec.Command) == 0 && v.DeletionTimestamp.IsZero() {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b part) int { return cmp.Compare(a.name, b.name) })
	return all, nil
}

// CacheTurn returns nil if a cache server may be upgraded now, or what it waits for. One whose spec has a version waits for nothing.
func CacheTurn(ctx context.Context, c client.Reader, rs *v1alpha1.RootShard, spec *v1alpha1.ImageSpec) error {
	if rs == nil || spec != nil && (spec.Tag != "" || spec.Digest != "") {
		return nil
	}
	return Preflight(ctx, c, rs, time.Now())
}

// RootTurn returns nil if a RootShard may be upgraded to an image now, or what it waits for: Preflight, the cache server of the
// installation, and shards whose version would be too old beside it.
func RootTurn(ctx context.Context, c client.Reader, rs *v1alpha1.RootShard, image string) error {
	if err := Preflight(ctx, c, rs, time.Now()); err != nil {
		return err
	}
	shards, err := shardsBefore(ctx, c, rs, rs)
	if err != nil {
		return err
	}
	for _, p := range shards {
		if err := Skew(p.status.Version, component.Version(image)); err != nil {
			return conditions.Unwatched(turn, conditions.Stall("VersionRefused", "spec.image: Shard %s runs kcp %s, %v: upgrade it first", p.name,
				p.status.Version, err))
		}
	}
	server, err := cacheOf(ctx, c, rs)
	if server == nil {
		return err
	}
	return partOf("CacheServer", server, &server.Spec.ComponentSpec, &server.Status.ComponentStatus).has(image)
}

// cacheOf returns the CacheServer of an installation, or nil. CheckCache reports one that does not exist, or is of another installation.
func cacheOf(ctx context.Context, c client.Reader, rs *v1alpha1.RootShard) (*v1alpha1.CacheServer, error) {
	name := CacheName(rs.Spec.Cache)
	if name == "" {
		return nil, nil
	}
	server := &v1alpha1.CacheServer{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: rs.Namespace, Name: name}, server); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if server.Status.RootShard != rs.Name {
		return nil, nil
	}
	return server, nil
}

// Skew returns an error if a component with one version of kcp must not run beside a root shard with another one. Unknown versions are not
// compared.
func Skew(version, root string) error {
	v, r := parsed(version), parsed(root)
	if v == nil || r == nil || v.Major() == r.Major() && (v.Minor() == r.Minor() || v.Minor()+1 == r.Minor()) {
		return nil
	}
	return conditions.Stall("VersionRefused", "which must have the minor version of its root shard, or the one before")
}

// parsed returns a version, or nil.
func parsed(text string) *version.Version {
	v, err := version.ParseSemantic(text)
	if err != nil {
		return nil
	}
	return v
}
