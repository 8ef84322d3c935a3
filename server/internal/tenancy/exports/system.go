package exports

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// This file makes resources that the server itself serves look like those of exports in root: they have an identity and a policy
// there, and clusters have bindings to them. They are stored without an identity, and served with or without a binding.

// System are the resources of the server that exports of root stand for, with the names of these.
type System map[schema.GroupResource]string

// systemGroups are the groups all of whose resources belong to the export of the same name.
var systemGroups = map[string]bool{"tenancy.kcp.io": true, "topology.kcp.io": true, "cache.kcp.io": true}

// SystemOf returns those of the resources of the server that exports stand for.
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

// everywhere are the exports that every cluster has bound, whatever its type.
var everywhere = []tenancyv1alpha1.APIExportReference{
	{Path: string(logicalcluster.Root), Export: "tenancy.kcp.io"}, {Path: string(logicalcluster.Root), Export: "topology.kcp.io"},
}

// Everywhere tells whether every cluster has bound an export of root, and keeps it bound.
func Everywhere(cluster logicalcluster.Name, export string) bool {
	return slices.Contains(everywhere, tenancyv1alpha1.APIExportReference{Path: string(cluster), Export: export})
}

// Stands tells whether the server itself serves what an export offers as a resource.
func (s System) Stands(cluster logicalcluster.Name, export string, resource schema.GroupResource) bool {
	return cluster == logicalcluster.Root && export != "" && s[resource] == export
}

// Source is the export that a cluster has a resource from.
type Source struct {
	Cluster          logicalcluster.Name
	Export, Identity string
}

// Source returns where a cluster has a resource from, false if from no export.
func (e *Exports) Source(cluster logicalcluster.Name, resource schema.GroupResource) (Source, bool) {
	if name, ok := e.system[resource]; ok {
		export, err := e.Get(logicalcluster.Root, name)
		if err != nil {
			return Source{}, false
		}
		return Source{logicalcluster.Root, name, export.Status.IdentityHash}, true
	}
	b, r := e.Bound(cluster, resource)
	if b == nil || b.Spec.Reference.Export == nil {
		return Source{}, false
	}
	return Source{logicalcluster.Name(b.Status.APIExportClusterName), b.Spec.Reference.Export.Name, r.Schema.IdentityHash}, true
}

// System returns the resources of the server that exports stand for.
func (e *Exports) System() System { return e.system }

// IsSystem tells whether an export stands for nothing but resources of the server.
func (e *Exports) IsSystem(export *apisv1alpha2.APIExport) bool {
	for _, r := range export.Spec.Resources {
		if !e.system.Stands(logicalcluster.Of(export), export.Name, schema.GroupResource{Group: r.Group, Resource: r.Name}) {
			return false
		}
	}
	return len(export.Spec.Resources) > 0
}

// boundStatus returns the status that a binding to a system export has from the beginning; its controller would arrive at the same.
// It is empty while the export is not complete, and if it claims anything.
func (e *Exports) boundStatus(export *apisv1alpha2.APIExport) (status apisv1alpha2.APIBindingStatus) {
	if export.Status.IdentityHash == "" || len(export.Spec.PermissionClaims) > 0 || !e.IsSystem(export) {
		return status
	}
	from := logicalcluster.Of(export)
	var bound []apisv1alpha2.BoundAPIResource
	for _, r := range export.Spec.Resources {
		s, err := e.Schema(from, r.Schema)
		if err != nil {
			return status
		}
		bound = append(bound, BoundResource(schema.GroupResource{Group: r.Group, Resource: r.Name}, s, export.Status.IdentityHash))
	}
	now := metav1.Now()
	for _, kind := range []string{
		apisv1alpha2.APIBindingExportValid, apisv1alpha2.APIBindingInitialBindingCompleted, apisv1alpha2.APIBindingUpToDate,
		apisv1alpha2.APIBindingPermissionClaimsApplied, apisv1alpha2.APIBindingPermissionClaimsValid, apisv1alpha2.APIBindingReady,
	} {
		status.Conditions = append(status.Conditions, corev1alpha1.Condition{Type: kind, Status: metav1.ConditionTrue, LastTransitionTime: now})
	}
	status.APIExportClusterName, status.BoundResources, status.Phase = string(from), bound, apisv1alpha2.APIBindingPhaseBound
	return status
}

// BoundResource returns what a binding says of a resource that its export offers by a schema.
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
