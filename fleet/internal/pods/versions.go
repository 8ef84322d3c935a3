package pods

import (
	"strconv"
	"sync/atomic"
	"time"

	"k8s.io/utils/lru"
)

// mostVersions is the number of resource versions of lists that are known. After more lists, watches that begin at an earlier one start
// again with a list.
const mostVersions = 4096

// versions has the resource versions of lists: each stands for those of the clusters.
type versions struct {
	last  atomic.Uint64
	known *lru.Cache // of version, by resource version
}

// version is what a resource version stands for.
type version struct {
	workspace string
	of        map[source]string
}

// newVersions returns versions that are higher than those of former processes, and than those of clusters.
func newVersions() *versions {
	v := &versions{known: lru.New(mostVersions)}
	v.last.Store(uint64(time.Now().Unix()) << 20)
	return v
}

func (v *versions) add(workspace string, of map[source]string) string {
	text := strconv.FormatUint(v.last.Add(1), 10)
	v.known.Add(text, version{workspace, of})
	return text
}

// find returns the versions of sources for a resource version. It returns false if this process does not know it, or it stands for other
// sources.
func (v *versions) find(workspace, text string, all []source) (map[source]string, bool) {
	found, ok := v.known.Get(text)
	if !ok {
		return nil, false
	}
	known := found.(version)
	for _, s := range all {
		if _, ok := known.of[s]; !ok {
			return nil, false
		}
	}
	return known.of, known.workspace == workspace && len(known.of) == len(all)
}
