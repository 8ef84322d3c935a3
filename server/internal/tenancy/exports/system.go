package exports

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// This file represents resources that the server itself serves as resources of exports in root: they have an identity and a
// policy there, and clusters have bindings to them. They are stored without an identity, and served with or without a binding.

// System are the resources of the server that exports in root represent, with the names of the exports.
type System map[schema.GroupResource]string

// systemGroups are the groups whose resources all belong to the export with the name of the group.
var systemGroups = map[string]bool{"tenancy.kcp.io": true, "topology.kcp.io": true, "cache.kcp.io": true}

// SystemOf returns the resources of the server that exports represent.
func SystemOf(resources []schema.GroupResource) System {
	s := System{}
	for _, r := range resources {
		if systemGroups[r.Group] {
			s[r] = r.Group
		} else if r == corev1alpha1.Resource("shards") {
			s[r] = r.String()
		}
	}
	return s
}

// everywhere are the exports that every cluster binds, whatever its type.
var everywhere = []tenancyv1alpha1.APIExportReference{
	{Path: string(logicalcluster.Root), Export: "tenancy.kcp.io"}, {Path: string(logicalcluster.Root), Export: "topology.kcp.io"},
}

// Everywhere reports whether every cluster binds an export of root, and keeps the binding.
func Everywhere(cluster logicalcluster.Name, export string) bool {
	return slices.Contains(everywhere, tenancyv1alpha1.APIExportReference{Path: string(cluster), Export: export})
}

// IsSystemResource reports whether the server itself serves a resource of an export.
func (s System) IsSystemResource(cluster logicalcluster.Name, export string, resource schema.GroupResource) bool {
	return cluster == logicalcluster.Root && export != "" && s[resource] == export
}

// Source is the export from which a cluster has a resource.
type Source struct {
	Cluster          logicalcluster.Name
	Export, Identity string
}

// Source returns the export from which a cluster has a resource; false if the resource is not from an export.
func (e *Exports) Source(cluster logicalcluster.Name, resource schema.GroupResource) (Source, bool) {
	if name, ok := e.system[resource]; ok {
		export, err := e.Get(logicalcluster.Root, name)
		if err != nil {
			return Source{Cluster: logicalcluster.Root, Export: name}, e.elsewhere != nil // of another shard: see Unloaded
		}
		return Source{logicalcluster.Root, name, export.Status.IdentityHash}, true
	}
	b, r := e.Bound(cluster, resource)
	if b == nil || b.Spec.Reference.Export == nil {
		return Source{}, false
	}
	return Source{logicalcluster.Name(b.Status.APIExportClusterName), b.Spec.Reference.Export.Name, r.Schema.IdentityHash}, true
}

// System returns the resources of the server that exports represent.
func (e *Exports) System() System { return e.system }

// IsSystem reports whether an export represents only resources of the server.
func (e *Exports) IsSystem(export *apisv1alpha2.APIExport) bool {
	for _, r := range export.Spec.Resources {
		if !e.system.IsSystemResource(logicalcluster.Of(export), export.Name, schema.GroupResource{Group: r.Group, Resource: r.Name}) {
			return false
		}
	}
	return len(export.Spec.Resources) > 0
}

// boundStatus returns the initial status of a binding to a system export, which is the status that the controller would set. It is
// empty while the export is incomplete, and if the export has permission claims.
func (e *Exports) boundStatus(export *apisv1alpha2.APIExport) (status apisv1alpha2.APIBindingStatus) {
	if export.Status.IdentityHash == "" || len(export.Spec.PermissionClaims) > 0 || !e.IsSystem(export) {
		return status
	}
	from := logicalcluster.Of(export)
	bound := make([]apisv1alpha2.BoundAPIResource, 0, len(export.Spec.Resources))
	for _, r := range export.Spec.Resources {
		s, err := e.Schema(from, r.Schema)
		if err != nil {
			return status
		}
		bound = append(bound, BoundResource(schema.GroupResource{Group: r.Group, Resource: r.Name}, s, export.Status.IdentityHash))
	}
	now := storage.TimeAsRead(time.Now())
	kinds := []string{
		apisv1alpha2.APIBindingExportValid, apisv1alpha2.APIBindingInitialBindingCompleted, apisv1alpha2.APIBindingUpToDate,
		apisv1alpha2.APIBindingPermissionClaimsApplied, apisv1alpha2.APIBindingPermissionClaimsValid, apisv1alpha2.APIBindingReady,
	}
	status.Conditions = make([]corev1alpha1.Condition, 0, len(kinds))
	for _, kind := range kinds {
		status.Conditions = append(status.Conditions, corev1alpha1.Condition{Type: kind, Status: metav1.ConditionTrue, LastTransitionTime: now})
	}
	status.APIExportClusterName, status.BoundResources, status.Phase = string(from), bound, apisv1alpha2.APIBindingPhaseBound
	return status
}

// BoundResource returns the entry in a binding for a resource of its export with a schema.
func BoundResource(resource schema.GroupResource, s *apisv1alpha1.APIResourceSchema, identity string) apisv1alpha2.BoundAPIResource {
	bound := apisv1alpha2.BoundAPIResource{
		Group: resource.Group, Resource: resource.Resource,
		Schema: apisv1alpha2.BoundAPIResourceSchema{Name: s.Name, UID: string(s.UID), IdentityHash: identity},
	}
	for _, v := range s.Spec.Versions {
		if v.Storage {
			bound.StorageVersions = []string{v.Name}
		}
	}
	return bound
}
