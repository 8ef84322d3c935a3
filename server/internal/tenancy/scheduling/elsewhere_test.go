package scheduling

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/internal/process/fairqueue/fairqueuetest"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// elsewhere is a shard that creates each logical cluster, and the storage of the Workspace of the test.
type elsewhere struct {
	err    error
	stored *tenancyv1alpha1.Workspace
	// known is the state that the scheduler said to know.
	known runtime.Object
	// until is closed when the shard may respond; nil if it may do so at once.
	until <-chan struct{}
}

func (e *elsewhere) Create(ctx context.Context, shard string, _ logicalcluster.Name,
	lc *corev1alpha1.LogicalCluster) (*corev1alpha1.LogicalCluster, error) {
	if e.until != nil {
		select {
		case <-e.until:
		case <-ctx.Done():
		}
	}
	created := lc.DeepCopy()
	created.UID, created.Annotations[tenancyv1alpha1.ShardAnnotation] = "created", shard
	return created, e.err
}

func (e *elsewhere) Revise(_ context.Context, _ string, known, into runtime.Object, change func(obj runtime.Object) error) error {
	e.known = known
	state := e.stored.DeepCopy()
	if ws, ok := known.(*tenancyv1alpha1.Workspace); ok && ws.ResourceVersion == state.ResourceVersion {
		state = ws
	}
	if err := change(state); err != nil {
		return err
	}
	state.DeepCopyInto(into.(*tenancyv1alpha1.Workspace))
	into.(*tenancyv1alpha1.Workspace).ResourceVersion = "next"
	return nil
}

func placed(t *testing.T, of *elsewhere) (*Scheduler, *tenancyv1alpha1.Workspace) {
	t.Helper()
	objects := objecttest.New(t, objecttest.In("root", &corev1alpha1.Shard{
		ObjectMeta: metav1.ObjectMeta{Name: "there", Labels: map[string]string{"region": "east"}},
		Spec:       corev1alpha1.ShardSpec{ExternalURL: "https://there"},
	}))
	s := &Scheduler{ShardName: "here", Shards: objects.Set.Shards, Remote: of, Stored: of}
	ws := objecttest.In("org", &tenancyv1alpha1.Workspace{
		TypeMeta:   metav1.TypeMeta{APIVersion: tenancyv1alpha1.SchemeGroupVersion.String(), Kind: "Workspace"},
		ObjectMeta: metav1.ObjectMeta{Name: "team", UID: "1", ResourceVersion: "5", Generation: 1, Labels: map[string]string{"own": "label"}},
	})
	SetPlacement(ws, "there", "cluster")
	of.stored = ws.DeepCopy()
	return s, ws
}

func TestTheResponseHasTheStoredLocation(t *testing.T) {
	of := &elsewhere{}
	s, ws := placed(t, of)
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(ws.DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
	lc := Fresh("there", "https://there", "cluster", "root:org:team")
	stored, done := s.complete(t.Context(), ws, "cluster", lc)
	if !done || stored == nil || of.known == nil {
		t.Fatalf("got %v, %t, known %v", stored, done, of.known)
	}
	out := &unstructured.Unstructured{Object: content}
	respond(stored, out)
	got := &tenancyv1alpha1.Workspace{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(out.Object, got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(stored, got, cmpopts.EquateApproxTime(time.Second)); diff != "" { // times are stored in seconds
		t.Error(diff)
	}
	if got.Generation != 2 || got.ResourceVersion != "next" || got.Spec.Cluster != "cluster" || got.Labels["region"] != "east" ||
		got.Status.Phase != corev1alpha1.LogicalClusterPhaseReady || got.Annotations[tenancyv1alpha1.ClusterUIDAnnotation] != "created" {
		t.Errorf("got %+v", got)
	}
}

func TestWhatOthersChangeMeanwhileIsReadAgain(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*tenancyv1alpha1.Workspace)
		err    error
		done   bool
	}{
		"a label":                      {func(ws *tenancyv1alpha1.Workspace) { ws.ResourceVersion, ws.Labels = "6", nil }, nil, true},
		"deleted":                      {func(ws *tenancyv1alpha1.Workspace) { ws.ResourceVersion, ws.DeletionTimestamp = "6", &metav1.Time{} }, nil, false},
		"another one":                  {func(ws *tenancyv1alpha1.Workspace) { ws.ResourceVersion, ws.UID = "6", "2" }, nil, false},
		"the shard does not create it": {func(*tenancyv1alpha1.Workspace) {}, apierrors.NewServiceUnavailable("no"), false},
	} {
		of := &elsewhere{err: c.err}
		s, ws := placed(t, of)
		c.change(of.stored)
		stored, done := s.complete(t.Context(), ws, "cluster", Fresh("there", "", "cluster", "root:org:team"))
		if stored != nil || done != c.done {
			t.Errorf("%s: got %v, %t", name, stored, done)
		}
	}
}

// The state of a workspace without a resource version is not known.
func TestOnlyAKnownStateIsRevised(t *testing.T) {
	of := &elsewhere{}
	s, ws := placed(t, of)
	ws.ResourceVersion = ""
	if stored, done := s.complete(t.Context(), ws, "cluster", Fresh("there", "", "cluster", "")); stored != nil || !done || of.known != nil {
		t.Errorf("got %v, %t, known %v", stored, done, of.known)
	}
	if ws.Spec.Cluster != "" {
		t.Error("the workspace of the caller is changed")
	}
}

func TestTheCreationOnAnotherShardTakesNoSeat(t *testing.T) {
	of := &elsewhere{}
	s, ws := placed(t, of)
	fairqueuetest.WhileOthersWait(t, func(ctx context.Context, seated <-chan struct{}) {
		of.until = seated
		if _, done := s.complete(ctx, ws, "cluster", Fresh("there", "https://there", "cluster", "root:org:team")); !done {
			t.Error("the logical cluster was not created")
		}
	})
}
