package garbagecollector

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kubefake "k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kcplane/kcp/server/internal/apis/discovery"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// served describes the resources of one cluster.
type served struct{ mapper *meta.DefaultRESTMapper }

func (s served) AllResources() []discovery.Resource { return nil }
func (s served) Served(_ context.Context, resource schema.GroupVersionResource) (schema.GroupVersionResource, error) {
	return resource, nil
}
func (s served) RESTMapper(context.Context) (meta.RESTMapper, error) { return s.mapper, nil }

func partial(kind, namespace, name string, uid types.UID, owners ...metav1.OwnerReference) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uid, OwnerReferences: owners},
	}
}

func TestAnOwnerInAnotherNamespaceGetsAnEvent(t *testing.T) {
	ref := func(name string, uid types.UID) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: uid}
	}
	configMaps, nodes := corev1.SchemeGroupVersion.WithResource("configmaps"), corev1.SchemeGroupVersion.WithResource("nodes")
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	for name, c := range map[string]struct {
		object  object
		owner   metav1.OwnerReference
		seen    bool // to be deleted
		event   string
		collect bool
	}{
		"an owner in another namespace": {object{Cluster: "c", Resource: configMaps, Namespace: "here", Name: "stray"},
			ref("owner", "1"), false, "here", true},
		"an owner in a namespace, of a cluster-scoped object": {object{Cluster: "c", Resource: nodes, Name: "stray"}, ref("owner", "1"),
			false, "default", false},
		"another object with the name of the owner": {object{Cluster: "c", Resource: configMaps, Namespace: "here", Name: "stray"},
			ref("owner", "2"), false, "", true},
		"an owner that exists in no namespace": {object{Cluster: "c", Resource: configMaps, Namespace: "here", Name: "stray"},
			ref("gone", "3"), false, "", true},
		"an owner whose deletion was seen": {object{Cluster: "c", Resource: configMaps, Namespace: "here", Name: "stray"},
			ref("owner", "1"), true, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			if err := metav1.AddMetaToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			kind := map[schema.GroupVersionResource]string{configMaps: "ConfigMap", nodes: "Node"}[c.object.Resource]
			client := metadatafake.NewSimpleMetadataClient(scheme, partial("Namespace", "", "here", "n1"), partial("Namespace", "", "there", "n2"),
				partial("ConfigMap", "there", "owner", "1"), partial(kind, c.object.Namespace, c.object.Name, "s", c.owner))
			kube := kubefake.NewClientset()
			now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
			collector := newCollector(Inputs{
				Metadata: client, Kube: kube, Resources: served{mapper}, Objects: &runner.ObjectEvents{}, Clock: testingclock.NewFakeClock(now),
				Existing: func(schema.GroupVersionResource) (*informers.Informer, bool) { return nil, false },
			})
			if c.seen {
				collector.deleted.Add(owner{"c", c.owner.UID}, nil)
			}
			ctx := logicalcluster.WithName(t.Context(), "c")
			for range 2 { // the second one finds the Event, or nothing
				if err := collector.reconcile(ctx, c.object); err != nil {
					t.Fatal(err)
				}
			}
			events, err := kube.CoreV1().Events("").List(ctx, metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if (c.event != "") != (len(events.Items) == 1) {
				t.Fatalf("the events are %+v", events.Items)
			}
			for _, e := range events.Items {
				if e.Namespace != c.event || e.Reason != "OwnerRefInvalidNamespace" || e.InvolvedObject.Kind != kind ||
					e.InvolvedObject.Name != "stray" ||
					!strings.Contains(e.Message, "uid: 1] does not exist in namespace") || !e.FirstTimestamp.Time.Equal(now) {
					t.Errorf("the event is %+v", e)
				}
			}
			_, err = client.Resource(c.object.Resource).Namespace(c.object.Namespace).Get(ctx, "stray", metav1.GetOptions{})
			if runner.IgnoreNotFound(err) != nil || (err != nil) != c.collect {
				t.Errorf("the object: %v", err)
			}
		})
	}
}
