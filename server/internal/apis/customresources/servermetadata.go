package customresources

import (
	"bytes"
	"io"
	"maps"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Upstream lets conversion webhooks change labels and annotations. Some of these belong to the server: the location of an object, and
// the claims that select it. This file restores them after each conversion, when objects are stored and when they are read.

// keepServersMetadata returns getter with a codec that restores the labels and annotations of the server, if a webhook converts the
// objects of the definition.
func keepServersMetadata(getter generic.RESTOptionsGetter, crd *apiextensionsv1.CustomResourceDefinition) generic.RESTOptionsGetter {
	if c := crd.Spec.Conversion; c == nil || c.Strategy != apiextensionsv1.WebhookConverter {
		return getter
	}
	return codecOptions{getter, func(whole, parsed runtime.Codec, _ schema.GroupVersionKind) runtime.Codec {
		return serversMetadataCodec{whole, parsed}
	}}
}

// serversMetadataCodec is a codec that converts objects, but keeps the metadata of the server.
type serversMetadataCodec struct {
	runtime.Codec
	parsed runtime.Codec // only parses
}

// Decode implements runtime.Decoder.
func (c serversMetadataCodec) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object,
	*schema.GroupVersionKind, error) {
	obj, kind, err := c.Codec.Decode(data, defaults, into)
	if converted, ok := obj.(*unstructured.Unstructured); ok && err == nil {
		stored := &unstructured.Unstructured{}
		if _, _, err := c.parsed.Decode(data, nil, stored); err != nil {
			return nil, nil, err
		}
		restoreServersMetadata(converted, stored)
	}
	return obj, kind, err
}

// Encode implements runtime.Encoder.
func (c serversMetadataCodec) Encode(obj runtime.Object, w io.Writer) error {
	before, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return c.Codec.Encode(obj, w)
	}
	var buffer bytes.Buffer
	if err := c.Codec.Encode(obj, &buffer); err != nil {
		return err
	}
	converted := &unstructured.Unstructured{}
	if _, _, err := c.parsed.Decode(buffer.Bytes(), nil, converted); err != nil {
		return err
	}
	if restoreServersMetadata(converted, before) {
		return c.parsed.Encode(converted, w)
	}
	_, err := buffer.WriteTo(w)
	return err
}

// restoreServersMetadata restores the labels and annotations of the server to those that an object had before a conversion. It
// reports whether the object had others.
func restoreServersMetadata(converted, before *unstructured.Unstructured) bool {
	isClaim := func(key string) bool { return strings.HasPrefix(key, apisv1alpha2.ClaimedLabelPrefix) }
	labels, relabelled := restored(converted.GetLabels(), before.GetLabels(), isClaim)
	if relabelled {
		converted.SetLabels(labels)
	}
	isCluster := func(key string) bool { return key == logicalcluster.AnnotationKey }
	annotations, annotated := restored(converted.GetAnnotations(), before.GetAnnotations(), isCluster)
	if annotated {
		converted.SetAnnotations(annotations)
	}
	return relabelled || annotated
}

// restored returns after with the keys of the server in before, and reports whether that is a change. It may modify
// after.
func restored(after, before map[string]string, isServers func(key string) bool) (map[string]string, bool) {
	isOthers := func(key, _ string) bool { return !isServers(key) }
	want, got := maps.Clone(before), maps.Clone(after)
	maps.DeleteFunc(want, isOthers)
	maps.DeleteFunc(got, isOthers)
	if maps.Equal(want, got) {
		return after, false
	}
	maps.DeleteFunc(after, func(key, _ string) bool { return isServers(key) })
	if after == nil {
		after = map[string]string{}
	}
	maps.Copy(after, want)
	return after, true
}
