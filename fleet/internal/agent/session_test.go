package agent

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
)

func TestASessionWithoutAFleetListsNoPods(t *testing.T) {
	_, a := newIssuer(t, 0)
	down := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "down", http.StatusServiceUnavailable)
	}))
	t.Cleanup(down.Close)
	a.options.URL = down.URL
	if err := a.session(t.Context()); !apierrors.IsServiceUnavailable(err) || a.credential.refused {
		t.Errorf("got %v, refused %t", err, a.credential.refused)
	}
	for _, action := range a.local.(*kubefake.Clientset).Actions() {
		if action.GetVerb() == "list" {
			t.Errorf("the agent lists %s", action.GetResource().Resource)
		}
	}
}

func TestOnlyTheFleetRefusesACertificate(t *testing.T) {
	forbidden := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) })
	server := httptest.NewServer(forbidden)
	t.Cleanup(server.Close)
	for name, byFleet := range map[string]bool{"the fleet": true, "the cluster": false} {
		_, a := newIssuer(t, 0)
		if byFleet {
			a.options.URL = server.URL
		} else {
			no := apierrors.NewForbidden(corev1.Resource("version"), "", errors.New("no"))
			a.local.(*kubefake.Clientset).PrependReactor("get", "version",
				func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, no })
		}
		if err := a.session(t.Context()); !apierrors.IsForbidden(err) || a.credential.refused != byFleet {
			t.Errorf("%s forbids: got %v, refused %t", name, err, a.credential.refused)
		}
	}
}

func TestTheClusterMayForbidToStoreACertificate(t *testing.T) {
	_, a := newIssuer(t, lifetimeOfAuthority-time.Hour) // it is time to renew the certificate
	no := apierrors.NewForbidden(corev1.Resource("secrets"), "", errors.New("no"))
	a.local.(*kubefake.Clientset).PrependReactor("update", "secrets",
		func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, no })
	if _, _, err := a.credential.obtain(t.Context()); !apierrors.IsForbidden(err) || a.credential.refused {
		t.Errorf("got %v, refused %t", err, a.credential.refused)
	}
}

func TestTheCapacityIsReportedWhenAnAgentStarts(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: corev1.NodeStatus{Allocatable: resourceList("4", "8Gi")}}
	r := start(t, []runtime.Object{theCluster(t)}, node)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.keepReporting(ctx, r.fleet)
	}()
	reported := func(ctx context.Context) (bool, error) {
		u, err := r.fleet.Resource(v1alpha1.SchemeGroupVersion.WithResource("clusters")).Get(ctx, "east", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		cpu, _, err := unstructured.NestedString(u.Object, "status", "capacity", "cpu")
		return cpu == "4", err
	}
	if err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, reportPeriod/2, true, reported); err != nil {
		t.Error(err)
	}
	cancel()
	<-done
}

func TestThePauseDoublesWithEachFailure(t *testing.T) {
	share := 0.0
	wait := backoff{first: 2 * time.Second, longest: 7 * time.Second, random: func() float64 { return share }}
	for i, step := range []struct {
		failed bool
		random float64
		want   time.Duration
	}{
		{true, 0, 2 * time.Second}, {true, 0, 4 * time.Second}, {true, 0, 7 * time.Second}, {true, 0, 7 * time.Second},
		{false, 0, 2 * time.Second}, {true, 0, 4 * time.Second}, {false, 0, 2 * time.Second},
		{true, 1, 6 * time.Second}, {true, 0, 7 * time.Second}, {false, 0.5, 2500 * time.Millisecond}, // a random part does not grow
	} {
		share = step.random
		if got := wait.after(step.failed); got != step.want {
			t.Errorf("step %d: %s, want %s", i, got, step.want)
		}
	}
}

func TestAgentsReturnWithin15SecondsAndNotTogether(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 100 {
		wait, last := newBackoff(pause, longestPause), time.Duration(0)
		for range 50 {
			last = wait.after(true)
		}
		if last > 15*time.Second {
			t.Fatalf("after 50 failures, the pause is %s", last)
		}
		seen[last] = true
	}
	if len(seen) < 10 {
		t.Errorf("100 agents have only %d different pauses", len(seen))
	}
}
