package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SchemeGroupVersion is the group and version of the types in this package.
var SchemeGroupVersion = schema.GroupVersion{Group: "fleet.kcp.io", Version: "v1alpha1"}

const (
	// Export is the name of the APIExport of the fleet, and of its endpoint slice.
	Export = "fleet"
	// Namespace is where the fleet has objects of its own. In the workspace of the provider: the service accounts of the controller and of
	// the agents, and the Leases of the agents. On a cluster: the agent with its certificate.
	Namespace = "kcp-fleet"
	// NamespaceRole is the ClusterRole on a cluster that its agent binds to itself in the namespaces that it creates.
	NamespaceRole = "kcp-fleet-namespace"
)

var (
	// SchemeBuilder collects what AddToScheme registers.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)
	// AddToScheme registers the types of this package.
	AddToScheme = SchemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(SchemeGroupVersion,
		&Assignment{}, &AssignmentList{},
		&Cluster{}, &ClusterList{},
		&Endpoint{}, &EndpointList{},
		&Placement{}, &PlacementList{},
		&Workload{}, &WorkloadList{},
	)
	metav1.AddToGroupVersion(scheme, SchemeGroupVersion)
	return nil
}

// Resource returns the name of a resource of this group.
func Resource(resource string) schema.GroupResource {
	return SchemeGroupVersion.WithResource(resource).GroupResource()
}
