package apisharing

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

func configMap(name string, labels map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "namespace": "default", "labels": labels},
	}}
}

// claiming adds a claim on ConfigMaps to an export.
func claiming(t *testing.T, p *kcptest.Cluster, verbs string) {
	t.Helper()
	patch := fmt.Sprintf(`{"spec":{"permissionClaims":[{"group":"","resource":"configmaps","verbs":[%s]}]}}`, verbs)
	if _, err := p.Objects(t, kcptest.APIExports).Patch(kcptest.Context(t), "widgets", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// accept sets the state, the verbs and the selector of the claim in the binding of a consumer.
func accept(t *testing.T, consumer *kcptest.Cluster, state, verbs, selector string) {
	t.Helper()
	patch := fmt.Sprintf(`{"spec":{"permissionClaims":[{"group":"","resource":"configmaps","verbs":[%s],"state":%q,"selector":%s}]}}`, verbs, state, selector)
	if state == "" {
		patch = `{"spec":{"permissionClaims":[]}}`
	}
	if _, err := consumer.Objects(t, kcptest.APIBindings).Patch(kcptest.Context(t), "widgets", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// sees waits until a provider sees exactly the ConfigMaps with those names in a cluster, or in all clusters.
func sees(t *testing.T, p *kcptest.Cluster, cluster string, names ...string) {
	t.Helper()
	slices.Sort(names)
	kcptest.Eventually(t, fmt.Sprintf("the provider sees %v in %s", names, cluster), func(ctx context.Context) error {
		list, err := view(t, kcptest.Masters, p, cluster).Resource(configMaps).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var seen []string
		for _, item := range list.Items {
			seen = append(seen, item.GetName())
		}
		if slices.Sort(seen); !slices.Equal(seen, names) {
			return fmt.Errorf("got %v", seen)
		}
		return nil
	})
}

const everyObject = `{"matchAll":true}`

func TestProviderSeesObjectsOfAcceptedClaims(t *testing.T) {
	t.Parallel()
	p, generous, careful, silent := provider(t), server.Cluster(t), server.Cluster(t), server.Cluster(t)
	ctx := kcptest.Context(t)
	claiming(t, p, `"*"`)
	for _, c := range []*kcptest.Cluster{generous, careful, silent} {
		bind(t, c, p)
		for _, name := range []string{"red", "blue"} {
			if _, err := c.Objects(t, configMaps).Namespace("default").Create(ctx, configMap(name, map[string]any{"color": name}), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	sees(t, p, "*")
	accept(t, generous, "Accepted", `"*"`, everyObject)
	sees(t, p, "*", "red", "blue", "kube-root-ca.crt", "kube-root-ca.crt")
	accept(t, careful, "Accepted", `"*"`, `{"matchLabels":{"color":"red"}}`)
	sees(t, p, careful.Name, "red")
	accept(t, careful, "Accepted", `"*"`, `{"matchLabels":{"color":"blue"}}`)
	sees(t, p, careful.Name, "blue")
	accept(t, careful, "Accepted", `"*"`, `{"matchLabels":{"color":"red"}}`)
	sees(t, p, careful.Name, "red")
	sees(t, p, "*", "red", "red", "blue", "kube-root-ca.crt", "kube-root-ca.crt")
	_, err := view(t, kcptest.Masters, p, silent.Name).Resource(configMaps).List(ctx, metav1.ListOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)

	// Objects that are not selected do not exist for the provider, for all verbs.
	inside := view(t, kcptest.Masters, p, careful.Name).Resource(configMaps).Namespace("default")
	_, err = inside.Get(ctx, "blue", metav1.GetOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonNotFound)
	kcptest.WantReason(t, inside.Delete(ctx, "blue", metav1.DeleteOptions{}), metav1.StatusReasonNotFound)
	_, err = inside.Patch(ctx, "blue", types.MergePatchType, []byte(`{"metadata":{"labels":{"color":"red"}}}`), metav1.PatchOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonNotFound)
	_, err = inside.Patch(ctx, "red", types.MergePatchType, []byte(`{"metadata":{"labels":{"color":"blue"}}}`), metav1.PatchOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	_, err = inside.Create(ctx, configMap("green", map[string]any{"color": "green"}), metav1.CreateOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	made, err := inside.Create(ctx, configMap("made", nil), metav1.CreateOptions{})
	if err != nil || made.GetLabels()["color"] != "red" {
		t.Errorf("creating as the provider, want the labels of the claim: got %v, %v", made, err)
	}
	applied, err := inside.Apply(ctx, "applied", configMap("applied", nil), metav1.ApplyOptions{FieldManager: "provider"})
	if err != nil || applied.GetLabels()["color"] != "red" {
		t.Errorf("applying as the provider, want the labels of the claim: got %v, %v", applied, err)
	}
	if err := inside.Delete(ctx, "made", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}

	accept(t, generous, "Rejected", `"*"`, everyObject)
	sees(t, p, "*", "red", "applied")
	if err := careful.Objects(t, kcptest.APIBindings).Delete(ctx, "widgets", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	sees(t, p, "*")
}

func TestVerbsOfClaimAreThoseOfBothSides(t *testing.T) {
	t.Parallel()
	p, consumer := provider(t), server.Cluster(t)
	ctx := kcptest.Context(t)
	claiming(t, p, `"get","list","delete"`)
	bind(t, consumer, p)
	accept(t, consumer, "Accepted", `"get","list","create"`, everyObject)
	sees(t, p, consumer.Name, "kube-root-ca.crt", "kube-root-ca.crt")
	inside := view(t, kcptest.Masters, p, consumer.Name).Resource(configMaps).Namespace("default")
	_, err := inside.Create(ctx, configMap("made", nil), metav1.CreateOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	kcptest.WantReason(t, inside.Delete(ctx, "kube-root-ca.crt", metav1.DeleteOptions{}), metav1.StatusReasonForbidden)
	_, err = inside.Apply(ctx, "applied", configMap("applied", nil), metav1.ApplyOptions{FieldManager: "provider"})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	kcptest.Eventually(t, "the status of the binding reports the difference", func(ctx context.Context) error {
		b, err := consumer.Objects(t, kcptest.APIBindings).Get(ctx, "widgets", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if text := fmt.Sprint(b.Object["status"]); !strings.Contains(text, "PermissionClaimsMismatch") {
			return fmt.Errorf("got status %s", text)
		}
		return nil
	})
}

func TestClaimLabelsCannotBeForged(t *testing.T) {
	t.Parallel()
	p, consumer := provider(t), server.Cluster(t)
	ctx := kcptest.Context(t)
	claiming(t, p, `"*"`)
	bind(t, consumer, p)
	accept(t, consumer, "Accepted", `"*"`, `{"matchLabels":{"color":"red"}}`)
	client := consumer.Objects(t, configMaps).Namespace("default")
	var key, value string
	kcptest.Eventually(t, "an object has the label", func(ctx context.Context) error {
		made, err := client.Create(ctx, configMap("red-"+kcptest.Suffix(), map[string]any{"color": "red"}), metav1.CreateOptions{})
		if err != nil {
			return err
		}
		for k, v := range made.GetLabels() {
			if strings.HasPrefix(k, "claimed.internal.apis.kcp.io/") {
				key, value = k, v
				return nil
			}
		}
		return fmt.Errorf("got labels %v", made.GetLabels())
	})
	forged, err := client.Create(ctx, configMap("forged", map[string]any{"color": "blue", key: value}), metav1.CreateOptions{})
	if err != nil || forged.GetLabels()[key] != "" {
		t.Errorf("a forged label was stored: %v, %v", forged.GetLabels(), err)
	}
	patched, err := client.Patch(ctx, "forged", types.MergePatchType, []byte(fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, key, value)), metav1.PatchOptions{})
	if err != nil || patched.GetLabels()[key] != "" {
		t.Errorf("a label was forged by a patch: %v, %v", patched.GetLabels(), err)
	}
	stranger := server.Cluster(t).Dynamic(t, kcptest.Masters).Resource(configMaps).Namespace("default")
	planted, err := stranger.Create(ctx, configMap("planted", map[string]any{key: value}), metav1.CreateOptions{})
	if err != nil || planted.GetLabels()[key] != "" {
		t.Errorf("a label was forged in a workspace without binding: %v, %v", planted.GetLabels(), err)
	}
	if _, err := view(t, kcptest.Masters, p, consumer.Name).Resource(configMaps).Namespace("default").Get(ctx, "forged", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the provider sees a forged object: %v", err)
	}
}

// A claim on service accounts does not include their tokens.
func TestClaimsCoverNoSubresourcesExceptStatus(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	p, consumer := provider(t), server.Cluster(t)
	p.Grant(t, kcptest.Alice, "cluster-admin")
	bind(t, consumer, p)
	const claim = `{"group":"","resource":%q,"verbs":["*"]%s}`
	patch := func(c *kcptest.Cluster, resource schema.GroupVersionResource, accepted string) {
		t.Helper()
		both := fmt.Sprintf(claim, "serviceaccounts", accepted) + "," + fmt.Sprintf(claim, "namespaces", accepted)
		text := `{"spec":{"permissionClaims":[` + both + `]}}`
		if _, err := c.Dynamic(t, kcptest.Masters).Resource(resource).Patch(ctx, "widgets", types.MergePatchType, []byte(text), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	patch(p, kcptest.APIExports, "")
	patch(consumer, kcptest.APIBindings, `,"state":"Accepted","selector":{"matchAll":true}`)
	base := "/services/apiexport/" + p.Name + "/widgets/clusters/" + consumer.Name + "/api/v1/namespaces/default"
	kcptest.Eventually(t, "the provider sees the account and the status of the namespace", func(context.Context) error {
		for _, path := range []string{"/serviceaccounts/default", "/status"} {
			if code, body := p.Raw(t, kcptest.Alice, http.MethodGet, base+path, nil, ""); code != http.StatusOK {
				return fmt.Errorf("%s: got %d %s", path, code, body)
			}
		}
		return nil
	})
	header := http.Header{"Content-Type": {"application/json"}}
	if code, body := p.Raw(t, kcptest.Alice, http.MethodPost, base+"/serviceaccounts/default/token", header, `{"spec":{}}`); code != http.StatusForbidden {
		t.Errorf("creating a token of the account: got %d %.300s", code, body)
	}
	if code, body := p.Raw(t, kcptest.Alice, http.MethodPut, base+"/finalize", header, `{"metadata":{"name":"default"},"spec":{"finalizers":[]}}`); code != http.StatusForbidden {
		t.Errorf("writing the finalizers of the namespace: got %d %.300s", code, body)
	}
}

// A provider that can create objects in a consumer, but not list them there, cannot list them for all consumers either.
func TestListOfAllConsumersRequiresPermissionInEach(t *testing.T) {
	t.Parallel()
	p, open, closed := provider(t), server.Cluster(t), server.Cluster(t)
	ctx := kcptest.Context(t)
	claiming(t, p, `"get","list","create","update"`)
	for _, consumer := range []*kcptest.Cluster{open, closed} {
		bind(t, consumer, p)
		if _, err := consumer.Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "secret"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	accept(t, closed, "Accepted", `"create","update"`, everyObject)
	accept(t, open, "Accepted", `"list"`, everyObject)
	inside := view(t, kcptest.Masters, p, closed.Name).Resource(configMaps).Namespace("default")
	kcptest.Eventually(t, "the provider can create objects", func(ctx context.Context) error {
		_, err := inside.Create(ctx, configMap("made", nil), metav1.CreateOptions{})
		return err
	})
	sees(t, p, "*", "kube-root-ca.crt", "kube-root-ca.crt", "secret")
	_, err := inside.Get(ctx, "secret", metav1.GetOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	// Objects of claims that are accepted later appear, and those of claims that are withdrawn disappear.
	accept(t, closed, "Accepted", `"list","create"`, everyObject)
	sees(t, p, "*", "kube-root-ca.crt", "kube-root-ca.crt", "secret", "kube-root-ca.crt", "kube-root-ca.crt", "secret", "made")
	accept(t, closed, "Accepted", `"create"`, everyObject)
	sees(t, p, "*", "kube-root-ca.crt", "kube-root-ca.crt", "secret")
}

func TestWatchDeliversDeletionWhenClaimIsWithdrawn(t *testing.T) {
	t.Parallel()
	p, consumer := provider(t), server.Cluster(t)
	ctx := kcptest.Context(t)
	claiming(t, p, `"get","list","watch"`)
	bind(t, consumer, p)
	accept(t, consumer, "Accepted", `"get","list","watch"`, everyObject)
	sees(t, p, consumer.Name, "kube-root-ca.crt", "kube-root-ca.crt")
	inside := view(t, kcptest.Masters, p, consumer.Name).Resource(configMaps).Namespace("default")
	list, err := inside.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	watching, err := inside.Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer watching.Stop()
	accept(t, consumer, "Accepted", `"get"`, everyObject)
	if event := <-watching.ResultChan(); event.Type != watch.Deleted {
		t.Errorf("after the consumer withdrew all verbs except get, the watch got %s %v", event.Type, event.Object)
	}
}
