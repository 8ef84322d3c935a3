// Package workspacetypes finds workspace types and the types that they extend, and decides which types may be below
// which.
package workspacetypes

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/tenancy/pathindex"
	"github.com/kcplane/kcp/server/internal/tenancy/references"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// BindingsInitializer is the step that creates the default APIBindings.
const BindingsInitializer corev1alpha1.LogicalClusterInitializer = "system:apibindings"

// universalInitializer is the step that creates the initial namespaces of every workspace.
const universalInitializer corev1alpha1.LogicalClusterInitializer = "root:universal"

// IsBuiltIn reports whether the server itself performs the step of an initializer, with the first request that enters
// the workspace.
func IsBuiltIn(i corev1alpha1.LogicalClusterInitializer) bool {
	return i == universalInitializer || i == BindingsInitializer
}

// Type is a workspace type with its location.
type Type struct {
	*tenancyv1alpha1.WorkspaceType
	Cluster logicalcluster.Name
	// Path of the workspace that the type is in.
	Path string
}

// Reference returns an absolute reference to the type.
func (t Type) Reference() tenancyv1alpha1.WorkspaceTypeReference {
	return tenancyv1alpha1.WorkspaceTypeReference{Path: t.Path, Name: t.Name}
}

// ID of the type's initializer and terminator.
func (t Type) ID() string { return string(t.Cluster) + ":" + t.Name }

func (t Type) String() string { return t.Reference().String() }

// Types finds workspace types.
type Types struct {
	types informers.Lister[*tenancyv1alpha1.WorkspaceType]
	index *pathindex.Index
	// references finds what other shards have; nil if there are none.
	references *references.References
	// at returns the cluster at a path in an object of another one.
	at func(from logicalcluster.Name, path string) (logicalcluster.Name, bool, error)
	// await waits until a type that was created before is known; nil means no waiting.
	await func(cluster logicalcluster.Name, name string) error
}

// New returns the types of set.
func New(set *informers.Set, t *pathindex.Index) *Types {
	return &Types{types: set.WorkspaceTypes, index: t, at: func(from logicalcluster.Name, path string) (logicalcluster.Name, bool, error) {
		place, ok := t.From(from, path)
		return place.Cluster, ok && place.Cluster != "", nil
	}}
}

// Share makes Current find the types of other shards. It must be called before the first request.
func (t *Types) Share(r *references.References) { t.references = r }

// Current returns the same types for a request of ctx, which finds everything that this server has acknowledged before, and what other
// shards have. Its errors may be retriable.
func (t *Types) Current(ctx context.Context) *Types {
	current := *t
	current.await = func(cluster logicalcluster.Name, name string) error {
		t.types.Current(ctx, cluster)
		if t.references == nil {
			return nil
		}
		return t.references.Await(ctx, cluster, resource, name, func() bool {
			_, err := t.types.Get(cluster, "", name)
			return err == nil
		})
	}
	current.at = func(from logicalcluster.Name, path string) (logicalcluster.Name, bool, error) {
		if t.references != nil {
			return t.references.Cluster(ctx, from, path)
		}
		t.index.Current(ctx, path)
		return t.at(from, path)
	}
	return &current
}

var resource = tenancyv1alpha1.Resource("workspacetypes")

// Find returns the type for ref in a logical cluster: the one at its path, or without a path the nearest one from the
// cluster up to root. Otherwise it returns a NotFound error with the searched clusters.
func (t *Types) Find(from logicalcluster.Name, ref tenancyv1alpha1.WorkspaceTypeReference) (Type, error) {
	if ref.Path != "" {
		return t.findAt(from, ref)
	}
	var looked []string
	way, complete := t.upward(from)
	for _, cluster := range way {
		if found, ok, err := t.in(cluster, ref.Name); ok || err != nil {
			return found, err
		}
		looked = append(looked, t.index.Path(cluster))
	}
	if !complete { // one that is not known may have the type
		return Type{}, references.Unavailable(fmt.Sprintf("resolving workspace type %s: the workspaces above %s are not known to this "+
			"shard: retry, or name the path of the type", ref, t.index.Path(from)))
	}
	if !slices.Contains(looked, string(logicalcluster.Root)) {
		if found, ok, err := t.in(logicalcluster.Root, ref.Name); ok || err != nil {
			return found, err
		}
		looked = append(looked, string(logicalcluster.Root))
	}
	return Type{}, notFound(ref, "searched in "+strings.Join(looked, ", "))
}

