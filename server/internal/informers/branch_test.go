package informers

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/kcplane/kcp/server/logicalcluster"
)

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{logicalcluster.AnnotationKey: "a"}}}
}

// heard collects the names of added objects.
func heard(i *Informer) <-chan string {
	names := make(chan string, 100)
	i.AddHandler(func(old, obj runtime.Object) {
		if old == nil {
			names <- obj.(*corev1.Namespace).Name
		}
	})
	return names
}

func expect(t *testing.T, names <-chan string, want ...string) {
	t.Helper()
	for _, w := range want {
		select {
		case got := <-names:
			if got != w {
				t.Fatalf("heard of %s, want %s", got, w)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("did not hear of %s", w)
		}
	}
	select {
	case got := <-names:
		t.Fatalf("heard of %s as well", got)
	default:
	}
}

func TestABranchReceivesTheSameEventsUntilItEnds(t *testing.T) {
	events := watch.NewFake()
	lw := &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return &corev1.NamespaceList{Items: []corev1.Namespace{*namespace("first")}}, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return events, nil },
	}
	i := New(corev1.SchemeGroupVersion.WithResource("namespaces"), &corev1.Namespace{}, lw, nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); i.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	<-i.Synced()

	branch, end := i.Branch()
	other, endOther := branch.Branch()
	defer endOther()
	ofBranch, ofOther, ofInformer := heard(branch), heard(other), heard(i)
	events.Add(namespace("second"))
	expect(t, ofInformer, "first", "second")
	expect(t, ofBranch, "first", "second")
	expect(t, ofOther, "first", "second")
	<-branch.Synced()
	lister := Lister[*corev1.Namespace]{branch}
	if _, err := lister.Get("a", "", "second"); err != nil {
		t.Errorf("the branch does not show what the informer holds: %v", err)
	}
	end()
	events.Add(namespace("third"))
	expect(t, ofInformer, "third")
	expect(t, ofOther, "third")
	expect(t, ofBranch)
	if n := len(i.handlers); n != 2 {
		t.Errorf("%d handlers are left, want those of the informer and of the other branch", n)
	}
}

func TestABranchOfASetHasEveryResource(t *testing.T) {
	set, err := NewSet(NewFactory())
	if err != nil {
		t.Fatal(err)
	}
	branch, end := set.Branch()
	for _, pair := range [][2]*Informer{
		{set.Namespaces.Informer, branch.Namespaces.Informer}, {set.LogicalClusters.Informer, branch.LogicalClusters.Informer},
		{set.ValidatingAdmissionPolicies.Informer, branch.ValidatingAdmissionPolicies.Informer},
	} {
		if pair[1] == pair[0] || pair[1].root != pair[0] || pair[1].Resource() != pair[0].Resource() {
			t.Errorf("the branch of %s is of %v", pair[0].Resource(), pair[1].Resource())
		}
	}
	before := slices.Clone(set.Namespaces.handlers)
	branch.Namespaces.AddHandler(func(runtime.Object, runtime.Object) {})
	end()
	if len(set.Namespaces.handlers) != len(before) {
		t.Error("a handler is left after the end of the branch")
	}
}
