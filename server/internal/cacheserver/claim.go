package cacheserver

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Headers of the requests of a shard for its own part. They name the leader that sends them: once a request of a later leader was received,
// reads included, those of earlier ones are refused. A leader therefore reads its part before it writes.
const (
	// IncarnationHeader is the ID of the store of the shard.
	IncarnationHeader = "X-Kcp-Incarnation"
	// LeaderTermHeader counts the leaders of the shard, in decimal.
	LeaderTermHeader = "X-Kcp-Leader-Term"
	// LeaderRoundHeader counts, in decimal, how often the leader has read its part. A leader that does not know whether a write was made
	// reads its part in another round, after which the write is refused.
	LeaderRoundHeader = "X-Kcp-Leader-Round"
)

// claim is the leader of a shard that sends a request; zero if the request names none.
type claim struct {
	incarnation string
	term, round uint64
}

// maxIncarnation is the maximum length of the ID of a store.
const maxIncarnation = 256

// claimOf returns the claim in the headers of a request.
func claimOf(header http.Header) (claim, error) {
	c, term := claim{incarnation: header.Get(IncarnationHeader)}, header.Get(LeaderTermHeader)
	if c.incarnation == "" && term == "" {
		return claim{}, nil
	}
	var err error
	if c.term, err = strconv.ParseUint(term, 10, 64); err != nil || c.incarnation == "" || len(c.incarnation) > maxIncarnation {
		return claim{}, apierrors.NewBadRequest(fmt.Sprintf("%s must be a decimal number, and %s an ID of at most %d bytes: got %q and %q",
			LeaderTermHeader, IncarnationHeader, maxIncarnation, term, c.incarnation))
	}
	if round := header.Get(LeaderRoundHeader); round != "" {
		if c.round, err = strconv.ParseUint(round, 10, 64); err != nil {
			return claim{}, apierrors.NewBadRequest(fmt.Sprintf("%s must be a decimal number, got %q", LeaderRoundHeader, round))
		}
	}
	return c, nil
}

// part is the record of what a shard offers. There is one for each shard, so that all marks of a shard take a bounded space.
type part struct {
	// Incarnation and Term are those of the latest leader that has used the part.
	Incarnation string `json:"incarnation,omitempty"`
	Term        uint64 `json:"term,omitempty"`
	// Round is the latest one of that leader.
	Round uint64 `json:"round,omitempty"`
	// Replaced are the incarnations before, with the time of their replacement. The last maxReplaced of the last deletionGrace are kept.
	Replaced []replaced `json:"replaced,omitempty"`
	// Removed is set from the deletion of the Shard object until it is created again. The part cannot be written.
	Removed bool `json:"removed,omitempty"`
	// Purged reports that the part of the removed shard is empty.
	Purged bool `json:"purged,omitempty"`
}

type replaced struct {
	Incarnation string      `json:"incarnation"`
	At          metav1.Time `json:"at"`
}

const (
	// maxReplaced is the number of replaced incarnations of a shard that are remembered.
	maxReplaced = 8
	// deletionGrace is for how long requests of a replaced incarnation are refused. None is delayed for longer.
	deletionGrace = time.Hour
)

// accept returns the record after a request with a claim, and an error if an earlier leader sends it. Terms count within an incarnation,
// and rounds within a term. Another incarnation replaces the one before: IDs of stores never return.
func (p part) accept(c claim, now time.Time) (part, error) {
	if c == (claim{}) {
		return p, nil
	}
	current := func(r replaced) bool { return now.Sub(r.At.Time) < deletionGrace }
	switch {
	case c.incarnation == p.Incarnation && c.term < p.Term:
		return p, fmt.Errorf("the request is from leader term %d of the shard, and leader term %d has begun", c.term, p.Term)
	case c.incarnation == p.Incarnation && c.term == p.Term && c.round < p.Round:
		return p, fmt.Errorf("the request is from round %d of the leader of the shard, and round %d has begun", c.round, p.Round)
	case c.incarnation == p.Incarnation:
		p.Term, p.Round = c.term, c.round
		return p, nil
	case slices.ContainsFunc(p.Replaced, func(r replaced) bool { return r.Incarnation == c.incarnation && current(r) }):
		return p, fmt.Errorf("the request is from the store %s of the shard, which the store %s has replaced", c.incarnation, p.Incarnation)
	}
	kept := slices.DeleteFunc(slices.Clone(p.Replaced), func(r replaced) bool { return !current(r) || r.Incarnation == c.incarnation })
	if p.Incarnation != "" {
		kept = append(kept, replaced{p.Incarnation, metav1.NewTime(now)})
	}
	p.Incarnation, p.Term, p.Round = c.incarnation, c.term, c.round
	p.Replaced = kept[max(0, len(kept)-maxReplaced):]
	return p, nil
}

// equal reports whether two records are equal.
func (p part) equal(other part) bool {
	same := func(a, b replaced) bool { return a.Incarnation == b.Incarnation && a.At.Equal(&b.At) }
	return p.Incarnation == other.Incarnation && p.Term == other.Term && p.Round == other.Round && p.Removed == other.Removed &&
		p.Purged == other.Purged && slices.EqualFunc(p.Replaced, other.Replaced, same)
}