// findAt is Find for a reference with a path.
func (t *Types) findAt(from logicalcluster.Name, ref tenancyv1alpha1.WorkspaceTypeReference) (Type, error) {
	cluster, ok, err := t.at(from, ref.Path)
	switch {
	case err != nil:
		return Type{}, err
	case !ok:
		return Type{}, notFound(ref, "workspace "+ref.Path+" does not exist")
	}
	found, ok, err := t.in(cluster, ref.Name)
	if err == nil && !ok {
		err = notFound(ref, "workspace "+ref.Path+" has no such type")
	}
	return found, err
}

// upward returns a cluster and the clusters above it, as far as they are known, and whether these are all.
func (t *Types) upward(from logicalcluster.Name) (way []logicalcluster.Name, complete bool) {
	way = []logicalcluster.Name{from}
	if above, known := t.index.Ancestors(from); known {
		slices.Reverse(above)
		return append(way, above...), true
	}
	parent, ok := t.index.Parent(from)
	for ok && !slices.Contains(way, parent) {
		way = append(way, parent)
		parent, ok = t.index.Parent(parent)
	}
	return way, len(way) == 1 // a cluster without a LogicalCluster has nothing above it
}

func notFound(ref tenancyv1alpha1.WorkspaceTypeReference, why string) error {
	err := apierrors.NewNotFound(resource, ref.String())
	err.ErrStatus.Message += ": " + why
	return err
}

// Of returns the type of the workspace of a logical cluster; false if it has none or the type no longer exists. A type with the
// same name in another workspace that now has the path of the first one does not count, because types determine which issuers a
// workspace trusts.
func (t *Types) Of(lc *corev1alpha1.LogicalCluster) (Type, bool) {
	found, ok, err := t.Resolve(lc)
	return found, ok && err == nil
}

// Resolve is Of. Of Current types, it returns a retriable error if the type may exist, and is not known.
func (t *Types) Resolve(lc *corev1alpha1.LogicalCluster) (found Type, ok bool, err error) {
	id := lc.Annotations[tenancyv1alpha1.TypeAnnotation]
	i := strings.LastIndexByte(id, ':')
	if i < 0 {
		return Type{}, false, nil
	}
	found, err = t.Find(logicalcluster.Of(lc), tenancyv1alpha1.WorkspaceTypeReference{Path: id[:i], Name: id[i+1:]})
	if references.IsRetriable(err) {
		return Type{}, false, err
	}
	was := lc.Annotations[tenancyv1alpha1.TypeClusterAnnotation]
	return found, err == nil && (was == "" || was == string(found.Cluster)), nil
}

func (t *Types) in(cluster logicalcluster.Name, name string) (Type, bool, error) {
	if t.await != nil {
		if err := t.await(cluster, name); err != nil {
			return Type{}, false, err
		}
	}
	found, err := t.types.Get(cluster, "", name)
	if err != nil {
		return Type{}, false, nil
	}
	return Type{WorkspaceType: found, Cluster: cluster, Path: t.index.Path(cluster)}, true, nil
}

// Aliases returns a type and all types that it extends, each once, the type itself last.
func (t *Types) Aliases(of Type) ([]Type, error) {
	var all []Type
	done, open := map[string]bool{}, map[string]bool{}
	var visit func(Type) error
	visit = func(one Type) error {
		id := one.String()
		if done[id] {
			return nil
		}
		if open[id] {
			return fmt.Errorf("circular dependency detected in workspace type %s", id)
		}
		open[id] = true
		for _, ref := range one.Spec.Extend.With {
			extended, err := of, error(nil) // the type may not be stored yet
			if absolute(one, ref) != of.Reference() {
				extended, err = t.Find(one.Cluster, ref)
			}
			if err != nil {
				return fmt.Errorf("workspace type %s extends %s: %w", id, ref, err)
			}
			if err := visit(extended); err != nil {
				return err
			}
		}
		done[id], open[id] = true, false
		all = append(all, one)
		return nil
	}
	return all, visit(of)
}

