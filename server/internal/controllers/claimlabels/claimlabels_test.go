package claimlabels

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/internal/tenancy/claims"
	"github.com/kcplane/kcp/server/internal/tenancy/exports"
	"github.com/kcplane/kcp/server/internal/tenancy/pathindex"
	"github.com/kcplane/kcp/server/logicalcluster"
)

var (
	configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")
	key        = runner.ObjectKey{Cluster: "c", Resource: configMaps, Namespace: "team", Name: "one"}
	errStorage = errors.New("etcd is away")
)

// claim is the permission claim of the export.
var claim = apisv1alpha2.PermissionClaim{GroupResource: apisv1alpha2.GroupResource{Resource: "configmaps"}, Verbs: []string{"*"}}

// binding returns a binding to the export of the same cluster, which accepts the claim or not.
func binding(state apisv1alpha2.AcceptablePermissionClaimState) *apisv1alpha2.APIBinding {
	b := objecttest.In("c", &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: "widgets"}})
	b.Spec.Reference.Export = &apisv1alpha2.ExportBindingReference{Name: "widgets"}
	b.Spec.PermissionClaims = []apisv1alpha2.AcceptablePermissionClaim{{
		ScopedPermissionClaim: apisv1alpha2.ScopedPermissionClaim{PermissionClaim: claim, Selector: apisv1alpha2.PermissionClaimSelector{MatchAll: true}},
		State:                 state,
	}}
	return b
}

func TestObjectsWithOtherLabelsThanTheirClaimsAreLabeled(t *testing.T) {
	label, value := claims.Export{Cluster: "c", Name: "widgets"}.Label(&claim)
	labels := map[string]string{label: value}
	accepted, rejected := binding(apisv1alpha2.ClaimAccepted), binding(apisv1alpha2.ClaimRejected)
	for _, tc := range []struct {
		name     string
		binding  *apisv1alpha2.APIBinding
		resource schema.GroupVersionResource
		labels   map[string]string
		want     []string
	}{
		{"An object without the label of an accepted claim is labeled", accepted, configMaps, nil, []string{"patch configmaps v1 team/one"}},
		{"An object with the label of an accepted claim stays as it is", accepted, configMaps, labels, nil},
		{"An object with the label of a rejected claim is labeled", rejected, configMaps, labels, []string{"patch configmaps v1 team/one"}},
		{"An object of another resource stays as it is", accepted, corev1.SchemeGroupVersion.WithResource("secrets"), nil, nil},
		{"An object in a cluster without bindings stays as it is", nil, configMaps, map[string]string{"mine": "x"}, nil},
		{
			"A binding is left to its own controller", accepted, apisv1alpha2.SchemeGroupVersion.WithResource("apibindings"), labels, nil,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, tc.binding)
				events := &runner.ObjectEvents{}
				c := New(w.inputs(events))
				ctx, cancel := context.WithCancel(t.Context())
				defer synctest.Wait()
				defer cancel()
				go c.Run(ctx)
				obj := objecttest.In("c", &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "one", Labels: tc.labels}})
				events.Changed(tc.resource, obj)
				events.Deleted(tc.resource, obj)
				events.Relisted(tc.resource)
				synctest.Wait()
				if diff := cmp.Diff(tc.want, w.requests); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

func TestAnswersToThePatchThatLabels(t *testing.T) {
	resource := configMaps.GroupResource()
	for _, tc := range []struct {
		name           string
		served, answer error
		retry          string
		want           []string
	}{
		{"The object is patched in a version that the cluster serves", nil, nil, "", []string{"patch configmaps v2 team/one"}},
		{"An object that is gone is no failure", nil, apierrors.NewNotFound(resource, "one"), "", []string{"patch configmaps v2 team/one"}},
		{"An object that cannot be patched stays as it is", nil, apierrors.NewMethodNotSupported(resource, "patch"), "", []string{"patch configmaps v2 team/one"}},
		{"An object that is invalid stays as it is", nil, apierrors.NewInvalid(schema.GroupKind{}, "one", nil), "", []string{"patch configmaps v2 team/one"}},
		{"An object that admission refuses stays as it is", nil, apierrors.NewForbidden(resource, "one", nil), "", []string{"patch configmaps v2 team/one"}},
		{"A resource that the cluster does not serve is no failure", apierrors.NewNotFound(resource, ""), nil, "", nil},
		{"A failure of discovery is retried", errStorage, nil, "configmaps c|team/one", nil},
		{"A conflict is retried", nil, apierrors.NewConflict(resource, "one", errStorage), "configmaps c|team/one", []string{"patch configmaps v2 team/one"}},
		{"Other failures are retried", nil, errStorage, "configmaps c|team/one", []string{"patch configmaps v2 team/one"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.answer = tc.answer
			in := w.inputs(&runner.ObjectEvents{})
			in.Served = func(ctx context.Context, resource schema.GroupVersionResource) (schema.GroupVersionResource, error) {
				if cluster, err := logicalcluster.NameFrom(ctx); cluster != "c" || err != nil || resource != configMaps {
					t.Errorf("requested %s in cluster %s, %v", resource, cluster, err)
				}
				resource.Version = "v2"
				return resource, tc.served
			}
			err := New(in).Reconcile(t.Context(), key)
			if (err != nil) != (tc.retry != "") || (err != nil && !strings.Contains(err.Error(), tc.retry)) {
				t.Errorf("got error %v, want %q", err, tc.retry)
			}
			if diff := cmp.Diff(tc.want, w.requests); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// world is what informers show, and the requests of the controller.
type world struct {
	exports  *exports.Exports
	metadata *metadatafake.FakeMetadataClient
	answer   error
	requests []string
}

func newWorld(t *testing.T, b *apisv1alpha2.APIBinding) *world {
	t.Helper()
	o := objecttest.New(t)
	if b != nil {
		o.Show(b)
	}
	all, err := exports.New(o.Set, pathindex.New(o.Set), exports.System{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{exports: all, metadata: metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme())}
	w.metadata.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch := action.(clienttesting.PatchAction)
		if string(patch.GetPatch()) != "{}" {
			t.Errorf("got patch %s", patch.GetPatch())
		}
		resource := action.GetResource()
		w.requests = append(w.requests, strings.Join([]string{action.GetVerb(), resource.Resource, resource.Version, action.GetNamespace() + "/" + patch.GetName()}, " "))
		return true, &metav1.PartialObjectMetadata{}, w.answer
	})
	return w
}

func (w *world) inputs(events *runner.ObjectEvents) Inputs {
	return Inputs{
		Exports: w.exports, Metadata: w.metadata, Objects: events,
		Served: func(_ context.Context, resource schema.GroupVersionResource) (schema.GroupVersionResource, error) {
			return resource, nil
		},
	}
}
