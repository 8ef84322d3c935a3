package workspacetype

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/objecttest"
)

func workspaceType(status tenancyv1alpha1.WorkspaceTypeStatus) *tenancyv1alpha1.WorkspaceType {
	return objecttest.In("c", &tenancyv1alpha1.WorkspaceType{
		ObjectMeta: metav1.ObjectMeta{Name: "team", ResourceVersion: "7"}, Spec: tenancyv1alpha1.WorkspaceTypeSpec{Initializer: true}, Status: status,
	})
}

func shard(cluster, name, url string) *corev1alpha1.Shard {
	return objecttest.In(cluster, &corev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1alpha1.ShardSpec{VirtualWorkspaceURL: url}})
}

// status returns the status of a type with the virtual workspaces of shards.
func status(urls ...string) tenancyv1alpha1.WorkspaceTypeStatus {
	s := tenancyv1alpha1.WorkspaceTypeStatus{Conditions: []corev1alpha1.Condition{
		{Type: tenancyv1alpha1.VirtualWorkspaceURLsReady, Status: metav1.ConditionTrue}, {Type: tenancyv1alpha1.Ready, Status: metav1.ConditionTrue},
	}}
	for _, url := range urls {
		s.VirtualWorkspaces = append(s.VirtualWorkspaces,
			tenancyv1alpha1.VirtualWorkspace{URL: url + "/services/initializingworkspaces/c:team", Type: tenancyv1alpha1.VirtualWorkspaceTypeInitializing},
			tenancyv1alpha1.VirtualWorkspace{URL: url + "/services/terminatingworkspaces/c:team", Type: tenancyv1alpha1.VirtualWorkspaceTypeTerminating})
	}
	return s
}

func TestVirtualWorkspacesOfAWorkspaceType(t *testing.T) {
	none := tenancyv1alpha1.WorkspaceTypeStatus{}
	errStorage := errors.New("etcd is away")
	notFound := apierrors.NewNotFound(schema.GroupResource{Resource: "workspacetypes"}, "team")
	one := shard("root", "a", "https://a.test")
	for _, tc := range []struct {
		name          string
		objects       []objecttest.Object
		answer, retry error
		want          *tenancyv1alpha1.WorkspaceType // nil if nothing is written
	}{
		{
			"The URLs of all shards are listed by the names of the shards",
			[]objecttest.Object{workspaceType(none), shard("root", "b", "https://b.test"), one}, nil, nil,
			workspaceType(status("https://a.test", "https://b.test")),
		},
		{
			"A shard without a URL is left out", []objecttest.Object{workspaceType(none), one, shard("root", "b", "")}, nil, nil,
			workspaceType(status("https://a.test")),
		},
		{
			"Shards outside of root do not count", []objecttest.Object{workspaceType(none), shard("c", "mine", "https://mine.test")}, nil, nil,
			workspaceType(status()),
		},
		{"A complete status is not written again", []objecttest.Object{workspaceType(status("https://a.test")), one}, nil, nil, nil},
		{
			"URLs of former shards are removed", []objecttest.Object{workspaceType(status("https://a.test", "https://b.test")), one}, nil, nil,
			workspaceType(status("https://a.test")),
		},
		{"A type that is gone is no failure", []objecttest.Object{one}, nil, nil, nil},
		{
			"A type that was deleted after it was read is no failure", []objecttest.Object{workspaceType(none), one}, notFound, nil,
			workspaceType(status("https://a.test")),
		},
		{"Other failures are retried", []objecttest.Object{workspaceType(none), one}, errStorage, errStorage, workspaceType(status("https://a.test"))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o, client := objecttest.New(t, tc.objects...), dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
			var got *tenancyv1alpha1.WorkspaceType
			client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
				if !action.Matches("update", "workspacetypes/status") || got != nil {
					t.Errorf("got a request to %s %s/%s", action.GetVerb(), action.GetResource(), action.GetSubresource())
				}
				sent := action.(clienttesting.UpdateAction).GetObject().(*unstructured.Unstructured)
				got = &tenancyv1alpha1.WorkspaceType{}
				return true, sent, errors.Join(tc.answer, runtime.DefaultUnstructuredConverter.FromUnstructured(sent.Object, got))
			})
			err := New(Inputs{Set: o.Set, Dynamic: client}).Reconcile(t.Context(), informers.Key{Cluster: "c", Name: "team"})
			if !errors.Is(err, tc.retry) {
				t.Errorf("got error %v, want %v", err, tc.retry)
			}
			ignore := cmpopts.IgnoreFields(corev1alpha1.Condition{}, "LastTransitionTime")
			if diff := cmp.Diff(tc.want, got, ignore, cmpopts.IgnoreTypes(metav1.TypeMeta{}), cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		})
	}
}
