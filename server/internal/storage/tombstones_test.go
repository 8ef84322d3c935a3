package storage

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/kubernetes/pkg/apis/core"
)

func TestATombstoneRefusesALaterCreation(t *testing.T) {
	maps, graves := configMaps(t), backend.Tombstones()
	store := func(cluster string, owner types.UID) error {
		return graves.Create(in(cluster), "buried", owner, func(ctx context.Context) error {
			obj := &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "only"}}
			return maps.Create(ctx, prefix+"/n/only", obj, &core.ConfigMap{}, 0)
		})
	}
	if err := store("other", "owner"); err == nil {
		t.Error("a tombstone of another cluster was compared")
	}
	if found, err := graves.Has(t.Context(), "buried", "owner"); found || err != nil {
		t.Fatalf("there is a tombstone before the deletion: %v", err)
	}
	if err := graves.Put(t.Context(), "buried", "owner"); err != nil {
		t.Fatal(err)
	}
	if found, err := graves.Has(t.Context(), "buried", "owner"); !found || err != nil {
		t.Errorf("the tombstone is %t, %v", found, err)
	}
	if err := store("buried", "owner"); !storage.IsExist(err) {
		t.Errorf("got %v, want AlreadyExists", err)
	}
	if found := list(t, maps, "buried", ""); len(found) != 0 {
		t.Errorf("there is %v", found)
	}
	if err := store("buried", "another owner"); err != nil {
		t.Errorf("for another owner: %v", err)
	}
	if err := store("buried", "owner"); !storage.IsExist(err) {
		t.Errorf("a second creation: %v", err)
	}
}

func TestTombstonesShareALeaseThatEnds(t *testing.T) {
	configMaps(t)
	graves, now := backend.Tombstones(), time.Now()
	first, err := graves.currentLease(t.Context(), now)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := graves.currentLease(t.Context(), now.Add(leaseLife-time.Second)); err != nil || again != first {
		t.Errorf("got lease %d, %v, want %d", again, err, first)
	}
	later, err := graves.currentLease(t.Context(), now.Add(leaseLife))
	if err != nil || later == first {
		t.Errorf("got lease %d, %v after the time for sharing", later, err)
	}
	if left, err := backend.client.TimeToLive(t.Context(), first); err != nil || left.GrantedTTL != int64((tombstoneLife+leaseLife).Seconds()) {
		t.Errorf("the lease has %+v, %v", left, err)
	}
	if err := graves.Put(t.Context(), "leased", "owner"); err != nil {
		t.Fatal(err)
	}
	if found, err := backend.client.Client.Get(t.Context(), graves.key("leased", "owner")); err != nil || found.Kvs[0].Lease == 0 {
		t.Errorf("the tombstone has no lease: %v", err)
	}
	graves.forget(graves.lease)
	if again, err := graves.currentLease(t.Context(), now); err != nil || again == later {
		t.Errorf("got lease %d, %v after it was lost", again, err)
	}
}
