package customresources

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/streaming/pkg/httpstream"
)

// Typed clients of the kinds that Kubernetes itself defines, such as Deployments, send and accept protobuf and strategic merge
// patches on every cluster. Upstream's handler of custom resources supports neither: this file converts both to JSON and back for
// these kinds.

const (
	// protobufBodyLimit is the size in bytes of the largest protobuf body. Two bytes of protobuf can encode a list element that
	// takes a kilobyte as a Go value, so the limit is below that of JSON, which is never decoded into Go types here.
	protobufBodyLimit = 256 << 10
	// translatedLimit is the size in bytes of the largest JSON text that is decoded into a Go type, and translatedObjects limits its
	// objects: an empty object of two bytes can take a kilobyte as a Go value.
	translatedLimit   = 4 << 20
	translatedObjects = 1 << 16
)

var (
	knownJSON        = json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, json.SerializerOptions{})
	knownProtobuf    = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	knownRawProtobuf = protobuf.NewRawSerializer(scheme.Scheme, scheme.Scheme)
)

// mediaTypes serves protobuf and strategic merge patches for known kinds in front of inner, and rejects protobuf for others.
type mediaTypes struct {
	inner http.Handler
	group string
	kind  string
	limit int64 // of a body, in bytes
}

func (m mediaTypes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok {
		m.inner.ServeHTTP(w, r)
		return
	}
	kind := schema.GroupVersionKind{Group: m.group, Version: info.APIVersion, Kind: m.kind}
	if info.Subresource == "scale" {
		kind = autoscalingv1.SchemeGroupVersion.WithKind("Scale")
	}
	known := scheme.Scheme.Recognizes(kind)
	r, err := m.bodyAsJSON(r, info, known)
	if err != nil {
		fail(w, r, err)
		return
	}
	if !known {
		m.inner.ServeHTTP(w, r)
		return
	}
	w, r, finish := m.answerAsProtobuf(w, r)
	defer finish()
	if contentType(r) == string(types.StrategicMergePatchType) && info.Verb == "patch" {
		m.patch(w, r, info, kind)
		return
	}
	m.inner.ServeHTTP(w, r)
}

// contentType returns the media type of the body of r without parameters.
func contentType(r *http.Request) string {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return media
}

// bodyAsJSON returns r with its object as JSON if it is protobuf. Upstream reads options of deletions itself.
func (m mediaTypes) bodyAsJSON(r *http.Request, info *request.RequestInfo, known bool) (*http.Request, error) {
	written := info.Verb == "create" || info.Verb == "update"
	if !written || contentType(r) != runtime.ContentTypeProtobuf {
		return r, nil
	}
	if !known {
		return r, negotiation.NewUnsupportedMediaTypeError([]string{runtime.ContentTypeJSON, runtime.ContentTypeYAML})
	}
	data, err := io.ReadAll(io.LimitReader(r.Body, protobufBodyLimit+1))
	if err != nil {
		return r, err
	}
	if len(data) > protobufBodyLimit {
		return r, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("request body exceeds the limit of %d bytes for protobuf: "+
			"send JSON", protobufBodyLimit))
	}
	obj, kind, err := knownProtobuf.Decode(data, nil, nil)
	if err != nil {
		return r, apierrors.NewBadRequest(fmt.Sprintf("decoding the request body: %v", err))
	}
	obj.GetObjectKind().SetGroupVersionKind(*kind)
	var text bytes.Buffer
	if err := knownJSON.Encode(obj, &text); err != nil {
		return r, apierrors.NewBadRequest(fmt.Sprintf("decoding the request body: %v", err))
	}
	return withBody(r, runtime.ContentTypeJSON, text.Bytes()), nil
}

// withBody returns a copy of r with another body.
func withBody(r *http.Request, contentType string, body []byte) *http.Request {
	changed := r.Clone(r.Context())
	changed.Header.Set("Content-Type", contentType)
	changed.Body, changed.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return changed
}

// anyTransform lets a client request every transformation that upstream may support.
type anyTransform struct {
	negotiation.EndpointRestrictions
}

// AllowsMediaTypeTransform implements negotiation.EndpointRestrictions.
func (anyTransform) AllowsMediaTypeTransform(string, string, *schema.GroupVersionKind) bool {
	return true
}

// answerAsProtobuf returns the writer and request to serve r with, which make the response protobuf if the client prefers it, and a
// function to call at the end.
func (m mediaTypes) answerAsProtobuf(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, *http.Request, func()) {
	restrictions := anyTransform{negotiation.DefaultEndpointRestrictions}
	preferred, ok := negotiation.NegotiateMediaTypeOptions(r.Header.Get("Accept"), scheme.Codecs.SupportedMediaTypes(), restrictions)
	if !ok || preferred.Convert != nil || preferred.Accepted.MediaType != runtime.ContentTypeProtobuf || httpstream.IsUpgradeRequest(r) {
		return w, r, func() {}
	}
	var textual []runtime.SerializerInfo
	for _, info := range scheme.Codecs.SupportedMediaTypes() {
		if info.MediaType == runtime.ContentTypeJSON {
			textual = append(textual, info)
		}
	}
	_, acceptsJSON := negotiation.NegotiateMediaTypeOptions(r.Header.Get("Accept"), textual, restrictions)
	inner := r.Clone(r.Context())
	inner.Header.Set("Accept", runtime.ContentTypeJSON)
	inner.Header.Del("Accept-Encoding")
	p := &protobufWriter{ResponseWriter: w, request: r, acceptsJSON: acceptsJSON}
	return responsewriter.WrapForHTTP1Or2(p), inner, p.finish
}

