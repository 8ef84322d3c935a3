package inflight

import (
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/process/fairqueue"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// maxDepth limits the depth of a cluster below its unit, and the length of chains of service accounts that created workspaces.
const maxDepth = 64

// accounts determines the accounts of logical clusters.
type accounts struct {
	clusters informers.Lister[*corev1alpha1.LogicalCluster]
}

// The prefixes of names of accounts: users, and clusters whose owner is not a tenant.
const (
	ofUser    = "user:"
	ofCluster = "cluster:"
)

// place returns the place of a holder in the tree of all tenants.
func (a accounts) place(h fairqueue.Holder) fairqueue.Place {
	if h.User != "" {
		account := ofUser + h.User
		return fairqueue.Place{Account: account, Unit: h.Cluster, Owner: account}
	}
	cluster := logicalcluster.Name(h.Cluster)
	unit := a.unit(cluster)
	return fairqueue.Place{Account: a.account(unit, 0), Unit: string(unit), Owner: a.account(cluster, 0)}
}

// Payer returns a function that returns the account of a logical cluster.
func Payer(clusters informers.Lister[*corev1alpha1.LogicalCluster]) func(logicalcluster.Name) string {
	return func(cluster logicalcluster.Name) string {
		return accounts{clusters}.place(fairqueue.Holder{Cluster: string(cluster)}).Account
	}
}

// unit returns the child of root, or the home, that contains a cluster. It is the cluster itself if it has no parent workspace.
func (a accounts) unit(cluster logicalcluster.Name) logicalcluster.Name {
	for range maxDepth {
		lc := a.get(cluster)
		if lc == nil || lc.Spec.Owner == nil {
			break
		}
		above := logicalcluster.Name(lc.Spec.Owner.Cluster)
		if above == "" || above == logicalcluster.Root || above == logicalcluster.Homes {
			break
		}
		cluster = above
	}
	return cluster
}

// account returns the account of a cluster: the user that created it. Clusters that administrators and service accounts of root create are
// for a tenant, and each has a separate account. Clusters that a service account of another cluster creates, or a user of an issuer of
// another cluster, count against the account of that cluster.
func (a accounts) account(cluster logicalcluster.Name, depth int) string {
	itself := ofCluster + string(cluster)
	lc := a.get(cluster)
	if lc == nil || lc.Spec.CreatedBy == nil || lc.Spec.CreatedBy.Username == "" || authorization.Administers(lc.Spec.CreatedBy.Groups) {
		return itself
	}
	by := lc.Spec.CreatedBy
	from := by.Extra[logicalcluster.UserExtraKey]
	if len(from) == 0 && !strings.HasPrefix(by.Username, serviceaccount.ServiceAccountUsernamePrefix) {
		return ofUser + by.Username
	}
	if len(from) != 1 || depth == maxDepth || slices.Contains([]string{string(logicalcluster.Root), string(cluster)}, from[0]) {
		return itself
	}
	return a.account(a.unit(logicalcluster.Name(from[0])), depth+1)
}

func (a accounts) get(cluster logicalcluster.Name) *corev1alpha1.LogicalCluster {
	if cluster.IsSystem() {
		return nil
	}
	lc, err := a.clusters.Get(cluster, "", corev1alpha1.LogicalClusterName)
	if err != nil {
		return nil
	}
	return lc
}
