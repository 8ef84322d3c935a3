package apisharing

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// Clients match these phrases, so they must not change.
func TestErrorsContainPhrasesThatClientsMatch(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	provider, consumer, full := server.Cluster(t), server.Cluster(t), server.Cluster(t)
	for _, export := range []string{"one", "other"} {
		provider.Apply(t, "apiVersion: apis.kcp.io/v1alpha2\nkind: APIExport\nmetadata: {name: "+export+"}\n")
	}
	consumer.Grant(t, kcptest.Alice, "cluster-admin")
	full.Grant(t, kcptest.Alice, "cluster-admin")
	full.Kubectl(t, "annotate", "logicalcluster", "cluster", "core.kcp.io/max-total-objects=1")
	consumer.Bind(t, provider, "one")

	export := func(path, name string) string {
		return fmt.Sprintf("spec: {export: {path: %q, name: %s}}", path, name)
	}
	create := func(c *kcptest.Cluster, resource schema.GroupVersionResource, kind, spec string) func() error {
		return func() error {
			object := kcptest.Parse(t, fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: new}\n%s\n", resource.GroupVersion(), kind, spec))
			client := c.Dynamic(t, kcptest.Alice).Resource(resource)
			if resource.Group == "" {
				_, err := client.Namespace("default").Create(ctx, object, metav1.CreateOptions{})
				return err
			}
			_, err := client.Create(ctx, object, metav1.CreateOptions{})
			return err
		}
	}
	configurations := schema.GroupVersionResource{Group: "tenancy.kcp.io", Version: "v1alpha1", Resource: "workspaceauthenticationconfigurations"}
	mapped := func(mappings string) string {
		return "spec: {jwt: [{issuer: {url: 'https://issuer.test', audiences: [a]}, claimMappings: " + mappings + "}]}"
	}
	slices := schema.GroupVersionResource{Group: "apis.kcp.io", Version: "v1alpha1", Resource: "apiexportendpointslices"}
	for name, c := range map[string]struct {
		do     func() error
		reason metav1.StatusReason
		words  []string
	}{
		"another reference": {func() error {
			_, err := consumer.Objects(t, kcptest.APIBindings).Patch(ctx, "one", types.MergePatchType, []byte(`{"spec":{"reference":{"export":{"name":"other"}}}}`), metav1.PatchOptions{})
			return err
		}, metav1.StatusReasonInvalid, []string{"APIExport reference must not be changed"}},
		"a binding without the permission": {create(consumer, kcptest.APIBindings, "APIBinding", fmt.Sprintf("spec: {reference: {export: {path: %s, name: other}}}", provider.Name)),
			metav1.StatusReasonForbidden, []string{"unable to create APIBinding: no permission to bind to export", "no permission to bind to export " + provider.Name + ":other"}},
		"an endpoint slice without the permission": {create(consumer, slices, "APIExportEndpointSlice", export(provider.Name, "other")),
			metav1.StatusReasonForbidden, []string{"no permission to bind to export " + provider.Name + ":other"}},
		"an endpoint slice without an export": {create(consumer, slices, "APIExportEndpointSlice", export(consumer.Name, "missing")),
			metav1.StatusReasonForbidden, []string{"no permission to bind to export " + consumer.Name + ":missing"}},
		"a full workspace": {create(full, schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "ConfigMap", ""),
			metav1.StatusReasonForbidden, []string{"total object count limit"}},
		"a claim and an expression": {create(consumer, configurations, "WorkspaceAuthenticationConfiguration", mapped("{username: {claim: a, expression: b}}")),
			metav1.StatusReasonInvalid, []string{"claim and expression cannot both be specified"}},
		"a prefix without a claim": {create(consumer, configurations, "WorkspaceAuthenticationConfiguration", mapped("{username: {expression: b, prefix: c}}")),
			metav1.StatusReasonInvalid, []string{"prefix can only be specified when claim is specified"}},
		"an invalid label value": {create(consumer, partitionSets, "PartitionSet", "spec: {shardSelector: {matchLabels: {region: '***'}}}"), metav1.StatusReasonInvalid, nil},
		"an invalid label key":   {create(consumer, partitionSets, "PartitionSet", "spec: {shardSelector: {matchLabels: {'a..b/region': x}}}"), metav1.StatusReasonInvalid, nil},
	} {
		err := c.do()
		status := &apierrors.StatusError{}
		if !errors.As(err, &status) || status.ErrStatus.Reason != c.reason {
			t.Errorf("%s: got %v, want a Status with reason %s", name, err, c.reason)
			continue
		}
		for _, words := range c.words {
			if !strings.Contains(status.ErrStatus.Message, words) {
				t.Errorf("%s: %q does not contain %q", name, status.ErrStatus.Message, words)
			}
		}
	}
}
