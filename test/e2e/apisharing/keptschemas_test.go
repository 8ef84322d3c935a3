package apisharing

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

func TestUnusedSchemaIsKeptForAWhile(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	const annotation = "internal.apis.kcp.io/unused-since"
	p, consumer := provider(t), server.Cluster(t)
	bind(t, consumer, p)
	schema, err := p.Objects(t, schemas).Get(ctx, "v1.widgets.example.org", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	uid := string(schema.GetUID())
	kept := server.Named("system:bound-crds").Dynamic(t, kcptest.Masters).Resource(schemas)
	mark := func(since string) {
		t.Helper()
		if _, err := kept.Patch(ctx, uid, types.MergePatchType, []byte(fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, annotation, since)), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// A schema in use is kept, even if it has the mark of an unused one.
	mark("2020-01-01T00:00:00Z")
	kcptest.Eventually(t, "a mark on a schema in use is removed", func(ctx context.Context) error {
		s, err := kept.Get(ctx, uid, metav1.GetOptions{})
		if err == nil && s.GetAnnotations()[annotation] != "" {
			err = fmt.Errorf("got annotations %v", s.GetAnnotations())
		}
		return err
	})
	unbind := func() {
		t.Helper()
		client := consumer.Objects(t, kcptest.APIBindings)
		if err := client.Delete(ctx, "widgets", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		kcptest.WaitUntilGone(t, client, "widgets")
	}
	unbind()
	// The schema has not been used for one minute, which is too short for its removal, but long enough that a new binding must remove the
	// mark.
	mark(time.Now().Add(-time.Minute).UTC().Format(time.RFC3339))
	bind(t, consumer, p)
	kcptest.Eventually(t, "a new binding removes the mark", func(ctx context.Context) error {
		s, err := kept.Get(ctx, uid, metav1.GetOptions{})
		if err == nil && s.GetAnnotations()[annotation] != "" {
			err = fmt.Errorf("got annotations %v", s.GetAnnotations())
		}
		return err
	})
	create(t, consumer, "one")
	unbind()
	mark(time.Now().Add(-time.Hour).UTC().Format(time.RFC3339))
	kcptest.WaitUntilGone(t, kept, uid)
	bind(t, consumer, p)
	create(t, consumer, "again")
}
