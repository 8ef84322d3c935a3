package customresources

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"
)

// patchAttempts limits how often a strategic merge patch is computed if the object changes concurrently; the same number as upstream's
// for built-in kinds.
const patchAttempts = 5

// mergeSteps limits the work of one strategic merge patch, which compares every element of a list with every element of its patch:
// the objects and maps in the object, times those in the patch.
const mergeSteps = 5_000_000

// patch serves a strategic merge patch: it reads the object, applies the patch by the rules of the Go type, and sends the difference
// as a merge patch of that version of the object.
func (m mediaTypes) patch(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, kind schema.GroupVersionKind) {
	body, err := readLimited(r.Body, m.limit)
	if err != nil {
		fail(w, r, err)
		return
	}
	var patch map[string]any
	if err := json.Unmarshal(body, &patch); err != nil {
		fail(w, r, apierrors.NewBadRequest(fmt.Sprintf("the strategic merge patch is not a JSON object: %v", err)))
		return
	}
	for attempt := 1; ; attempt++ {
		current := m.read(r, info)
		if current.code != http.StatusOK {
			current.copyTo(w)
			return
		}
		merge, err := asMergePatch(kind, current.body.Bytes(), body, patch)
		if err != nil {
			fail(w, r, err)
			return
		}
		inner := withBody(r, string(types.MergePatchType), merge)
		if attempt == patchAttempts || namesVersion(patch) {
			m.inner.ServeHTTP(w, inner)
			return
		}
		answer := &recorder{header: http.Header{}}
		m.inner.ServeHTTP(answer, inner)
		if answer.code != http.StatusConflict {
			answer.copyTo(w)
			return
		}
	}
}

// readLimited returns a body of at most limit bytes.
func readLimited(body io.Reader, limit int64) ([]byte, error) {
	if limit <= 0 {
		return io.ReadAll(body)
	}
	data, err := io.ReadAll(io.LimitReader(body, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("request body exceeds the limit of %d bytes", limit))
	}
	return data, err
}

// read returns the object of r. A client that may patch an object sees it in the response, so this read needs no further
// authorization.
func (m mediaTypes) read(r *http.Request, info *request.RequestInfo) *recorder {
	got := *info
	got.Verb = "get"
	inner := r.Clone(request.WithRequestInfo(r.Context(), &got))
	inner.Method, inner.Body, inner.ContentLength = http.MethodGet, http.NoBody, 0
	inner.URL.RawQuery = ""
	inner.Header.Del("Content-Type")
	inner.Header.Del("Accept-Encoding")
	inner.Header.Set("Accept", runtime.ContentTypeJSON)
	answer := &recorder{header: http.Header{}}
	m.inner.ServeHTTP(answer, inner)
	return answer
}

// asMergePatch returns the changes of a strategic merge patch to an object of a known kind as a merge patch, with the
// version of the object.
func asMergePatch(kind schema.GroupVersionKind, current, body []byte, patch map[string]any) ([]byte, error) {
	if steps := bytes.Count(current, []byte("{")) * bytes.Count(body, []byte("{")); steps > mergeSteps {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the strategic merge patch needs %d comparisons, but the limit is %d: "+
			"send a JSON merge patch", steps, mergeSteps))
	}
	example, err := scheme.Scheme.New(kind)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	patched, err := strategicpatch.StrategicMergePatch(current, body, example)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("applying the strategic merge patch: %v", err))
	}
	difference, err := jsonpatch.CreateMergePatch(current, patched)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("comparing the patched object: %w", err))
	}
	if namesVersion(patch) {
		return difference, nil
	}
	var merge, object map[string]any
	if err := json.Unmarshal(difference, &merge); err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	if err := json.Unmarshal(current, &object); err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	metadata, _ := merge["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
		merge["metadata"] = metadata
	}
	was, _ := object["metadata"].(map[string]any)
	metadata["resourceVersion"] = was["resourceVersion"]
	return json.Marshal(merge)
}

// namesVersion reports whether a patch applies to only one version of the object.
func namesVersion(patch map[string]any) bool {
	metadata, _ := patch["metadata"].(map[string]any)
	version, _ := metadata["resourceVersion"].(string)
	return version != ""
}

// recorder records a response.
type recorder struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (r *recorder) Header() http.Header { return r.header }

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(code int) {
	if r.code == 0 {
		r.code = code
	}
}

// Write implements http.ResponseWriter.
func (r *recorder) Write(data []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	return r.body.Write(data)
}

// copyTo sends the recorded response.
func (r *recorder) copyTo(w http.ResponseWriter) {
	for name, values := range r.header {
		w.Header()[name] = values
	}
	w.WriteHeader(r.code)
	_, _ = w.Write(r.body.Bytes())
}
