package storage

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// all returns the digest of the moving cluster at a revision.
func (c *copied) all(t *testing.T, revision int64) Digest {
	t.Helper()
	collections, _, _, err := c.from.Collections(in("moving"), revision, "")
	if err != nil {
		t.Fatal(err)
	}
	digest, err := c.from.Digest(in("moving"), revision, collections)
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

func (c *copied) revision(t *testing.T) int64 {
	t.Helper()
	revision, err := c.origin.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return int64(revision)
}

// Whatever is written, the digest of the changes between two revisions leads from the digest at one to the digest at the other.
func TestTheDigestOfChangesIsTheDifferenceOfTwoDigests(t *testing.T) {
	c := newCopied(t)
	writers := c.origin.writers()
	var names []string
	for name := range writers {
		names = append(names, name)
	}
	slices.Sort(names)
	random := rand.New(rand.NewPCG(5, 5))
	revisions, digests := []int64{c.revision(t)}, []Digest{c.all(t, c.revision(t))}
	for n := range 400 {
		cluster := []string{"moving", "moving", "other"}[random.IntN(3)]
		_ = writers[names[random.IntN(len(names))]](in(cluster), fmt.Sprint("x", random.IntN(8)), fmt.Sprint(n))
		if random.IntN(40) == 0 {
			revision := c.revision(t)
			revisions, digests = append(revisions, revision), append(digests, c.all(t, revision))
		}
	}
	different := 0
	for to := range revisions {
		for _, from := range []int{0, max(0, to-1), to} {
			change, err := c.from.DigestOfChanges(in("moving"), revisions[from], revisions[to])
			if err != nil {
				t.Fatal(err)
			}
			got := digests[from]
			got.add(change)
			if got != digests[to] {
				t.Errorf("from revision %d to %d: got %v, want %v", revisions[from], revisions[to], got, digests[to])
			}
			if got.subtract(change); got != digests[from] {
				t.Errorf("from revision %d back to %d: got %v, want %v", revisions[to], revisions[from], got, digests[from])
			}
			if digests[from] != digests[to] {
				different++
			}
		}
	}
	if len(revisions) < 5 || different < len(revisions)-1 {
		t.Errorf("only %d of the digests of %d revisions are different", different, len(revisions))
	}
}

func TestEveryDifferenceChangesADigest(t *testing.T) {
	sum := func(pairs ...string) (d Digest) {
		for i := 0; i < len(pairs); i += 2 {
			d.add(hash(pairs[i], []byte(pairs[i+1])))
		}
		return d
	}
	same := sum("/a", "1", "/b", "2", "/c", "3")
	if other := sum("/c", "3", "/a", "1", "/b", "2"); other != same {
		t.Errorf("in another order: %v and %v", same, other)
	}
	for what, other := range map[string]Digest{
		"a missing key":    sum("/a", "1", "/b", "2"),
		"one more key":     sum("/a", "1", "/b", "2", "/c", "3", "/d", "4"),
		"a key twice":      sum("/a", "1", "/b", "2", "/c", "3", "/c", "3"),
		"another value":    sum("/a", "1", "/b", "2", "/c", "4"),
		"another key":      sum("/a", "1", "/b", "2", "/d", "3"),
		"exchanged values": sum("/a", "1", "/b", "3", "/c", "2"),
		"a longer key":     sum("/a", "1", "/b", "2", "/c3", ""),
		"no key":           sum(),
	} {
		if other == same {
			t.Errorf("%s does not change the digest", what)
		}
	}
}

func TestADigestOfChangesNeedsTheirHistory(t *testing.T) {
	c := newCopied(t)
	before := c.revision(t)
	for _, name := range []string{"create", "update", "delete"} {
		if err := c.origin.writers()[name](in("moving"), "x", name); err != nil {
			t.Fatal(err)
		}
	}
	now := c.revision(t)
	if _, err := client.Compact(context.Background(), now); err != nil {
		t.Fatal(err)
	}
	if got, err := c.from.DigestOfChanges(in("moving"), before, now); !apierrors.IsResourceExpired(err) {
		t.Errorf("got %v, %v", got, err)
	}
	// The deletion is the last change, but its previous value is gone.
	if got, err := c.from.DigestOfChanges(in("moving"), now-1, now); !apierrors.IsResourceExpired(err) {
		t.Errorf("without the previous value: got %v, %v", got, err)
	}
}
