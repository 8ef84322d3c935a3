package customresources

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/kcplane/kcp/server/internal/process/outbound"
)

// ConversionLimits limits calls to the conversion webhooks of definitions. A request contains the objects of a list, and its response
// the same objects in another version.
var ConversionLimits = outbound.Limits{Bytes: 1 << 20, Factor: 2, Time: 30 * time.Second}

// Upstream's handler chooses among the converters that it has by the strategy of a definition. System definitions of more
// than one version have the strategy Webhook, and their handlers a client whose transport is a function of this process:
// no request leaves the process. The definitions of users never have that client, whatever their URL.

// conversionURL uses a domain that cannot exist.
const conversionURL = "https://conversion.kcp.invalid/"

// convertHere makes a definition with several versions convert its objects in this process.
func convertHere(crd *apiextensionsv1.CustomResourceDefinition) {
	if len(crd.Spec.Versions) == 1 {
		return
	}
	crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: ptr.To(conversionURL)},
			ConversionReviewVersions: []string{"v1"},
		},
	}
}

// reviewTimeout limits the conversion of all objects of a review.
const reviewTimeout = 10 * time.Second

// converter answers reviews by converting each object.
type converter func(ctx context.Context, in *unstructured.Unstructured, to schema.GroupVersion) (*unstructured.Unstructured, error)

// resolver routes the webhook calls of the handlers of definitions to the converter.
func (c converter) resolver(webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver {
	return &webhook.AuthenticationInfoResolverDelegator{
		ClientConfigForFunc: func(string) (*rest.Config, error) { return &rest.Config{Transport: c}, nil },
	}
}

// RoundTrip implements http.RoundTripper.
func (c converter) RoundTrip(r *http.Request) (*http.Response, error) {
	defer r.Body.Close()
	review := &apiextensionsv1.ConversionReview{}
	if err := json.NewDecoder(r.Body).Decode(review); err != nil {
		return nil, fmt.Errorf("conversion review: %w", err)
	}
	if review.Request == nil {
		return nil, fmt.Errorf("conversion review has no request")
	}
	review.Response = &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	ctx, cancel := context.WithTimeout(r.Context(), reviewTimeout)
	defer cancel()
	converted, err := c.all(ctx, review.Request)
	if err != nil {
		review.Response.Result = metav1.Status{Status: metav1.StatusFailure, Message: err.Error()}
	}
	review.Response.ConvertedObjects, review.Request = converted, nil
	body, err := json.Marshal(review)
	if err != nil {
		return nil, fmt.Errorf("conversion review: %w", err)
	}
	return &http.Response{
		StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {runtime.ContentTypeJSON}},
		Body:   io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}, nil
}

func (c converter) all(ctx context.Context, request *apiextensionsv1.ConversionRequest) ([]runtime.RawExtension, error) {
	to, err := schema.ParseGroupVersion(request.DesiredAPIVersion)
	if err != nil {
		return nil, err
	}
	converted := make([]runtime.RawExtension, len(request.Objects))
	for i, object := range request.Objects {
		in := &unstructured.Unstructured{}
		if err := in.UnmarshalJSON(object.Raw); err != nil {
			return nil, err
		}
		out, err := c(ctx, in, to)
		if err != nil {
			return nil, err
		}
		converted[i].Object = out
	}
	return converted, nil
}
