package apisharing

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

func TestClaimOnBindingsCoversAcceptedObjects(t *testing.T) {
	t.Parallel()
	p, another, consumer, silent := provider(t), provider(t), server.Cluster(t), server.Cluster(t)
	ctx := kcptest.Context(t)
	setClaims(t, p, `[{"group":"apis.kcp.io","resource":"apibindings","verbs":["*"]}]`)
	for _, c := range []*kcptest.Cluster{consumer, silent} {
		bind(t, c, p)
	}
	bindings := func(user kcptest.User, cluster string) func(context.Context) ([]string, error) {
		return func(ctx context.Context) ([]string, error) {
			list, err := view(t, user, p, cluster).Resource(kcptest.APIBindings).List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, err
			}
			var names []string
			for _, item := range list.Items {
				name, _, _ := strings.Cut(item.GetName(), ".")
				names = append(names, name)
			}
			slices.Sort(names)
			return names, nil
		}
	}
	wait := func(cluster string, want ...string) {
		t.Helper()
		kcptest.Eventually(t, fmt.Sprintf("the provider sees the bindings %v in %s", want, cluster), func(ctx context.Context) error {
			if got, err := bindings(kcptest.Masters, cluster)(ctx); err != nil || !slices.Equal(got, want) {
				return fmt.Errorf("got %v, %w", got, err)
			}
			return nil
		})
	}
	wait("*", "widgets", "widgets")
	inside := view(t, kcptest.Masters, p, consumer.Name).Resource(kcptest.APIBindings)
	_, err := inside.Create(ctx, binding(another), metav1.CreateOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)

	accept := func(verbs string) {
		t.Helper()
		patch := fmt.Sprintf(`{"spec":{"permissionClaims":[{"group":"apis.kcp.io","resource":"apibindings","verbs":[%s],"state":"Accepted","selector":{"matchLabels":{"managed":"yes"}}}]}}`, verbs)
		if _, err := consumer.Objects(t, kcptest.APIBindings).Patch(ctx, "widgets", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	accept(`"*"`)
	made := kcptest.BindingTo(another, "widgets")
	made.SetName("made")
	kcptest.Eventually(t, "the provider creates a binding", func(ctx context.Context) error {
		created, err := inside.Create(ctx, made, metav1.CreateOptions{})
		if err == nil && created.GetLabels()["managed"] != "yes" {
			t.Errorf("got labels %v", created.GetLabels())
		}
		return err
	})
	wait(consumer.Name, "made", "widgets")
	wait("*", "made", "widgets", "widgets")
	wait(silent.Name, "widgets")

	// Alice has permission to use the view, but not to bind exports of other workspaces.
	p.Kubectl(t, "create", "clusterrole", "content", "--verb=*", "--resource=apiexports.apis.kcp.io/content")
	p.Kubectl(t, "create", "clusterrolebinding", "content", "--clusterrole=content", "--user="+kcptest.Alice.Name)
	p.Grant(t, kcptest.Alice, "view")
	through := view(t, kcptest.Alice, p, consumer.Name).Resource(kcptest.APIBindings)
	kcptest.Eventually(t, "Alice reads bindings", func(ctx context.Context) error {
		_, err := through.Get(ctx, "made", metav1.GetOptions{})
		return err
	})
	theirs := kcptest.BindingTo(another, "widgets")
	theirs.SetName("theirs")
	for what, write := range map[string]func() error{
		"create": func() error { _, err := through.Create(ctx, theirs, metav1.CreateOptions{}); return err },
		"update": func() error {
			_, err := through.Patch(ctx, "made", types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"b"}}}`), metav1.PatchOptions{})
			return err
		},
	} {
		if err := write(); err == nil || !strings.Contains(err.Error(), "no permission to bind") {
			t.Errorf("%s by Alice: got %v", what, err)
		}
	}
	// The provider cannot reach objects that are not selected, the status, or claims that are not accepted.
	_, err = inside.Patch(ctx, "widgets", types.MergePatchType, []byte(`{"metadata":{"labels":{"managed":"yes"}}}`), metav1.PatchOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonNotFound)
	_, err = inside.Patch(ctx, "made", types.MergePatchType, []byte(`{"status":{"phase":"Bound"}}`), metav1.PatchOptions{}, "status")
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	_, err = view(t, kcptest.Masters, p, silent.Name).Resource(kcptest.APIBindings).Create(ctx, made, metav1.CreateOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	if err := inside.Delete(ctx, "made", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	accept(`"get"`)
	wait(consumer.Name, "widgets")
}
