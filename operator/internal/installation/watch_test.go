package installation_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kcplane/kcp/operator/internal/furthershard"
	"github.com/kcplane/kcp/operator/internal/kcpaccess"
	"github.com/kcplane/kcp/operator/internal/operatortest"
)

func TestAnIdleShardIsReconciledOnlyWhenItsObjectInKCPChanges(t *testing.T) {
	w, kcp, west := registered(t)
	reads := 0
	counted := interceptor.NewClient(w.Cluster.Client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
			reads++
			return c.Get(ctx, key, into, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, into client.ObjectList, opts ...client.ListOption) error {
			reads++
			return c.List(ctx, into, opts...)
		},
	})
	environment := w.environment
	environment.Client, environment.Live = counted, counted
	r := &furthershard.Reconciler{Environment: environment, Registry: kcp}
	changed := func(want int) {
		t.Helper()
		before := reads
		requests := r.Changed(t.Context())
		if len(requests) != want || want > 0 && requests[0].NamespacedName != operatortest.Key("west") || reads != before {
			t.Errorf("%v are reconciled after %d reads, want %d", requests, reads-before, want)
		}
	}
	changed(0)
	if again := w.Reconcile(t, r, "west").RequeueAfter; again != 0 && again < time.Hour {
		t.Errorf("an idle Shard is reconciled after %v", again)
	}
	if reads == 0 {
		t.Error("the reads of a reconciliation are not counted")
	}
	changed(0)

	first := kcp.shards["west"]
	for _, change := range []struct {
		found kcpaccess.Registered
		err   error
	}{
		{kcpaccess.Registered{BaseURL: first.BaseURL, LogicalClusters: 13, Responds: true}, nil},
		{kcpaccess.Registered{BaseURL: first.BaseURL, LogicalClusters: 13, Message: "no route"}, nil},
		{kcpaccess.Registered{}, errors.New("connection refused")},
		{first, nil},
	} {
		kcp.shards["west"], kcp.err = change.found, change.err
		changed(1)
		w.Reconcile(t, r, "west")
		changed(0)
	}

	operatortest.Read(t, w.Cluster, "west", west)
	west.Spec.Drain = true
	w.MustUpdate(t, west)
	if again := w.Reconcile(t, r, "west").RequeueAfter; again == 0 || again > time.Minute {
		t.Errorf("a Shard that is drained is reconciled after %v", again)
	}
	kcp.shards["west"] = kcpaccess.Registered{BaseURL: first.BaseURL, Responds: true}
	changed(0)
}
