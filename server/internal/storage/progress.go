package storage

import (
	"context"
	"fmt"
	"hash/maphash"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

// inLane returns a context for watches in a separate stream of etcd. Etcd reports progress to all watches of a stream: without a
// separate stream, each report would send a bookmark to all clients.
func inLane(ctx context.Context, lane string) context.Context {
	return metadata.NewOutgoingContext(ctx, metadata.Pairs("kcp-watches", lane))
}

// ofInformers is the lane of watches across all clusters, ofCache that of watches of a cache beside them.
const ofInformers, ofCache = "informers", "cache"

// lanes is the number of streams for the watches of tenants. Etcd sends the events of a stream one by one, and reads the previous
// version of an object again for each watch: large objects with many watches delay only the events of tenants in the same lane.
const lanes = 16

var laneSeed = maphash.MakeSeed()

// ofTenant returns a context for watches in the stream of a tenant. Those of administrators have the one of the process.
func ofTenant(ctx context.Context, tenant string) context.Context {
	if tenant == "" {
		return ctx
	}
	return inLane(ctx, strconv.FormatUint(maphash.String(laneSeed, tenant)%lanes, 10))
}

// Revision returns the revision that the majority of the members of etcd agrees on.
func (b *Backend) Revision(ctx context.Context) (uint64, error) {
	response, err := b.client.Client.Get(ctx, "health")
	if err != nil && denied(err) {
		return 0, fmt.Errorf("etcd denies access to this server: grant access to the user of its client certificate: %w", err)
	}
	if err != nil {
		return 0, fmt.Errorf("etcd does not respond: %w", err)
	}
	return uint64(response.Header.Revision), nil
}

// Progress makes etcd report progress to the watches across all clusters, which then receive bookmarks.
func (b *Backend) Progress(ctx context.Context) error {
	return b.client.Client.RequestProgress(clientv3.WithRequireLeader(inLane(ctx, b.lane)))
}

// progressKey is written for a newer revision, and never read.
const progressKey = "kcp_watch_progress"

// Advance makes a newer revision.
func (b *Backend) Advance(ctx context.Context) error {
	_, err := b.client.Client.Put(ctx, progressKey, "")
	return err
}

// pingTimeout limits the response time of etcd in the health check.
const pingTimeout = 2 * time.Second
