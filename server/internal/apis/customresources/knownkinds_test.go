package customresources

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// serveKnown returns the response for a Deployment in front of inner.
func serveKnown(inner http.HandlerFunc, verb, method, accept, contentType string, body io.Reader) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "/apis/apps/v1/namespaces/default/deployments/web", body)
	r = r.WithContext(request.WithRequestInfo(r.Context(), &request.RequestInfo{
		IsResourceRequest: true, Verb: verb, APIGroup: "apps", APIVersion: "v1", Resource: "deployments", Namespace: "default", Name: "web",
	}))
	r.Header.Set("Accept", accept)
	r.Header.Set("Content-Type", contentType)
	w := httptest.NewRecorder()
	mediaTypes{inner: inner, group: "apps", kind: "Deployment", limit: 1 << 20}.ServeHTTP(w, r)
	return w
}

// answerJSON responds with JSON, and rejects clients that do not accept JSON.
func answerJSON(t *testing.T, code int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if accept := r.Header.Get("Accept"); !strings.Contains(accept, "json") {
			t.Errorf("the next handler gets a request for %q", accept)
		}
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		w.WriteHeader(code)
		_, _ = io.WriteString(w, text)
	}
}

const webDeployment = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{"replicas":2}}`

func TestAnObjectOfAKnownKindIsServedAsProtobuf(t *testing.T) {
	for _, verb := range []string{"get", "list", "watch"} {
		text := map[string]string{
			"get": webDeployment, "list": `{"apiVersion":"apps/v1","kind":"DeploymentList","metadata":{},"items":[` + webDeployment + `]}`,
			"watch": `{"type":"ADDED","object":` + webDeployment + "}\n",
		}[verb]
		w := serveKnown(answerJSON(t, http.StatusOK, text), verb, http.MethodGet, runtime.ContentTypeProtobuf, "", nil)
		if media := w.Header().Get("Content-Type"); w.Code != http.StatusOK || !strings.HasPrefix(media, runtime.ContentTypeProtobuf) || strings.Contains(w.Body.String(), `"name"`) {
			t.Errorf("%s: got %d %s %q", verb, w.Code, media, w.Body)
		}
		if verb != "get" {
			continue
		}
		obj, err := runtime.Decode(knownProtobuf, w.Body.Bytes())
		if d, ok := obj.(*appsv1.Deployment); err != nil || !ok || *d.Spec.Replicas != 2 {
			t.Errorf("got %v, %v", obj, err)
		}
	}
}

func TestAnErrorIsServedAsProtobuf(t *testing.T) {
	text := `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"NotFound","code":404}`
	w := serveKnown(answerJSON(t, http.StatusNotFound, text), "get", http.MethodGet, runtime.ContentTypeProtobuf, "", nil)
	obj, err := runtime.Decode(knownProtobuf, w.Body.Bytes())
	if status, ok := obj.(*metav1.Status); err != nil || !ok || status.Code != 404 || w.Code != http.StatusNotFound {
		t.Errorf("got %d %v, %v", w.Code, obj, err)
	}
}

func TestResponsesTooLargeForProtobufAreJSONOrErrors(t *testing.T) {
	large := map[string]string{
		"bytes":   `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"` + strings.Repeat("x", translatedLimit) + `"}}`,
		"objects": `{"apiVersion":"apps/v1","kind":"Deployment","spec":{"template":{"spec":{"containers":[` + strings.Repeat("{},", translatedObjects) + `{}]}}}}`,
	}
	for name, text := range large {
		w := serveKnown(answerJSON(t, http.StatusOK, text), "get", http.MethodGet, runtime.ContentTypeProtobuf+", */*", "", nil)
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != runtime.ContentTypeJSON || w.Body.String() != text {
			t.Errorf("%s: got %d %s, %d bytes", name, w.Code, w.Header().Get("Content-Type"), w.Body.Len())
		}
		w = serveKnown(answerJSON(t, http.StatusOK, text), "get", http.MethodGet, runtime.ContentTypeProtobuf, "", nil)
		if w.Code != http.StatusNotAcceptable || !strings.Contains(w.Body.String(), "limit") {
			t.Errorf("%s: got %d %.200q", name, w.Code, w.Body)
		}
	}
	body := append([]byte("k8s\x00"), bytes.Repeat([]byte{0}, protobufBodyLimit)...)
	w := serveKnown(answerJSON(t, http.StatusOK, "{}"), "create", http.MethodPost, "application/json", runtime.ContentTypeProtobuf, bytes.NewReader(body))
	if w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("got %d %q", w.Code, w.Body)
	}
}

func TestAStrategicMergePatchBecomesAMergePatchOfOneVersion(t *testing.T) {
	current := `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","resourceVersion":"7"},
		"spec":{"template":{"spec":{"containers":[{"name":"a","image":"a:1"},{"name":"b","image":"b:1"}]}}}}`
	conflicts, sent := 2, ""
	inner := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, current)
			return
		}
		body, _ := io.ReadAll(r.Body)
		sent = r.Header.Get("Content-Type") + " " + string(body)
		if conflicts--; conflicts >= 0 {
			w.WriteHeader(http.StatusConflict)
			return
		}
		_, _ = io.WriteString(w, webDeployment)
	}
	patch := `{"spec":{"template":{"spec":{"containers":[{"name":"b","image":"b:2"},{"name":"a","$patch":"delete"}]}}}}`
	w := serveKnown(inner, "patch", http.MethodPatch, "application/json", "application/strategic-merge-patch+json", strings.NewReader(patch))
	want := `application/merge-patch+json {"metadata":{"resourceVersion":"7"},"spec":{"template":{"spec":{"containers":[{"image":"b:2","name":"b"}]}}}}`
	if w.Code != http.StatusOK || conflicts != -1 || sent != want {
		t.Errorf("got %d after %d, sent %s", w.Code, conflicts, sent)
	}
	many := `{"spec":{"template":{"spec":{"containers":[` + strings.Repeat(`{"name":"x"},`, 50_000) + `{"name":"y"}]}}}}`
	current = many
	w = serveKnown(inner, "patch", http.MethodPatch, "application/json", "application/strategic-merge-patch+json", strings.NewReader(many))
	if w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("got %d %.200q", w.Code, w.Body)
	}
}
