package informers

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// tries returns how many lists begin in a time, and how many errors are logged, if each takes a while and ends with err.
func tries(within, took time.Duration, read bool, err error) (lists, logs int) {
	var r retries
	began := time.Now()
	for now := began; now.Sub(began) < within; {
		pause, logged := r.after(now, now.Add(took), read, err)
		now = now.Add(took + pause)
		if lists++; logged {
			logs++
		}
	}
	return lists, logs
}

func TestPausesBetweenLists(t *testing.T) {
	refused := errors.New("a logical cluster is being moved")
	for name, test := range map[string]struct {
		within, took    time.Duration
		read            bool
		err             error
		atLeast, atMost int
		logs            int
	}{
		"lists that are refused for a moment":       {time.Second, time.Millisecond, false, refused, 10, 13, 0},
		"lists that fail":                           {10 * time.Minute, time.Millisecond, false, refused, 100, 140, 20},
		"long lists that fail":                      {10 * time.Minute, 5 * time.Second, false, refused, 60, 80, 16},
		"watches that end after minutes":            {10 * time.Minute, time.Minute, true, nil, 10, 10, 0},
		"watches without changes":                   {10 * time.Minute, time.Minute, false, nil, 10, 10, 0},
		"watches that end at once":                  {10 * time.Minute, time.Millisecond, true, nil, 100, 140, 0},
		"watches that migrations end":               {time.Minute, 2 * time.Second, true, nil, 29, 30, 0},
		"watches that migrations end with an error": {time.Minute, 2 * time.Second, true, refused, 29, 30, 0},
	} {
		lists, logs := tries(test.within, test.took, test.read, test.err)
		if lists < test.atLeast || lists > test.atMost || logs < test.logs-1 || logs > test.logs {
			t.Errorf("%s: %d lists and %d log entries, want %d to %d and %d", name, lists, logs, test.atLeast, test.atMost, test.logs)
		}
	}
}

func TestAListIsCompleteSoonAfterItIsPermitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var listed time.Duration
		lw := &cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				if listed = time.Since(began); listed < 700*time.Millisecond {
					return nil, errors.New("a logical cluster is being moved")
				}
				return &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
			},
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
				cancel()
				return watch.NewFake(), nil
			},
		}
		Reflect(ctx, cache.NewReflectorWithOptions(lw, &corev1.ConfigMap{}, cache.NewStore(cache.MetaNamespaceKeyFunc),
			cache.ReflectorOptions{Name: "test"}))
		if listed > 900*time.Millisecond {
			t.Errorf("the first list after 0.7 s of refusals began after %s", listed)
		}
	})
}
