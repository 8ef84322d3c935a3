package path

import (
	"net/url"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// Split returns the cluster and the remaining path of a URL whose path starts with /clusters/, by the rules of WithCluster: a program that
// forwards requests must not understand a path differently.
func Split(u *url.URL) (cluster logicalcluster.Cluster, rest string, err error) { return split(u) }
