package idle

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// entered is the fraction of the workspaces that are used.
const entered = 10

// KCP_LEAK=all runs ten rounds with 10,000 workspaces each.
func TestDeletedWorkspacesLeaveNothingInMemoryAndEtcd(t *testing.T) {
	server := start(t)
	rounds, workspaces := 3, 200
	if os.Getenv("KCP_LEAK") == "all" {
		rounds, workspaces = 10, 10_000
	}
	server.grow(t, 0, warmth, warmth)
	var goroutines map[string]int
	var first int
	for round := 1; round <= rounds; round++ {
		server.grow(t, round, workspaces, workspaces/entered)
		if round == 1 {
			goroutines, first = server.quiet(t), server.heap(t)
			t.Logf("after the first round: %d goroutines, %d KiB of heap", total(goroutines), first/1024)
			continue
		}
		settled := server.settled(t, goroutines, slack)
		heap := server.heap(t)
		kcptest.Eventually(t, "the heap is at most a tenth larger than after the first round", func(context.Context) error {
			if heap = server.heap(t); heap > first+first/10 {
				return fmt.Errorf("got %d KiB, before %d KiB", heap/1024, first/1024)
			}
			return nil
		})
		t.Logf("after round %d of %d: %d goroutines, %d KiB of heap (%+.1f %%)", round, rounds, total(settled), heap/1024, 100*float64(heap-first)/float64(first))
	}
}

// grow creates n workspaces below one workspace, uses some of them, deletes that workspace, and checks that no data of them remains in
// etcd and in the metrics.
func (s *target) grow(t *testing.T, round, n, used int) {
	t.Helper()
	ctx := t.Context()
	parent := fmt.Sprintf("leak%s-%d", kcptest.Suffix(), round)
	root := s.Named("root").Dynamic(t, kcptest.Masters).Resource(kcptest.Workspaces)
	s.Named("root").CreateWorkspace(t, kcptest.Masters, kcptest.Workspace(parent, "", ""))
	began := time.Now()
	children := s.Named("root:"+parent).Dynamic(t, kcptest.Masters).Resource(kcptest.Workspaces)
	var mu sync.Mutex
	clusters := map[string]bool{}
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%05d", parent, i)
	}
	each(t, names, func(ctx context.Context, name string) error {
		created, err := children.Create(ctx, kcptest.Workspace(name, "", ""), metav1.CreateOptions{})
		if err != nil {
			return err
		}
		cluster, _, _ := unstructured.NestedString(created.Object, "spec", "cluster")
		mu.Lock()
		defer mu.Unlock()
		clusters[cluster] = true
		if len(clusters)%2000 == 0 {
			t.Logf("round %d: %d workspaces created", round, len(clusters))
		}
		return nil
	})
	if delete(clusters, ""); len(clusters) != n {
		t.Fatalf("%d workspaces have %d logical clusters", n, len(clusters))
	}
	each(t, names[:used], func(ctx context.Context, name string) error {
		_, err := s.Named("root:"+parent+":"+name).Kube(t, kcptest.Masters).CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		return err
	})
	created := time.Since(began)
	if err := root.Delete(ctx, parent, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for waited := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		_, err := root.Get(ctx, parent, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			break
		}
		if err != nil || time.Since(waited) > time.Hour {
			t.Fatalf("%s still exists: %v", parent, err)
		}
	}
	t.Logf("round %d: %d workspaces created in %s, deleted in %s", round, n, created.Round(time.Second), (time.Since(began) - created).Round(time.Second))
	s.scan(t, func(key string, value []byte) {
		left := strings.Contains(string(value), parent)
		for segment := range strings.SplitSeq(key, "/") {
			left = left || clusters[segment]
		}
		if left {
			t.Errorf("key %s of a deleted workspace remains: %.200s", key, value)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	s.compact(t)
	wantNoLabel(t, s.series(t), names)
}
