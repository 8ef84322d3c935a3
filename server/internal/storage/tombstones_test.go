package storage

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/kubernetes/pkg/apis/core"
)

func TestATombstoneRefusesALaterCreation(t *testing.T) {
	maps, graves := configMaps(t), backend.Tombstones()
	store := func(cluster string) error {
		return graves.Create(in(cluster), "buried", func(ctx context.Context) error {
			obj := &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "only"}}
			return maps.Create(ctx, prefix+"/n/only", obj, &core.ConfigMap{}, 0)
		})
	}
	if err := store("other"); err == nil {
		t.Error("a tombstone of another cluster was compared")
	}
	if _, found, err := graves.Owner(t.Context(), "buried"); found || err != nil {
		t.Fatalf("there is a tombstone before the deletion: %v", err)
	}
	if err := graves.Put(t.Context(), "buried", "owner"); err != nil {
		t.Fatal(err)
	}
	if owner, found, err := graves.Owner(t.Context(), "buried"); owner != "owner" || !found || err != nil {
		t.Errorf("the tombstone is of %q, %t, %v", owner, found, err)
	}
	if err := store("buried"); !storage.IsExist(err) {
		t.Errorf("got %v, want AlreadyExists", err)
	}
	if found := list(t, maps, "buried", ""); len(found) != 0 {
		t.Errorf("there is %v", found)
	}
	if _, err := backend.client.Delete(t.Context(), graves.key("buried")); err != nil {
		t.Fatal(err)
	}
	if err := store("buried"); err != nil {
		t.Errorf("without a tombstone: %v", err)
	}
	if err := store("buried"); !storage.IsExist(err) {
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
	if found, err := backend.client.Client.Get(t.Context(), graves.key("leased")); err != nil || found.Kvs[0].Lease == 0 {
		t.Errorf("the tombstone has no lease: %v", err)
	}
	graves.forget(graves.lease)
	if again, err := graves.currentLease(t.Context(), now); err != nil || again == later {
		t.Errorf("got lease %d, %v after it was lost", again, err)
	}
}
