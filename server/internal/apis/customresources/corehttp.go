package customresources

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"sigs.k8s.io/yaml"
)

// coreHandler hides innerGroup from the clients of a disguised definition's handler.
type coreHandler struct {
	inner http.Handler
	limit int64 // of the body, in bytes; upstream rejects longer bodies
}

func (h coreHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	inner := r.Clone(r.Context())
	// Compressed content and formats with lengths cannot be rewritten; clients that accept these accept JSON as well.
	inner.Header.Del("Accept-Encoding")
	if accept := withoutProtobuf(r.Header.Values("Accept")); len(accept) > 0 {
		inner.Header["Accept"] = accept
	}
	if r.Body != nil && (r.Method == http.MethodPost || r.Method == http.MethodPut || r.Method == http.MethodPatch) {
		reader := io.Reader(r.Body)
		if h.limit > 0 {
			reader = io.LimitReader(reader, h.limit+1)
		}
		body, err := io.ReadAll(reader)
		if err != nil {
			fail(w, r, err)
			return
		}
		body = bodyInward(r.Header.Get("Content-Type"), body)
		inner.Body, inner.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	rewriting := &coreWriter{ResponseWriter: w}
	defer rewriting.finish()
	h.inner.ServeHTTP(responsewriter.WrapForHTTP1Or2(rewriting), inner)
}

func withoutProtobuf(accept []string) []string {
	clauses := strings.Split(strings.Join(accept, ","), ",")
	clauses = slices.DeleteFunc(clauses, func(c string) bool { return c == "" || strings.Contains(c, "protobuf") })
	if len(clauses) == 0 {
		return nil
	}
	return []string{strings.Join(clauses, ",")}
}

// bodyInward rewrites the apiVersions of an object or patch. It passes on content that it cannot parse, which upstream
// rejects.
func bodyInward(contentType string, body []byte) []byte {
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		media = "application/json"
	}
	if media == "application/json-patch+json" {
		return jsonPatchInward(body)
	}
	original := body
	if strings.HasSuffix(media, "yaml") {
		if body, err = yaml.YAMLToJSON(body); err != nil {
			return original
		}
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(body, &object) != nil || object == nil {
		return original
	}
	setInward(object, "apiVersion")
	var metadata map[string]json.RawMessage
	if json.Unmarshal(object["metadata"], &metadata) == nil && metadata != nil {
		var fields []map[string]json.RawMessage
		if json.Unmarshal(metadata["managedFields"], &fields) == nil && fields != nil {
			for _, entry := range fields {
				setInward(entry, "apiVersion")
			}
			if metadata["managedFields"], err = json.Marshal(fields); err != nil {
				return original
			}
			if object["metadata"], err = json.Marshal(metadata); err != nil {
				return original
			}
		}
	}
	rewritten, err := json.Marshal(object)
	if err != nil {
		return original
	}
	return rewritten
}

func setInward(object map[string]json.RawMessage, field string) {
	var version string
	if json.Unmarshal(object[field], &version) != nil {
		return
	}
	if rewritten, err := json.Marshal(inward(version)); err == nil {
		object[field] = rewritten
	}
}

func jsonPatchInward(body []byte) []byte {
	var operations []map[string]json.RawMessage
	if json.Unmarshal(body, &operations) != nil {
		return body
	}
	for _, operation := range operations {
		if string(operation["path"]) == `"/apiVersion"` {
			setInward(operation, "value")
		}
	}
	rewritten, err := json.Marshal(operations)
	if err != nil {
		return body
	}
	return rewritten
}

// The forms in which innerGroup appears in a text: behind a resource or kind, in an apiVersion, alone.
const (
	behindName = "." + innerGroup
	inVersion  = innerGroup + "/"
)

var textOutward = strings.NewReplacer(behindName, "", inVersion, "", innerGroup, "")

// coreWriter removes innerGroup from a response. It holds back bytes that can be the beginning of innerGroup until
// more bytes follow.
type coreWriter struct {
	http.ResponseWriter
	started, raw bool
	held         []byte
}

var _ responsewriter.UserProvidedDecorator = &coreWriter{}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (w *coreWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *coreWriter) WriteHeader(code int) {
	w.start()
	w.ResponseWriter.WriteHeader(code)
}

func (w *coreWriter) start() {
	if w.started {
		return
	}
	w.started = true
	h := w.Header()
	w.raw = strings.Contains(h.Get("Content-Type"), "protobuf")
	for _, values := range h {
		for i := range values {
			values[i] = textOutward.Replace(values[i])
		}
	}
	if !w.raw {
		h.Del("Content-Length")
	}
}

func (w *coreWriter) Write(p []byte) (int, error) {
	w.start()
	if w.raw {
		return w.ResponseWriter.Write(p)
	}
	text := append(w.held, p...)
	keep := undecided(text)
	ready := text[:len(text)-keep]
	w.held = slices.Clone(text[len(text)-keep:])
	if len(ready) == 0 {
		return len(p), nil
	}
	if _, err := io.WriteString(w.ResponseWriter, textOutward.Replace(string(ready))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// undecided returns how many bytes at the end of text can be the beginning of innerGroup.
func undecided(text []byte) int {
	if bytes.HasSuffix(text, []byte(behindName)) {
		return 0
	}
	for n := min(len(text), len(behindName)-1); n > 0; n-- {
		end := string(text[len(text)-n:])
		if strings.HasPrefix(behindName, end) || strings.HasPrefix(inVersion, end) {
			return n
		}
	}
	return 0
}

// Flush implements http.Flusher. Events of watches are flushed as a whole.
func (w *coreWriter) Flush() {
	w.finish()
	_ = http.NewResponseController(w.ResponseWriter).Flush()
}

func (w *coreWriter) finish() {
	if len(w.held) > 0 {
		_, _ = io.WriteString(w.ResponseWriter, textOutward.Replace(string(w.held)))
		w.held = nil
	}
}
