package feed

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/server/internal/informers"
)

// object is an object of any kind.
type object interface {
	runtime.Object
	metav1.Object
}

// rank orders the writes of one logical cluster. What restricts is written before what it restricts, and removed after it.
type rank int

const (
	rankPlace    rank = iota // where clusters are
	rankRestrict             // what a provider enforces for its consumers
	rankContent
	rankRole
	rankBinding
)

// kind is a kind of offered objects.
type kind struct {
	resource schema.GroupVersionResource
	name     string
	rank     rank
	// offered reports whether an object is offered.
	offered func(object, *surroundings) bool
	// informer has the objects of this shard. It is nil for kinds that are not found by their cluster.
	informer *informers.Informer
}

func (k *kind) isRBAC() bool { return k.rank == rankRole || k.rank == rankBinding }

// kindsOf returns the kinds of which the objects of a set are offered, in the order in which they are written, and those of LogicalClusters
// and of Workspaces. No kind with a secret, a token or content of consumers may be added.
func kindsOf(set *informers.Set) (content []*kind, clusters, workspaces *kind) {
	of := func(i *informers.Informer, name string, r rank, offered func(object, *surroundings) bool) *kind {
		return &kind{resource: i.Resource(), name: name, rank: r, offered: offered, informer: i}
	}
	content = []*kind{
		of(set.ValidatingAdmissionPolicies.Informer, "ValidatingAdmissionPolicy", rankRestrict, hasExports),
		of(set.ValidatingAdmissionPolicyBindings.Informer, "ValidatingAdmissionPolicyBinding", rankRestrict, hasExports),
		of(set.MutatingAdmissionPolicies.Informer, "MutatingAdmissionPolicy", rankRestrict, hasExports),
		of(set.MutatingAdmissionPolicyBindings.Informer, "MutatingAdmissionPolicyBinding", rankRestrict, hasExports),
		of(set.ValidatingWebhookConfigurations.Informer, "ValidatingWebhookConfiguration", rankRestrict, hasExports),
		of(set.MutatingWebhookConfigurations.Informer, "MutatingWebhookConfiguration", rankRestrict, hasExports),
		of(set.WorkspaceAuthenticationConfigurations.Informer, "WorkspaceAuthenticationConfiguration", rankRestrict, isAlways),
		of(set.Shards.Informer, "Shard", rankContent, isInRoot),
		of(set.LogicalClusterMigrations.Informer, "LogicalClusterMigration", rankContent, isInRoot),
		of(set.APIExports.Informer, "APIExport", rankContent, isAlways),
		of(set.APIResourceSchemas.Informer, "APIResourceSchema", rankContent, isAlways),
		of(set.APIConversions.Informer, "APIConversion", rankContent, isAlways),
		of(set.WorkspaceTypes.Informer, "WorkspaceType", rankContent, isAlways),
		of(set.APIExportEndpointSlices.Informer, "APIExportEndpointSlice", rankContent, isAlways),
		of(set.ClusterCachedResources.Informer, "ClusterCachedResource", rankContent, isAlways),
		of(set.ClusterCachedResourceEndpointSlices.Informer, "ClusterCachedResourceEndpointSlice", rankContent, isAlways),
		of(set.ClusterRoles.Informer, "ClusterRole", rankRole, isRoleWithWords),
		of(set.ClusterRoleBindings.Informer, "ClusterRoleBinding", rankBinding, isBindingWithWords),
	}
	clusters = &kind{resource: set.LogicalClusters.Resource(), name: "LogicalCluster", rank: rankPlace}
	workspaces = &kind{resource: set.Workspaces.Resource(), name: "Workspace", rank: rankPlace}
	return content, clusters, workspaces
}

// isGone reports whether an object is deleted, but for the last request that removes it.
func isGone(obj object) bool {
	return obj.GetDeletionTimestamp() != nil && len(obj.GetFinalizers()) == 0
}

// inOrderOfAge sorts objects, the oldest first. Over a limit, what was there first stays offered.
func inOrderOfAge(objects []object) {
	slices.SortFunc(objects, func(a, b object) int {
		at, bt := a.GetCreationTimestamp(), b.GetCreationTimestamp()
		if at.Equal(&bt) {
			return compareStrings(a.GetName(), b.GetName())
		}
		if at.Before(&bt) {
			return -1
		}
		return 1
	})
}
