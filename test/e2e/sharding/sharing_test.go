package sharding

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

var widgets = schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"}

// exporting makes a cluster the provider of widgets.
func exporting(t *testing.T, provider *kcptest.Cluster) {
	t.Helper()
	provider.Apply(t, kcptest.WidgetsExport)
	kcptest.WaitForStatus(t, provider.Objects(t, kcptest.APIExports), "widgets", "", "identityHash")
}

// widget returns a widget. The schema allows sizes from 1 to 100.
func widget(t *testing.T, name string, size int) *unstructured.Unstructured {
	return kcptest.Parse(t, fmt.Sprintf("{apiVersion: example.org/v1, kind: Widget, metadata: {name: %s}, spec: {size: %d}}", name, size))
}

func TestAnExportIsBoundOnAnotherShard(t *testing.T) {
	for _, c := range []struct{ provider, consumer string }{{"root", "shard-1"}, {"shard-1", "shard-2"}, {"shard-2", "root"}} {
		t.Run(c.provider+" to "+c.consumer, func(t *testing.T) {
			t.Parallel()
			name, provider := workspaceOn(t, shard(t, c.provider))
			exporting(t, provider)
			_, consumer := workspaceOn(t, shard(t, c.consumer))
			binding := kcptest.BindingTo(kcptest.At("", nil).Named("root:"+name), "widgets")
			if _, err := consumer.Objects(t, kcptest.APIBindings).Create(kcptest.Context(t), binding, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			kcptest.WaitForStatus(t, consumer.Objects(t, kcptest.APIBindings), "widgets", "Bound", "phase")
			objects := consumer.Objects(t, widgets).Namespace("default")
			if _, err := objects.Create(kcptest.Context(t), widget(t, "first", 7), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			_, err := objects.Create(kcptest.Context(t), widget(t, "second", 101), metav1.CreateOptions{})
			kcptest.WantReason(t, err, metav1.StatusReasonInvalid)
		})
	}
}
