package customresources

import (
	"context"
	"fmt"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
)

// convertedBy has versions v1, which is stored, and v2.
func convertedBy(url string) func(*apiextensionsv1.CustomResourceDefinition) {
	return func(crd *apiextensionsv1.CustomResourceDefinition) {
		crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
			Strategy: apiextensionsv1.WebhookConverter,
			Webhook: &apiextensionsv1.WebhookConversion{
				ClientConfig: &apiextensionsv1.WebhookClientConfig{URL: ptr.To(url)}, ConversionReviewVersions: []string{"v1"},
			},
		}
		crd.Spec.Versions = append(crd.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{Name: "v2", Served: true, Schema: schemaOf("size")})
	}
}

func TestConversionWebhooksCannotChangeMetadataOfTheServer(t *testing.T) {
	const claim = apisv1alpha2.ClaimedLabelPrefix + "x"
	webhooks := map[string]func(u *unstructured.Unstructured){
		"changes": func(u *unstructured.Unstructured) {
			u.SetAnnotations(map[string]string{"kcp.io/cluster": "victim", "theirs": u.GetAPIVersion()})
			u.SetLabels(map[string]string{claim: "forged", "theirs": "yes"})
		},
		"removes": func(u *unstructured.Unstructured) {
			u.SetAnnotations(map[string]string{"theirs": u.GetAPIVersion()})
			u.SetLabels(map[string]string{"theirs": "yes"})
		},
	}
	for name, change := range webhooks {
		t.Run(name, func(t *testing.T) {
			s := newShard(t)
			s.config.AuthResolver = converter(func(_ context.Context, in *unstructured.Unstructured, to schema.GroupVersion) (*unstructured.Unstructured, error) {
				in.SetAPIVersion(to.String())
				change(in)
				return in, nil
			}).resolver
			s.set("a", widgets(convertedBy("https://example.org/"+name)))
			object := `{"apiVersion":"example.org/%s","kind":"Widget","metadata":{"name":%q,"labels":{%q:"true"}},"spec":{"size":1}}`
			for _, version := range []string{"v1", "v2"} {
				s.want(201, "a", "POST", "/apis/example.org/"+version+"/namespaces/default/widgets", fmt.Sprintf(object, version, version, claim))
			}
			check := func(seen, wantTheirs string, item map[string]any) {
				u := &unstructured.Unstructured{Object: item}
				if got := u.GetAnnotations()["kcp.io/cluster"]; got != "a" {
					t.Errorf("%s: the annotation names the cluster %q", seen, got)
				}
				if got := u.GetLabels()[claim]; got != "true" {
					t.Errorf("%s: the label of a claim is %q", seen, got)
				}
				if got := u.GetAnnotations()["theirs"]; got != wantTheirs {
					t.Errorf("%s: the webhook's own annotation is %q, want %q", seen, got, wantTheirs)
				}
			}
			check("v1 as v2", "example.org/v2", s.want(200, "a", "GET", "/apis/example.org/v2/namespaces/default/widgets/v1", "").body)
			check("v2 as v1", "example.org/v1", s.want(200, "a", "GET", "/apis/example.org/v1/namespaces/default/widgets/v2", "").body)
			check("v2 as v2", "example.org/v2", s.want(200, "a", "GET", "/apis/example.org/v2/namespaces/default/widgets/v2", "").body)
			for _, item := range s.want(200, "a", "GET", "/apis/example.org/v2/widgets", "").body["items"].([]any) {
				check("list", "example.org/v2", item.(map[string]any))
			}
			stored := s.want(200, "*", "GET", "/apis/example.org/v1/widgets", "", "Accept", metadata).body["items"].([]any)
			if len(stored) != 2 {
				t.Errorf("%d objects are in all clusters", len(stored))
			}
			check("stored v2", "example.org/v1", stored[1].(map[string]any))
		})
	}
}
