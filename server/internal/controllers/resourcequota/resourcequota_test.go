package resourcequota

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	metadatafake "k8s.io/client-go/metadata/fake"

	"github.com/kcplane/kcp/server/internal/apis/discovery"
	"github.com/kcplane/kcp/server/internal/objecttest"
)

func quota(cluster, namespace, name string, limits ...corev1.ResourceName) *corev1.ResourceQuota {
	q := objecttest.In(cluster, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
	q.Spec.Hard = amounts(5, limits...)
	return q
}

func amounts(n int64, names ...corev1.ResourceName) corev1.ResourceList {
	list := corev1.ResourceList{}
	for _, name := range names {
		list[name] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	return list
}

func TestTheResourceThatALimitCounts(t *testing.T) {
	for limit, want := range map[corev1.ResourceName]schema.GroupResource{
		"configmaps":                {Resource: "configmaps"},
		"count/configmaps":          {Resource: "configmaps"},
		"count/widgets.example.org": {Group: "example.org", Resource: "widgets"},
		"requests.cpu":              {Resource: "requests.cpu"},
	} {
		if got := countedBy(limit); got != want {
			t.Errorf("%s counts %v, want %v", limit, got, want)
		}
	}
}

func TestOnlyLowerUsageIsCountedAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		now, before corev1.ResourceList
		want        bool
	}{
		"the same":                       {amounts(2, "a"), amounts(2, "a"), false},
		"more":                           {amounts(3, "a"), amounts(2, "a"), false},
		"less":                           {amounts(1, "a"), amounts(2, "a"), true},
		"of something else":              {amounts(1, "b"), amounts(2, "a"), false},
		"nothing was counted before":     {amounts(1, "a"), nil, false},
		"what was counted is no more so": {nil, amounts(2, "a"), false},
	} {
		if got := lower(tc.now, tc.before); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}

func TestADefinitionEnqueuesTheQuotasThatCountItsInstances(t *testing.T) {
	o := objecttest.New(t,
		quota("here", "default", "counts", "count/widgets.example.org", "configmaps"), quota("here", "default", "other", "configmaps"),
		quota("here", "default", "group", "count/widgets.example.com"), quota("there", "default", "elsewhere", "count/widgets.example.org"),
	)
	crd := objecttest.In("here", &apiextensionsv1.CustomResourceDefinition{})
	crd.Spec.Group, crd.Spec.Names.Plural = "example.org", "widgets"
	keys := (&reconciler{Inputs: Inputs{Set: o.Set}}).countingInstances(crd)
	if len(keys) != 1 || keys[0].Name != "counts" || keys[0].Cluster != "here" || keys[0].Namespace != "default" {
		t.Errorf("got %v", keys)
	}
}

func TestUsageCountsObjectsOfTheNamespace(t *testing.T) {
	served := []discovery.Resource{
		{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Namespaced: true, Verbs: sets.New("list", "create")},
		{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, Verbs: sets.New("list", "create")},
		{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "readonlies"}, Namespaced: true, Verbs: sets.New("list")},
	}
	scheme := runtime.NewScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	of := func(namespace, name string) runtime.Object {
		return &metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		}
	}
	client := metadatafake.NewSimpleMetadataClient(scheme, of("default", "a"), of("default", "b"), of("other", "a"))
	c := &reconciler{Inputs: Inputs{Metadata: client, Resources: func(context.Context) ([]discovery.Resource, error) { return served, nil }}}
	got, err := c.count(t.Context(), quota("here", "default", "q", "configmaps", "count/namespaces", "count/readonlies", "count/unknown"))
	want := corev1.ResourceList{}
	want["configmaps"], want["count/namespaces"] = resource.MustParse("2"), resource.MustParse("0")
	if err != nil || !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("got %v, want %v, %v", got, want, err)
	}
}
