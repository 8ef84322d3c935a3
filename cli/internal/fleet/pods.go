package fleet

import (
	"fmt"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/api/fleet/v1alpha1"
)

// podColumns replace the columns of pods, which clusters compute.
var podColumns = []apiextensionsv1.CustomResourceColumnDefinition{
	{Name: "Ready", Type: "string", JSONPath: `.status.conditions[?(@.type=="Ready")].status`},
	{Name: "Status", Type: "string", JSONPath: ".status.phase"},
	{Name: "Waiting", Type: "string", JSONPath: ".status.containerStatuses[*].state.waiting.reason"},
	{Name: "Restarts", Type: "integer", JSONPath: ".status.containerStatuses[0].restartCount"},
	{Name: "Cluster", Type: "string", JSONPath: ".metadata.annotations['fleet\\.kcp\\.io/cluster']"},
	{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"},
	{Name: "IP", Type: "string", JSONPath: ".status.podIP", Priority: 1},
	{Name: "Node", Type: "string", JSONPath: ".spec.nodeName", Priority: 1},
}

// IsPods reports whether a definition is that of pods.
func IsPods(d *apiextensionsv1.CustomResourceDefinition) bool {
	return d.Spec.Group == corev1.GroupName && d.Spec.Names.Plural == "pods"
}

// ReadPods changes the definition of pods to that of objects that are read from clusters.
func ReadPods(d *apiextensionsv1.CustomResourceDefinition) {
	for i := range d.Spec.Versions {
		d.Spec.Versions[i].Subresources, d.Spec.Versions[i].AdditionalPrinterColumns = nil, podColumns
	}
}

// ExportedPods returns the entry of a schema of pods in the export: they are not stored, but read at an Endpoint.
func ExportedPods(s *apisv1alpha1.APIResourceSchema) apisv1alpha2.ResourceSchema {
	return apisv1alpha2.ResourceSchema{Group: s.Spec.Group, Name: s.Spec.Names.Plural, Schema: s.Name,
		Storage: apisv1alpha2.ResourceSchemaStorage{Virtual: &apisv1alpha2.ResourceSchemaStorageVirtual{
			Reference: corev1.TypedLocalObjectReference{
				APIGroup: ptr.To(v1alpha1.SchemeGroupVersion.Group), Kind: "Endpoint", Name: v1alpha1.PodsEndpoint,
			},
			IdentityHash: v1alpha1.PodsEndpoint,
		}}}
}

// PodsEndpoint returns the Endpoint of pods at the URL of the controller.
func PodsEndpoint(controller string) (*v1alpha1.Endpoint, error) {
	u, err := url.Parse(controller)
	if err != nil || u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil {
		return nil, fmt.Errorf("--url: must be the URL of the fleet's controller, such as https://fleet.example.com:6444, got %q", controller)
	}
	return &v1alpha1.Endpoint{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "Endpoint"},
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PodsEndpoint},
		Status: v1alpha1.EndpointStatus{Endpoints: []v1alpha1.EndpointURL{{
			URL: "https://" + u.Host + "/services/fleet-pods", Verbs: []string{"delete"},
		}}},
	}, nil
}
