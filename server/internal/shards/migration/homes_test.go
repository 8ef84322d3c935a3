package migration

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/internal/tenancy/scheduling"
)

func TestOnlyTheRecordOfAHomeLetsItBeCreatedWhereOneHasMovedAway(t *testing.T) {
	moved, leaving := example.Fence(storage.FenceMoved, "west"), example.Fence(storage.FenceLeaving, "west")
	for _, c := range []struct {
		what  string
		fence *storage.Fence
		shard string // in the record
		owner types.UID
		want  func(error) bool
		opens bool
	}{
		{"the record names this shard", moved, peers.Root, "new", isAccepted, true},
		{"the record names another shard", moved, "east", "new", apierrors.IsConflict, false},
		{"the record is that of a later home", moved, peers.Root, "former", isAbsent, false},
		{"the home is still here", leaving, peers.Root, "new", isAccepted, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := newShard(t, "west")
			record := objecttest.In("homes", &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: string(moving), UID: "new"}})
			scheduling.SetPlacement(record, c.shard, moving)
			p, _ := newParents(t, peers.Root, record, nil)
			if err := s.write(moving, "former", 1); err != nil {
				t.Fatal(err)
			}
			if _, err := s.store.SwapFence(t.Context(), moving, nil, c.fence); err != nil {
				t.Fatal(err)
			}
			homes := &Homes{Parents: p, Store: s.store, Copies: s.copies}
			if err := homes.MakeRoom(t.Context(), moving, c.owner); !c.want(err) {
				t.Errorf("got %v", err)
			}
			fence, _, err := s.store.Fence(t.Context(), moving)
			if err != nil || (fence == nil) != c.opens {
				t.Errorf("the fence is %+v, %v", fence, err)
			}
			if err := s.write(moving, "new", 1); (err == nil) != c.opens {
				t.Errorf("a write of the new home: %v", err)
			}
			if err := homes.MakeRoom(t.Context(), moving, c.owner); c.opens && err != nil {
				t.Errorf("without a fence: %v", err)
			}
		})
	}
}
