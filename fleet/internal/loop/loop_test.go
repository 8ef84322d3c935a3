package loop

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

func TestAnItemThatFailsIsTriedAgainWithinAMinute(t *testing.T) {
	limiter, delay := RateLimiter[string](), time.Duration(0)
	for range 100 {
		delay = limiter.When("a")
	}
	if delay != time.Minute {
		t.Errorf("the 100th attempt is after %v", delay)
	}
}

func TestAnItemIsRepeatedUntilItSucceeds(t *testing.T) {
	queue, calls := NewQueue[string](), 0
	queue.Add("a")
	err := Work(t.Context(), queue, func(context.Context, string) (time.Duration, error) {
		if calls++; calls < 3 {
			return 0, errors.New("not yet")
		}
		queue.ShutDown()
		return 0, nil
	})
	if err != nil || calls != 3 || queue.NumRequeues("a") != 0 {
		t.Errorf("got %v after %d calls, with %d to come", err, calls, queue.NumRequeues("a"))
	}
}

func TestTheLastKnownStateOfADeletedObjectIsHandled(t *testing.T) {
	var got []string
	h := Handler(func(s *corev1.Secret, deleted bool) {
		if deleted {
			got = append(got, s.Name)
		}
	})
	named := func(name string) *corev1.Secret { return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	h.OnAdd(named("a"), true)
	h.OnDelete(named("b"))
	h.OnDelete(cache.DeletedFinalStateUnknown{Obj: named("c")})
	h.OnDelete(&corev1.ConfigMap{})
	if len(got) != 2 || got[0] != "b" || got[1] != "c" {
		t.Errorf("deleted: %v", got)
	}
}
