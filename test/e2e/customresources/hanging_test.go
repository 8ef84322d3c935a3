package customresources

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// hanging is a webhook for deletions that never responds.
const hanging = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: hanging}
webhooks:
- name: hanging.example.org
  admissionReviewVersions: [v1]
  sideEffects: None
  timeoutSeconds: 30
  clientConfig: {url: "https://%s/"}
  rules: [{apiGroups: ["*"], apiVersions: ["*"], operations: [DELETE], resources: [widgets]}]
`

// When a definition is deleted, a controller deletes its objects, which calls webhooks of the tenant.
func TestHangingWebhooksDoNotDelayDeletionOfOtherClusters(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int32
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			calls.Add(1)
			t.Cleanup(func() { connection.Close() })
		}
	}()
	ctx := kcptest.Context(t)
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	definition := widgetDefinition(sized())
	prepare := func() *kcptest.Cluster {
		cluster := server.Cluster(t)
		cluster.Define(t, definition)
		if _, err := cluster.Objects(t, widgets).Namespace("default").Create(ctx, widget("one", map[string]any{"size": int64(1)}), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		return cluster
	}
	remove := func(cluster *kcptest.Cluster) {
		if err := cluster.Objects(t, definitions).Delete(ctx, definition.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	other := prepare()
	const hostile = 10
	for range hostile {
		cluster := prepare()
		cluster.Apply(t, fmt.Sprintf(hanging, listener.Addr()))
		remove(cluster)
	}
	kcptest.Eventually(t, "webhooks are called", func(context.Context) error {
		if calls.Load() == 0 {
			return errors.New("no webhook is called")
		}
		return nil
	})
	remove(other)
	kcptest.WaitUntilGone(t, other.Objects(t, definitions), definition.Name)
}
