package exports

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/uuid"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/logicalcluster"
	"github.com/kcplane/kcp/server/workspacetypes"
)

// maxName bounds the name of a binding.
const maxName = 253

// native are the APIs that every logical cluster has, bound or not: workspace types name them, and nothing needs to be made.
var native = map[tenancyv1alpha1.APIExportReference]bool{
	{Path: string(logicalcluster.Root), Export: "tenancy.kcp.io"}:  true,
	{Path: string(logicalcluster.Root), Export: "topology.kcp.io"}: true,
}

// Defaults are the bindings that workspaces begin with because their types say so.
type Defaults struct {
	Exports *Exports
	Types   *workspacetypes.Types
}

// Of returns the default bindings of a logical cluster, complete but for what the controller of bindings adds, and as their exports
// are now.
func (d Defaults) Of(lc *corev1alpha1.LogicalCluster) []*apisv1alpha2.APIBinding {
	of, ok := d.Types.Of(lc)
	if !ok {
		return nil
	}
	aliases, err := d.Types.Aliases(of)
	if err != nil {
		return nil
	}
	var bindings []*apisv1alpha2.APIBinding
	made := map[string]bool{}
	for _, alias := range aliases {
		for _, reference := range alias.Spec.DefaultAPIBindings {
			if native[reference] {
				continue
			}
			if b := d.binding(lc, alias, reference); !made[b.Name] {
				made[b.Name] = true
				bindings = append(bindings, b)
			}
		}
	}
	return bindings
}

func (d Defaults) binding(lc *corev1alpha1.LogicalCluster, of workspacetypes.Type, reference tenancyv1alpha1.APIExportReference) *apisv1alpha2.APIBinding {
	cluster, path := logicalcluster.Of(lc), reference.Path
	if path == "" {
		path = string(of.Cluster)
	}
	mode := tenancyv1alpha1.APIBindingLifecycleModeInitializeOnly
	if of.Spec.DefaultAPIBindingLifecycle != nil {
		mode = *of.Spec.DefaultAPIBindingLifecycle
	}
	b := &apisv1alpha2.APIBinding{
		TypeMeta: metav1.TypeMeta{APIVersion: apisv1alpha2.SchemeGroupVersion.String(), Kind: "APIBinding"},
		ObjectMeta: metav1.ObjectMeta{
			Name: defaultName(cluster, path, reference.Export), UID: uuid.NewUUID(), CreationTimestamp: metav1.Now(), Generation: 1,
			Finalizers: []string{apisv1alpha2.APIBindingFinalizer},
			Annotations: map[string]string{
				logicalcluster.AnnotationKey:                      string(cluster),
				corev1alpha1.PathAnnotation:                       lc.Annotations[corev1alpha1.PathAnnotation],
				apisv1alpha2.DefaultAPIBindingLifecycleAnnotation: string(mode),
			},
		},
		Spec: apisv1alpha2.APIBindingSpec{Reference: apisv1alpha2.BindingReference{Export: &apisv1alpha2.ExportBindingReference{Path: path, Name: reference.Export}}},
	}
	if in, ok := d.Exports.Cluster(cluster, path); ok {
		key, value := BindingLabel(in, reference.Export)
		b.Labels = map[string]string{key: value}
	}
	if export, err := d.Exports.Find(cluster, *b.Spec.Reference.Export); err == nil {
		b.Spec.PermissionClaims = AcceptAll(export)
	}
	return b
}

// defaultName is the same for the same binding of a cluster, however often it is made.
func defaultName(cluster logicalcluster.Name, path, export string) string {
	suffix := "-" + strings.ToLower(Hash(string(cluster) + "|" + path + "|" + export))[:5]
	return export[:min(len(export), maxName-len(suffix))] + suffix
}

// AcceptAll returns the acceptance of every claim of an export, for what it selects by default, or everything.
func AcceptAll(export *apisv1alpha2.APIExport) []apisv1alpha2.AcceptablePermissionClaim {
	var all []apisv1alpha2.AcceptablePermissionClaim
	for _, claim := range export.Spec.PermissionClaims {
		scoped := apisv1alpha2.ScopedPermissionClaim{PermissionClaim: *claim.DeepCopy(), Selector: apisv1alpha2.PermissionClaimSelector{MatchAll: true}}
		if claim.DefaultSelector != nil {
			scoped.Selector = *claim.DefaultSelector.DeepCopy()
		}
		all = append(all, apisv1alpha2.AcceptablePermissionClaim{ScopedPermissionClaim: scoped, State: apisv1alpha2.ClaimAccepted})
	}
	return all
}