// protobufWriter converts a JSON response to protobuf: an object at the end of the response, and events of a watch one
// by one.
type protobufWriter struct {
	http.ResponseWriter
	request     *http.Request
	acceptsJSON bool

	code    int
	held    bytes.Buffer
	watch   bool
	through bool // the response is not converted
	err     error
}

var _ responsewriter.UserProvidedDecorator = &protobufWriter{}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (p *protobufWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (p *protobufWriter) WriteHeader(code int) {
	if p.code != 0 || code < http.StatusOK {
		return
	}
	p.code = code
	info, _ := request.RequestInfoFrom(p.request.Context())
	p.watch = code == http.StatusOK && info != nil && info.Verb == "watch"
	header := p.Header()
	media, _, _ := mime.ParseMediaType(header.Get("Content-Type"))
	switch {
	case media != runtime.ContentTypeJSON:
		p.pass()
	case p.watch:
		header.Set("Content-Type", runtime.ContentTypeProtobuf+";stream=watch")
		header.Del("Content-Length")
		p.ResponseWriter.WriteHeader(code)
	}
}

// pass sends the buffered response, and everything after it, unchanged.
func (p *protobufWriter) pass() {
	p.through = true
	p.ResponseWriter.WriteHeader(p.code)
	_, p.err = p.ResponseWriter.Write(p.held.Bytes())
	p.held = bytes.Buffer{}
}

// Write implements http.ResponseWriter.
func (p *protobufWriter) Write(data []byte) (int, error) {
	if p.code == 0 {
		p.WriteHeader(http.StatusOK)
	}
	switch {
	case p.err != nil:
		return 0, p.err
	case p.through:
		return p.ResponseWriter.Write(data)
	}
	p.held.Write(data)
	if p.watch {
		p.err = p.events()
	} else if p.held.Len() > translatedLimit {
		p.tooLarge()
	}
	return len(data), p.err
}

// tooLarge stops the conversion of a response.
func (p *protobufWriter) tooLarge() {
	if p.acceptsJSON {
		p.pass()
		return
	}
	err := apierrors.NewGenericServerResponse(http.StatusNotAcceptable, "", schema.GroupResource{}, "", "", 0, true)
	err.ErrStatus.Message = fmt.Sprintf("the response is too large to encode this resource as protobuf (limits: %d bytes, %d "+
		"objects and maps): set the parameter limit, or accept %s",
		translatedLimit, translatedObjects, runtime.ContentTypeJSON)
	p.replace(err)
}

// replace sends an error instead of the buffered response.
func (p *protobufWriter) replace(err error) {
	p.through, p.held = true, bytes.Buffer{}
	p.Header().Del("Content-Length")
	fail(p.ResponseWriter, p.request, err)
	p.err = errors.New("the response was replaced by an error")
}

// Flush implements http.Flusher. Only events are sent before the end.
func (p *protobufWriter) Flush() {
	if p.watch || p.through {
		_ = http.NewResponseController(p.ResponseWriter).Flush()
	}
}

// finish sends a buffered object.
func (p *protobufWriter) finish() {
	if p.code == 0 || p.watch || p.through {
		return
	}
	object, err := toProtobuf(p.held.Bytes())
	switch {
	case errors.Is(err, errTooLarge):
		p.tooLarge()
		return
	case err != nil && p.acceptsJSON:
		p.pass()
		return
	case err != nil:
		p.replace(apierrors.NewInternalError(fmt.Errorf("encoding the response as protobuf: %w: accept %s "+
			"instead", err, runtime.ContentTypeJSON)))
		return
	}
	p.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
	p.Header().Del("Content-Length")
	p.ResponseWriter.WriteHeader(p.code)
	_, _ = p.ResponseWriter.Write(object)
}

// events sends all complete events. Each is one line.
func (p *protobufWriter) events() error {
	for {
		end := bytes.IndexByte(p.held.Bytes(), '\n')
		if end < 0 {
			return nil
		}
		event, err := eventToProtobuf(p.held.Next(end + 1))
		if err != nil {
			return err
		}
		if _, err := protobuf.LengthDelimitedFramer.NewFrameWriter(p.ResponseWriter).Write(event); err != nil {
			return err
		}
	}
}

var errTooLarge = errors.New("object is too large to decode into a Go type")

// toProtobuf converts an object.
func toProtobuf(text []byte) ([]byte, error) {
	if len(text) > translatedLimit || bytes.Count(text, []byte("{")) > translatedObjects {
		return nil, errTooLarge
	}
	obj, _, err := knownJSON.Decode(text, nil, nil)
	if err != nil {
		return nil, err
	}
	return runtime.Encode(knownProtobuf, obj)
}

// eventToProtobuf converts an event of a watch, or returns an error event if that fails.
func eventToProtobuf(text []byte) ([]byte, error) {
	var event metav1.WatchEvent
	if _, _, err := knownJSON.Decode(text, &schema.GroupVersionKind{Version: "v1", Kind: "WatchEvent"}, &event); err != nil {
		return nil, err
	}
	object, err := toProtobuf(event.Object.Raw)
	if err != nil {
		status := apierrors.NewInternalError(fmt.Errorf("encoding an event as protobuf: %w: accept %s instead", err,
			runtime.ContentTypeJSON)).Status()
		status.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Status"})
		event.Type = "ERROR"
		if object, err = runtime.Encode(knownProtobuf, &status); err != nil {
			return nil, err
		}
	}
	event.Object = runtime.RawExtension{Raw: object}
	return runtime.Encode(knownRawProtobuf, &event)
}
