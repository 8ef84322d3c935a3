package idle

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

const parallel = 16

// each calls f for all names, some concurrently.
func each(t *testing.T, names []string, f func(context.Context, string) error) {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(parallel)
	for _, name := range names {
		group.Go(func() error {
			if err := f(ctx, name); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	if t.Failed() { // in one of these goroutines
		t.FailNow()
	}
}

// names returns a number of unique names of clusters.
func names(n int) []string {
	all := make([]string, n)
	prefix := "idle" + kcptest.Suffix()
	for i := range all {
		all[i] = fmt.Sprintf("%s-%05d", prefix, i)
	}
	return all
}

// make creates clusters with the API, and returns when all of them are ready.
func (s *target) make(t *testing.T, names []string) {
	t.Helper()
	each(t, names, func(ctx context.Context, name string) error {
		_, err := s.Named(name).Dynamic(t, kcptest.Masters).Resource(kcptest.LogicalClusters).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": corev1alpha1.SchemeGroupVersion.String(), "kind": "LogicalCluster",
			"metadata": map[string]any{"name": corev1alpha1.LogicalClusterName},
		}}, metav1.CreateOptions{})
		return err
	})
	ready := corev1alpha1.PhaseLabel + "=" + string(corev1alpha1.LogicalClusterPhaseReady)
	s.wait(t, kcptest.LogicalClusters, metav1.ListOptions{LabelSelector: ready}, names, 1)
}

// enter sends a first request to clusters, and returns when they have their default objects.
func (s *target) enter(t *testing.T, names []string) {
	t.Helper()
	each(t, names, func(ctx context.Context, name string) error {
		_, err := s.Named(name).Kube(t, kcptest.Masters).CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		return err
	})
	s.wait(t, corev1.SchemeGroupVersion.WithResource("namespaces"), metav1.ListOptions{}, names, 2)
	s.wait(t, corev1.SchemeGroupVersion.WithResource("serviceaccounts"), metav1.ListOptions{}, names, 2)
	s.wait(t, corev1.SchemeGroupVersion.WithResource("configmaps"), metav1.ListOptions{}, names, 2)
}

// createsAgain creates default objects of a namespace that exist. Controllers do so when they see a namespace before its objects, and
// etcd is then read. It has series of their own for that, which would otherwise appear with any cluster.
func (s *target) createsAgain(t *testing.T, cluster string) {
	t.Helper()
	kube := s.Named(cluster).Kube(t, kcptest.Masters).CoreV1()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := kube.ServiceAccounts("default").Create(t.Context(), account, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	published := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kube-root-ca.crt"}}
	if _, err := kube.ConfigMaps("default").Create(t.Context(), published, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

// delete deletes clusters, and returns when they do not exist any more.
func (s *target) delete(t *testing.T, names []string) {
	t.Helper()
	each(t, names, func(ctx context.Context, name string) error {
		return s.Named(name).Dynamic(t, kcptest.Masters).Resource(kcptest.LogicalClusters).
			Delete(ctx, corev1alpha1.LogicalClusterName, metav1.DeleteOptions{})
	})
	s.wait(t, kcptest.LogicalClusters, metav1.ListOptions{}, names, 0)
}

// patience limits the time without progress while the test waits.
const patience = 2 * kcptest.Timeout

// wait returns when each of the clusters has a number of objects of a resource, according to the list of all clusters.
func (s *target) wait(t *testing.T, resource schema.GroupVersionResource, which metav1.ListOptions, clusters []string, want int) {
	t.Helper()
	client := s.Named("*").Metadata(t, kcptest.Masters).Resource(resource)
	fewest, since := -1, time.Now()
	for {
		list, err := client.List(t.Context(), which)
		if err != nil {
			t.Fatalf("listing %s of all clusters: %v", resource.Resource, err)
		}
		found := map[string]int{}
		for i := range list.Items {
			found[list.Items[i].Annotations["kcp.io/cluster"]]++
		}
		wrong := 0
		for _, name := range clusters {
			if found[name] != want {
				wrong++
			}
		}
		if wrong == 0 {
			return
		}
		if fewest < 0 || wrong < fewest {
			fewest, since = wrong, time.Now()
		}
		if time.Since(since) > patience {
			t.Fatalf("%d of %d clusters do not have %d %s, without progress for %s", wrong, len(clusters), want, resource.Resource, patience)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// wantNoLabel fails the test if a metric contains the name of a cluster.
func wantNoLabel(t *testing.T, series map[string]float64, clusters []string) {
	t.Helper()
	prefix, _, _ := strings.Cut(clusters[0], "-")
	for name := range series {
		if strings.Contains(name, prefix) {
			t.Errorf("the series %s contains the name of a cluster", name)
		}
	}
}

// wantGoneFromEtcd fails the test if a key or a value in etcd contains the name of a cluster.
func (s *target) wantGoneFromEtcd(t *testing.T, clusters []string) {
	t.Helper()
	prefix, _, _ := strings.Cut(clusters[0], "-")
	left := 0
	s.scan(t, func(key string, value []byte) {
		if strings.Contains(key, prefix) || strings.Contains(string(value), prefix) {
			if left++; left <= 10 {
				t.Errorf("key %s of a deleted cluster remains: %.200s", key, value)
			}
		}
	})
	if left > 10 {
		t.Errorf("and %d more keys", left-10)
	}
}

// use reads documents that the server builds on demand.
func (s *target) use(t *testing.T, cluster string) {
	t.Helper()
	for _, path := range []string{"/api", "/apis", "/openapi/v3", "/openapi/v3/apis/" + things.GroupVersion().String(), "/api/v1/secrets"} {
		if code, body := s.Named(cluster).Raw(t, kcptest.Masters, http.MethodGet, "/clusters/"+cluster+path, nil, ""); code != http.StatusOK {
			t.Errorf("%s returned %d: %.300s", path, code, body)
		}
	}
}
