package runner

import (
	"time"

	"github.com/kcplane/kcp/server/internal/informers"
)

// UnknownInterval is the time until a key of an unknown logical cluster is reconciled again by Restores.
const UnknownInterval = 5 * time.Second

// Restores reports whether a controller may create again what is missing in the logical cluster of a key: not while the content is being
// deleted. If the logical cluster is unknown, the answer is no, and the key is reconciled again later.
func (c *Controller) Restores(set *informers.Set, key informers.Key) bool {
	deleted, known := set.IsDeleted(key.Cluster)
	if !known {
		c.EnqueueAfter(key, UnknownInterval)
	}
	return known && !deleted
}
