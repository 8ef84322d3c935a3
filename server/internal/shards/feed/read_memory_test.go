package feed

import (
	"encoding/json"
	"fmt"
	"runtime"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/cacheserver"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/internal/tenancy/exports"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// TestAnExportElsewhereTakesFewBytes measures the memory of exports that nothing here binds, each in a workspace of its own, with the
// LogicalCluster and the Workspace that say where it is, and with its endpoint slice. A controller reads each export once.
func TestAnExportElsewhereTakesFewBytes(t *testing.T) {
	const count, limit = 5000, 2 << 10
	r := newReading(t, unused)
	if _, err := exports.New(r.Set, nil, nil, nil); err != nil { // its indexes take memory, too
		t.Fatal(err)
	}
	arrive := func(i *informers.Informer, shard string, obj, into objecttest.Object) {
		t.Helper()
		annotations := obj.GetAnnotations()
		annotations[cacheserver.Shard], annotations[cacheserver.OriginalUID] = shard, string(obj.GetUID())
		annotations[cacheserver.OriginalResourceVersion], annotations[cacheserver.Incarnation] = "12345", "0123456789abcdef-0123456789abcdef"
		data, err := json.Marshal(obj)
		if err == nil {
			err = json.Unmarshal(data, into)
		}
		if err != nil {
			t.Fatal(err)
		}
		received, ok := r.strings.receive(into, "west")
		if !ok {
			t.Fatalf("%v is left out", into)
		}
		if err := r.elsewhere.Set(i, shard, received.object); err != nil {
			t.Fatal(err)
		}
	}
	arrive(r.Set.LogicalClusters.Informer, "root", rootCluster(), &corev1alpha1.LogicalCluster{})
	before := heap()
	for n := range count {
		cluster, name := fmt.Sprintf("%016d", n), fmt.Sprintf("org-%d", n)
		ws := orgWorkspace()
		ws.Name, ws.Spec.Cluster = name, cluster
		lc := objecttest.In(cluster, orgCluster())
		lc.Spec.Owner.Name = name
		arrive(r.Set.Workspaces.Informer, "root", ws, &tenancyv1alpha1.Workspace{})
		arrive(r.Set.LogicalClusters.Informer, "east", lc, &corev1alpha1.LogicalCluster{})
		export := widgets(cluster, fmt.Sprintf("01234567-89ab-cdef-0123-%012d", n))
		export.Status.IdentityHash = fmt.Sprintf("hash-%d", n)
		arrive(r.Set.APIExports.Informer, "east", export, &apisv1alpha2.APIExport{})
		arrive(r.Set.APIExportEndpointSlices.Informer, "east", slice(cluster, n), &apisv1alpha1.APIExportEndpointSlice{})
		if _, err := r.Set.APIExports.Get(logicalcluster.Name(cluster), "", "widgets"); err != nil {
			t.Fatal(err)
		}
	}
	each := (heap() - before) / count
	t.Logf("%d bytes for each of %d exports", each, count)
	if each > limit {
		t.Errorf("%d bytes for each export, at most %d are allowed", each, limit)
	}
	if found, err := r.Set.APIExports.Get("0000000000000042", "", "widgets"); err != nil || found.Status.IdentityHash != "hash-42" {
		t.Errorf("got %v, %v", found, err)
	}
	runtime.KeepAlive(r)
}

// slice returns the endpoint slice of an export, as the server creates it.
func slice(cluster string, n int) *apisv1alpha1.APIExportEndpointSlice {
	s := objecttest.In(cluster, &apisv1alpha1.APIExportEndpointSlice{ObjectMeta: metav1.ObjectMeta{
		Name: "widgets", UID: types.UID(fmt.Sprintf("fedcba98-89ab-cdef-0123-%012d", n)),
	}})
	s.Spec.Export = apisv1alpha2.ExportBindingReference{Path: fmt.Sprintf("root:org-%d", n), Name: "widgets"}
	s.Status.Endpoints = []apisv1alpha1.APIExportEndpoint{
		{URL: "https://east.example.org:6443/services/apiexport/" + cluster + "/widgets"},
	}
	now := metav1.Now()
	for _, kind := range []string{"APIExportValid", "PartitionValid", "EndpointURLsReady"} {
		s.Status.Conditions = append(s.Status.Conditions,
			corev1alpha1.Condition{Type: kind, Status: metav1.ConditionTrue, LastTransitionTime: now})
	}
	return s
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	stats := runtime.MemStats{}
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
