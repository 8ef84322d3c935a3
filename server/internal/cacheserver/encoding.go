package cacheserver

import (
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured/unstructuredscheme"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
)

// scheme has the types of responses that are not stored objects: errors, events of watches, and discovery.
var scheme = newScheme()

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	v1 := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(s, v1)
	s.AddUnversionedTypes(v1, &metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
	return s
}

// codecs encode the types of scheme.
var codecs = serializer.NewCodecFactory(scheme)

// encoding is the serializer of all resources. Objects are encoded as they are stored.
type encoding struct {
	runtime.NegotiatedSerializer
	mediaTypes []runtime.SerializerInfo
}

func newEncoding() encoding {
	objects := func(o json.SerializerOptions) *json.Serializer {
		return json.NewSerializerWithOptions(json.DefaultMetaFactory, unstructuredscheme.NewUnstructuredCreator(),
			unstructuredscheme.NewUnstructuredObjectTyper(), o)
	}
	e := encoding{NegotiatedSerializer: codecs.WithoutConversion()}
	for _, info := range codecs.SupportedMediaTypes() {
		if info.MediaType == runtime.ContentTypeJSON {
			info.Serializer = objects(json.SerializerOptions{StreamingCollectionsEncoding: true})
			info.PrettySerializer = objects(json.SerializerOptions{Pretty: true})
			e.mediaTypes = append(e.mediaTypes, info)
		}
	}
	return e
}

// SupportedMediaTypes implements runtime.NegotiatedSerializer: JSON.
func (e encoding) SupportedMediaTypes() []runtime.SerializerInfo { return e.mediaTypes }

// EncoderForVersion implements runtime.NegotiatedSerializer.
func (e encoding) EncoderForVersion(plain runtime.Encoder, gv runtime.GroupVersioner) runtime.Encoder {
	return unconverted{Encoder: e.NegotiatedSerializer.EncoderForVersion(plain, gv), plain: plain}
}

// unconverted encodes stored objects without conversion, and other types with their encoder.
type unconverted struct {
	runtime.Encoder
	plain runtime.Encoder
}

// Encode implements runtime.Encoder.
func (u unconverted) Encode(obj runtime.Object, w io.Writer) error {
	switch o := obj.(type) {
	case runtime.CacheableObject: // several watches deliver it
		return o.CacheEncode(u.Identifier(), u.Encode, w)
	case runtime.Unstructured:
		return u.plain.Encode(obj, w)
	}
	return u.Encoder.Encode(obj, w)
}
