package feed

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// readTimeout limits a read of the schemas of one cluster.
const readTimeout = 30 * time.Second

// schemas reads the content of the schemas of clusters that something here needs. Schemas are immutable, so each is read once.
type schemas struct {
	reader *Reader
	client *readClient
	queue  workqueue.TypedRateLimitingInterface[logicalcluster.Name]

	mu     sync.Mutex // guards needed
	needed map[logicalcluster.Name]bool
}

func newSchemas(r *Reader, client *readClient) *schemas {
	return &schemas{
		reader: r, client: client, needed: map[logicalcluster.Name]bool{},
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[logicalcluster.Name](100*time.Millisecond, time.Minute)),
	}
}

// need reads the schemas of these clusters, and forgets those of others.
func (s *schemas) need(clusters map[logicalcluster.Name]bool) {
	s.mu.Lock()
	before := s.needed
	s.needed = clusters
	s.mu.Unlock()
	for cluster := range clusters {
		if !before[cluster] {
			s.queue.Add(cluster)
		}
	}
	for cluster := range before {
		if !clusters[cluster] {
			s.queue.Add(cluster)
		}
	}
}

func (s *schemas) isNeeded(cluster logicalcluster.Name) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.needed[cluster]
}

// changed handles the metadata of a schema, or the change of the holder of a cluster.
func (s *schemas) changed(cluster logicalcluster.Name) {
	if s.isNeeded(cluster) {
		s.queue.Add(cluster)
	}
}

// run reads until ctx ends.
func (s *schemas) run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() {
		<-ctx.Done()
		s.queue.ShutDown()
	})
	for {
		cluster, shutdown := s.queue.Get()
		if shutdown {
			break
		}
		if err := s.read(ctx, cluster); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("Reading the schemas of a cluster from the cache server failed, will retry",
				decisionlog.Cluster, cluster, decisionlog.Reason, err)
			s.queue.AddRateLimited(cluster)
		} else {
			s.queue.Forget(cluster)
		}
		s.queue.Done(cluster)
	}
	running.Wait()
}

// read makes the informer have the schemas of a cluster, if they are needed. Without a known holder it does nothing: the cluster is
// enqueued again when the holder is known.
func (s *schemas) read(ctx context.Context, cluster logicalcluster.Name) error {
	informer, elsewhere := s.reader.in.Set.APIResourceSchemas.Informer, s.reader.in.Elsewhere
	if !s.isNeeded(cluster) {
		for _, key := range elsewhere.OfferedIn(informer, cluster) {
			if err := elsewhere.Delete(informer, key.Shard, key.Key); err != nil {
				return err
			}
		}
		return nil
	}
	shard := elsewhere.Holder(cluster)
	if shard == "" {
		return nil
	}
	offered, err := s.list(ctx, shard, cluster)
	if err != nil {
		return err
	}
	for _, r := range offered {
		held, ok := elsewhere.Offered(informer, r.OfferedKey)
		if ok && !positionOf(r.object).follows(positionOf(held), s.reader.registered(shard)) {
			continue
		}
		if ok && positionOf(r.object) == positionOf(held) {
			continue
		}
		if err := elsewhere.Set(informer, shard, r.object); err != nil {
			return err
		}
	}
	return nil
}

// list returns the schemas that a shard offers of a cluster.
func (s *schemas) list(ctx context.Context, shard string, cluster logicalcluster.Name) ([]received, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var offered []received
	options := metav1.ListOptions{}
	for {
		page := &apisv1alpha1.APIResourceSchemaList{}
		request := s.client.get(shard, string(cluster), s.reader.in.Set.APIResourceSchemas.Resource(), options)
		if err := request.Do(ctx).Into(page); err != nil {
			return nil, err
		}
		for n := range page.Items {
			key := informers.Key{Cluster: cluster, Name: page.Items[n].Name}
			if r, ok := s.reader.strings.receive(&page.Items[n], s.reader.in.Shard); ok &&
				r.OfferedKey == (informers.OfferedKey{Shard: shard, Key: key}) {
				offered = append(offered, r)
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return offered, nil
		}
	}
}