// Initializers returns the initial steps of workspaces with these aliases, in order.
func Initializers(aliases []Type) []corev1alpha1.LogicalClusterInitializer {
	var ids []corev1alpha1.LogicalClusterInitializer
	bindings := false
	for _, a := range aliases {
		if a.Spec.Initializer {
			ids = append(ids, corev1alpha1.LogicalClusterInitializer(a.ID()))
		}
		bindings = bindings || len(a.Spec.DefaultAPIBindings) > 0
	}
	if bindings {
		ids = append(ids, BindingsInitializer)
	}
	return ids
}

// Terminators returns the final steps of workspaces with these aliases.
func Terminators(aliases []Type) []corev1alpha1.LogicalClusterTerminator {
	var ids []corev1alpha1.LogicalClusterTerminator
	for _, a := range aliases {
		if a.Spec.Terminator {
			ids = append(ids, corev1alpha1.LogicalClusterTerminator(a.ID()))
		}
	}
	return ids
}

// Labels returns the labels of workspaces with these aliases; those of the type itself take precedence.
func Labels(aliases []Type) map[string]string {
	labels := map[string]string{}
	for _, a := range aliases {
		maps.Copy(labels, a.Spec.AdditionalWorkspaceLabels)
	}
	return labels
}

// DerivesDefinitions reports whether the workspace of a logical cluster has a derived definition for each bound API: an annotation
// on its type, or on a type that it extends, enables that.
func (t *Types) DerivesDefinitions(lc *corev1alpha1.LogicalCluster) bool {
	of, ok := t.Of(lc)
	if !ok {
		return false
	}
	aliases, err := t.Aliases(of)
	if err != nil { // the type itself still counts
		aliases = []Type{of}
	}
	return slices.ContainsFunc(aliases, func(a Type) bool { return a.Annotations[tenancyv1alpha1.DerivedDefinitionsAnnotation] == "true" })
}

// CheckPlace returns an error if a workspace with the aliases child is not allowed below one with the aliases parent.
// The last alias is the type itself.
func CheckPlace(parent, child []Type) error {
	if len(parent) == 0 || len(child) == 0 {
		return nil
	}
	parentType, childType := parent[len(parent)-1], child[len(child)-1]
	for _, a := range child {
		switch limit := a.Spec.LimitAllowedParents; {
		case limit == nil:
		case limit.None:
			return fmt.Errorf("workspace type %s cannot have any parent workspace type", childType)
		case !intersects(a, limit.Types, parent):
			return fmt.Errorf("workspace type %s only allows %s parent workspaces, but parent type %s only implements %s",
				childType, names(a, limit.Types), parentType, typeNames(parent))
		}
	}
	for _, a := range parent {
		switch limit := a.Spec.LimitAllowedChildren; {
		case limit == nil:
		case limit.None:
			return fmt.Errorf("workspace type %s cannot have any child workspace type", parentType)
		case !intersects(a, limit.Types, child):
			return fmt.Errorf("workspace type %s only allows %s child workspaces, but child type %s only implements %s",
				parentType, names(a, limit.Types), childType, typeNames(child))
		}
	}
	return nil
}

// absolute returns a reference in the spec of a type with its path. Admission sets the path unless it is that of the
// type itself.
func absolute(in Type, ref tenancyv1alpha1.WorkspaceTypeReference) tenancyv1alpha1.WorkspaceTypeReference {
	if ref.Path == "" {
		ref.Path = in.Path
	}
	return ref
}

func intersects(in Type, refs []tenancyv1alpha1.WorkspaceTypeReference, aliases []Type) bool {
	for _, ref := range refs {
		if slices.ContainsFunc(aliases, func(a Type) bool { return a.Reference() == absolute(in, ref) }) {
			return true
		}
	}
	return false
}

func names(in Type, refs []tenancyv1alpha1.WorkspaceTypeReference) []string {
	var out []string
	for _, ref := range refs {
		out = append(out, absolute(in, ref).String())
	}
	return out
}

func typeNames(types []Type) []string {
	var out []string
	for _, t := range types {
		out = append(out, t.String())
	}
	return out
}
