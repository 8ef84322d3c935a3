package storage

import (
	"context"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
)

func TestHistoryIsLimitedInBytes(t *testing.T) {
	const mebibyte = 1 << 20
	h := newHistory(64 * mebibyte)
	for version := range uint64(60) {
		h.wrote(version+1, mebibyte)
	}
	if h.tooOld(1) {
		t.Error("the first version is too old after 60 MiB")
	}
	for version := range uint64(1000) {
		h.wrote(version+61, mebibyte)
	}
	if !h.tooOld(1) || !h.tooOld(1060-70) {
		t.Error("versions before more than 64 MiB are not too old")
	}
	if h.tooOld(1060 - 60) {
		t.Error("a version after which 60 MiB were written is too old")
	}
	if n := len(h.marks); n > marks+1 {
		t.Errorf("%d versions are remembered", n)
	}
}

func TestATenantDoesNotMakeEtcdReadAllHistory(t *testing.T) {
	s := configMaps(t)
	history := backend.streams.history
	history.limit = 256 << 10
	t.Cleanup(func() { history.limit = historyBytes })
	first := create(t, s, "ours", "default", "first", nil).ResourceVersion
	for i := range 10 {
		create(t, s, "others", "default", fmt.Sprintf("large-%d", i), map[string]string{"value": strings.Repeat("x", 100<<10)})
	}
	last := create(t, s, "ours", "default", "last", nil).ResourceVersion

	watched := func(ctx context.Context, version string) watch.Event { return next(t, followAs(t, ctx, s, version)) }
	e := watched(tenant(t, "ours"), first)
	if err := apierrors.FromObject(e.Object); e.Type != watch.Error || !apierrors.IsResourceExpired(err) {
		t.Errorf("a watch from before is answered %v %v", e.Type, e.Object)
	}
	if e := watched(in("ours"), first); e.Type != watch.Added || nameIn(t, e) != "last" {
		t.Errorf("the watch of the server is answered %v %v", e.Type, e.Object)
	}
	w := followAs(t, tenant(t, "ours"), s, last)
	create(t, s, "ours", "default", "then", nil)
	if e := next(t, w); e.Type != watch.Added || nameIn(t, e) != "then" {
		t.Errorf("a watch from now on is answered %v %v", e.Type, e.Object)
	}
}
