package informers

import (
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// Local returns the objects of a cluster that this shard stores. It returns nothing for an informer of NewPacked.
func (i *Informer) Local(cluster logicalcluster.Name) []runtime.Object {
	if i.indexer == nil {
		return nil
	}
	found, _ := i.indexer.ByIndex(byCluster, string(cluster)) // the index exists
	objects := make([]runtime.Object, len(found))
	for n := range found {
		objects[n] = found[n].(runtime.Object)
	}
	return objects
}

// LocalClusters returns the clusters with objects that this shard stores. It returns nothing for an informer of NewPacked.
func (i *Informer) LocalClusters() []logicalcluster.Name {
	if i.indexer == nil {
		return nil
	}
	names := i.indexer.ListIndexFuncValues(byCluster)
	clusters := make([]logicalcluster.Name, len(names))
	for n := range names {
		clusters[n] = logicalcluster.Name(names[n])
	}
	return clusters
}
