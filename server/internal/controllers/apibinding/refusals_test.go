package apibinding

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/kcplane/kcp/server/internal/informers"
)

func TestFinalizersBlockDeletionUntilTheirRemovalIsRefusedForLong(t *testing.T) {
	now := testingclock.NewFakePassiveClock(time.Unix(0, 0))
	h := newRefusals(now)
	binding, resource := informers.Key{Cluster: "c", Name: "b"}, schema.GroupResource{Resource: "widgets"}
	refused := errors.New("refused")
	object := func(deleted bool) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{}}
		if deleted {
			u.SetDeletionTimestamp(ptr.To(metav1.Unix(0, 0)))
		}
		return u
	}
	tried := 0
	pass := func(problem error, objects ...*unstructured.Unstructured) (waiting int) {
		waits := h.blocks(binding, resource, func(*unstructured.Unstructured) error { tried++; return problem })
		for _, u := range objects {
			if waits(u) {
				waiting++
			}
		}
		return waiting
	}
	for _, step := range []struct {
		what    string
		after   time.Duration
		problem error
		objects []*unstructured.Unstructured
		waiting int
		tried   int
	}{
		{"what is not deleted yet", 0, refused, []*unstructured.Unstructured{object(false), object(true)}, 2, 0},
		{"refused once", 0, refused, []*unstructured.Unstructured{object(true), object(true)}, 2, 1},
		{"can be removed", refusalTimeout, nil, []*unstructured.Unstructured{object(true), object(true)}, 2, 1},
		{"refused again", time.Minute, refused, []*unstructured.Unstructured{object(true)}, 1, 1},
		{"refused for a while", refusalTimeout - time.Second, refused, []*unstructured.Unstructured{object(true)}, 1, 1},
		{"refused for long", time.Second, refused, []*unstructured.Unstructured{object(true), object(true)}, 0, 2},
	} {
		tried = 0
		now.SetTime(now.Now().Add(step.after))
		if waiting := pass(step.problem, step.objects...); waiting != step.waiting || tried != step.tried {
			t.Errorf("%s: %d wait, %d tried", step.what, waiting, tried)
		}
	}
	if want := now.Now(); !h.until(binding, resource).Equal(want) {
		t.Errorf("until %s, want %s", h.until(binding, resource), want)
	}
	if h.forget(binding); !h.until(binding, resource).IsZero() || len(h.since) > 0 {
		t.Error("it is not forgotten")
	}
}
