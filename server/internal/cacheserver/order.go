package cacheserver

import (
	"fmt"
	"strconv"

	"github.com/kcplane/kcp/server/internal/storage"
)

// Annotations with which a shard marks what it offers.
const (
	// OriginalResourceVersion is the resource version of the object at its shard.
	OriginalResourceVersion = "cache.kcp.io/original-resource-version"
	// OriginalUID is the UID of the object at its shard.
	OriginalUID = "cache.kcp.io/original-resource-UID"
	// Incarnation is the ID of the store of the shard.
	Incarnation = "internal.kcp.io/incarnation"
	// LeaderTerm counts the leaders of the shard, in decimal.
	LeaderTerm = "internal.kcp.io/leader-term"
	// Shard is the shard that offers the object. The cache server sets it.
	Shard = storage.ShardAnnotation
)

// position is how far a shard had come when it offered an object, from the annotations of the object.
type position struct {
	incarnation   string
	term, version uint64
}

// positionOf returns the position in annotations. What is absent is zero.
func positionOf(annotations map[string]string) (position, error) {
	p := position{incarnation: annotations[Incarnation]}
	for key, number := range map[string]*uint64{LeaderTerm: &p.term, OriginalResourceVersion: &p.version} {
		text, ok := annotations[key]
		if !ok {
			continue
		}
		var err error
		if *number, err = strconv.ParseUint(text, 10, 64); err != nil {
			return p, fmt.Errorf("annotation %s must be a decimal number, got %q", key, text)
		}
	}
	return p, nil
}

// supersedes returns an error unless p may replace stored. Within an incarnation, neither the leader term nor the version falls, so that a
// former leader, or a request that was delayed, never brings back an earlier state. Another incarnation may replace everything.
func (p position) supersedes(stored position) error {
	switch {
	case p.incarnation != stored.incarnation:
		return nil
	case p.term < stored.term:
		return fmt.Errorf("it was offered in leader term %d, and the stored object in term %d", p.term, stored.term)
	case p.version < stored.version:
		return fmt.Errorf("its original resource version is %d, and that of the stored object is %d", p.version, stored.version)
	}
	return nil
}
