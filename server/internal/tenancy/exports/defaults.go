package exports

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/ptr"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/internal/tenancy/references"
	"github.com/kcplane/kcp/server/internal/tenancy/workspacetypes"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// maxName limits the length of the name of a binding.
const maxName = 253

// Defaults computes the initial bindings of workspaces from their types.
type Defaults struct {
	Exports    *Exports
	Types      *workspacetypes.Types
	References *references.References
}

// Await returns nil when this shard has everything that Of needs, as far as it exists: the types of a logical cluster and their exports,
// which other shards may hold. An error is retriable.
func (d Defaults) Await(ctx context.Context, lc *corev1alpha1.LogicalCluster) error {
	types := d.Types.Current(ctx)
	of, ok, err := types.Resolve(lc)
	if err != nil || !ok {
		return err
	}
	aliases, err := types.Aliases(of)
	if err != nil {
		return retriable(err) // without another type, there are no default bindings
	}
	for _, alias := range aliases {
		for _, reference := range alias.Spec.DefaultAPIBindings {
			reference.Path = cmp.Or(reference.Path, string(alias.Cluster))
			if err := d.await(ctx, logicalcluster.Of(lc), reference); err != nil {
				return err
			}
		}
	}
	return nil
}

// retriable returns a retriable error, and nil for another one.
func retriable(err error) error {
	if references.IsRetriable(err) {
		return err
	}
	return nil
}

// await returns nil when the export of a default binding is known, or does not exist.
func (d Defaults) await(ctx context.Context, from logicalcluster.Name, to tenancyv1alpha1.APIExportReference) error {
	known := func() bool {
		_, err := d.Exports.Find(from, apisv1alpha2.ExportBindingReference{Path: to.Path, Name: to.Export})
		return err == nil
	}
	if known() {
		return nil
	}
	cluster, ok, err := d.References.Cluster(ctx, from, to.Path)
	if err != nil || !ok {
		return err
	}
	return d.References.Await(ctx, cluster, apisv1alpha2.Resource("apiexports"), to.Export, known)
}

// Of returns the default bindings of a logical cluster for the current state of their exports. They are complete except for the
// fields that the controller of bindings adds, and equal what reading them returns. An export that the cluster has already bound needs no
// other binding.
func (d Defaults) Of(lc *corev1alpha1.LogicalCluster) []*apisv1alpha2.APIBinding {
	var bindings []*apisv1alpha2.APIBinding
	made := map[string]bool{}
	add := func(reference tenancyv1alpha1.APIExportReference, mode tenancyv1alpha1.APIBindingLifecycleMode) {
		if name := defaultName(logicalcluster.Of(lc), reference.Path, reference.Export); !made[name] && !d.bound(lc, name, reference) {
			made[name] = true
			bindings = append(bindings, d.binding(lc, name, reference, mode))
		}
	}
	for _, alias := range d.aliases(lc) {
		for _, reference := range alias.Spec.DefaultAPIBindings {
			reference.Path = cmp.Or(reference.Path, string(alias.Cluster))
			add(reference, ptr.Deref(alias.Spec.DefaultAPIBindingLifecycle, tenancyv1alpha1.APIBindingLifecycleModeInitializeOnly))
		}
	}
	for _, reference := range everywhere {
		add(reference, tenancyv1alpha1.APIBindingLifecycleModeInitializeOnly)
	}
	return bindings
}

// aliases returns the type of a cluster and all types that it extends; nil if the cluster has no type.
func (d Defaults) aliases(lc *corev1alpha1.LogicalCluster) []workspacetypes.Type {
	of, ok := d.Types.Of(lc)
	if !ok {
		return nil
	}
	aliases, err := d.Types.Aliases(of)
	if err != nil {
		return nil
	}
	return aliases
}

// bound reports whether a cluster has a binding with another name to an export.
func (d Defaults) bound(lc *corev1alpha1.LogicalCluster, name string, to tenancyv1alpha1.APIExportReference) bool {
	cluster := logicalcluster.Of(lc)
	of, ok := d.Exports.Cluster(cluster, to.Path)
	return ok && slices.ContainsFunc(d.Exports.BindingsIn(cluster), func(b *apisv1alpha2.APIBinding) bool {
		return b.Name != name && b.DeletionTimestamp == nil && d.Exports.Binds(b, of, to.Export)
	})
}

func (d Defaults) binding(
	lc *corev1alpha1.LogicalCluster, name string, reference tenancyv1alpha1.APIExportReference, mode tenancyv1alpha1.APIBindingLifecycleMode,
) *apisv1alpha2.APIBinding {
	cluster := logicalcluster.Of(lc)
	b := &apisv1alpha2.APIBinding{
		TypeMeta: metav1.TypeMeta{APIVersion: apisv1alpha2.SchemeGroupVersion.String(), Kind: "APIBinding"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: uuid.NewUUID(), CreationTimestamp: storage.TimeAsRead(time.Now()), Generation: 1,
			Finalizers: []string{apisv1alpha2.APIBindingFinalizer},
			Annotations: map[string]string{
				logicalcluster.AnnotationKey:                      string(cluster),
				corev1alpha1.PathAnnotation:                       lc.Annotations[corev1alpha1.PathAnnotation],
				apisv1alpha2.DefaultAPIBindingLifecycleAnnotation: string(mode),
			},
		},
		Spec: apisv1alpha2.APIBindingSpec{
			Reference: apisv1alpha2.BindingReference{Export: &apisv1alpha2.ExportBindingReference{Path: reference.Path, Name: reference.Export}},
		},
	}
	if in, ok := d.Exports.Cluster(cluster, reference.Path); ok {
		key, value := BindingLabel(in, reference.Export)
		b.Labels = map[string]string{key: value}
		if Everywhere(in, reference.Export) {
			b.Finalizers = nil // it is removed with its cluster
		}
	}
	if export, err := d.Exports.Find(cluster, *b.Spec.Reference.Export); err == nil {
		b.Spec.PermissionClaims = AcceptAll(export)
		b.Status = d.Exports.boundStatus(export)
	}
	return b
}

// defaultName returns a name that is the same each time the binding of a cluster is created.
func defaultName(cluster logicalcluster.Name, path, export string) string {
	suffix := "-" + strings.ToLower(Hash(string(cluster) + "|" + path + "|" + export))[:5]
	return export[:min(len(export), maxName-len(suffix))] + suffix
}

// AcceptAll returns the acceptance of every claim of an export, for the default selector of the claim, or for all
// objects.
func AcceptAll(export *apisv1alpha2.APIExport) []apisv1alpha2.AcceptablePermissionClaim {
	var all []apisv1alpha2.AcceptablePermissionClaim
	for _, claim := range export.Spec.PermissionClaims {
		scoped := apisv1alpha2.ScopedPermissionClaim{PermissionClaim: *claim.DeepCopy(),
			Selector: apisv1alpha2.PermissionClaimSelector{MatchAll: true}}
		if claim.DefaultSelector != nil {
			scoped.Selector = *claim.DefaultSelector.DeepCopy()
		}
		all = append(all, apisv1alpha2.AcceptablePermissionClaim{ScopedPermissionClaim: scoped, State: apisv1alpha2.ClaimAccepted})
	}
	return all
}
