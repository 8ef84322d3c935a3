package endpoints

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/utils/ptr"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/internal/process/outbound"
	"github.com/kcplane/kcp/server/logicalcluster"
	"github.com/kcplane/kcp/server/virtual"
)

const notes = "https://notes.example.org/services/notes"

func all(urls ...string) []endpoint {
	var list []endpoint
	for _, u := range urls {
		list = append(list, endpoint{URL: u})
	}
	return list
}

func onShards(e endpoint, matchAll bool, selector map[string]string) endpoint {
	e.Shards = &struct {
		MatchAll bool                  `json:"matchAll"`
		Selector *metav1.LabelSelector `json:"selector"`
	}{MatchAll: matchAll}
	if selector != nil {
		e.Shards.Selector = &metav1.LabelSelector{MatchLabels: selector}
	}
	return e
}

func TestTheMostSpecificURLIsChosen(t *testing.T) {
	allowed, err := ParseAllowed("root:notes=" + notes)
	if err != nil {
		t.Fatal(err)
	}
	here := labels.Set{"region": "north", "zone": "a"}
	at := func(path string) endpoint { return endpoint{URL: notes + path} }
	for name, test := range map[string]struct {
		endpoints []endpoint
		want      string
		err       string
	}{
		"the only one":          {all(notes), notes, ""},
		"the only one that may": {all("https://elsewhere.example.org/services/notes", notes+"/one"), notes + "/one", ""},
		"none":                  {nil, "", "no URL"},
		"two":                   {all(notes, notes+"/one"), "", "more than one URL"},
		"for all":               {[]endpoint{at("/a"), onShards(at("/b"), true, nil)}, notes + "/b", ""},
		"for this":              {[]endpoint{onShards(at("/b"), true, nil), onShards(at("/c"), false, map[string]string{"region": "north"}), onShards(at("/d"), false, map[string]string{"region": "south", "zone": "a"})}, notes + "/c", ""},
		"more for this":         {[]endpoint{onShards(at("/c"), false, here), onShards(at("/d"), false, map[string]string{"zone": "a"})}, notes + "/c", ""},
		"for this, not allowed": {[]endpoint{at("/a"), onShards(endpoint{URL: "https://elsewhere.example.org/services/x"}, true, nil)}, "", "no administrator"},
	} {
		got, err := choose(test.endpoints, here, allowed.permits)
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%s: got %v, %v, want %q", name, got, err, test.err)
			}
			continue
		}
		if err != nil || got.String() != test.want {
			t.Errorf("%s: got %v, %v, want %s", name, got, err, test.want)
		}
	}
}

func TestOnlyAllowedURLsAreChosen(t *testing.T) {
	allowed, err := ParseAllowed("root:notes=" + notes)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{
		"", "http://notes.example.org/services/notes", "https://169.254.169.254/latest/meta-data", "https://localhost:6443/clusters/root", "https://localhost:2379/services/notes",
		"https://notes.example.org", "https://notes.example.org/", "https://notes.example.org/services/notesbook", "https://notes.example.org/services/other",
		"https://notes.example.org:8443/services/notes", "https://notes.example.org.evil.com/services/notes", "https://user@notes.example.org/services/notes",
		"https://notes.example.org@evil.com/services/notes", "https://notes.example.org/services/notes?a=b", "https://notes.example.org/services/notes?",
		"https://notes.example.org/services/notes#a", "https://notes.example.org/services/notes/../other", "https://notes.example.org/services/notes/%2e%2e/other",
		"https://notes.example.org/services/notes//x", "https://notes.example.org/services/notes/clusters/victim", "https://notes.example.org/services/notes/clusters/victim/api/v1/secrets",
		"https:notes.example.org/services/notes", "file:///etc/passwd", "https://notes.example.org/services/notes\x00",
	} {
		if got, err := choose(all(bad), nil, allowed.permits); err == nil {
			t.Errorf("%q resolves to %s", bad, got)
		}
		if got, err := choose([]endpoint{onShards(endpoint{URL: bad}, true, nil)}, nil, allowed.permits); err == nil {
			t.Errorf("%q, for all shards, resolves to %s", bad, got)
		}
	}
	for _, bad := range []string{"", "root", "root=", "=" + notes, "root=https://notes.example.org", "root=http://notes.example.org/services/notes", "root=" + notes + "/clusters/x"} {
		if _, err := ParseAllowed(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

var (
	sliceResource = schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "slices"}
	books         = schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "books"}
	slice         = corev1.TypedLocalObjectReference{APIGroup: ptr.To("example.org"), Kind: "Slice", Name: "books"}
)

// newEndpoints returns Endpoints of the workspace root:library whose slice has a URL, and which trust a server.
func newEndpoints(t *testing.T, server *httptest.Server, url string) *Endpoints {
	t.Helper()
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	allowed, err := ParseAllowed("root:library=" + server.URL + "/services/books")
	if err != nil {
		t.Fatal(err)
	}
	stored := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.org/v1", "kind": "Slice", "metadata": map[string]any{"name": "books"},
		"status": map[string]any{"endpoints": []any{map[string]any{"url": url}}},
	}}
	e, err := New(Config{
		Allowed: []Allowed{allowed}, Files: outbound.Files{CA: ca},
		Is: func(workspace string, c logicalcluster.Name) bool {
			return workspace == "root:library" && (c == "library" || c == "circle")
		},
		Exports: func(c logicalcluster.Name) ([]*apisv1alpha2.APIExport, error) {
			if c != "library" {
				return nil, nil
			}
			return []*apisv1alpha2.APIExport{{Spec: apisv1alpha2.APIExportSpec{Resources: []apisv1alpha2.ResourceSchema{{}, {
				Storage: apisv1alpha2.ResourceSchemaStorage{Virtual: &apisv1alpha2.ResourceSchemaStorageVirtual{Reference: slice}},
			}}}}}, nil
		},
		ShardLabels: func() labels.Set { return nil },
		IsVirtual: func(c logicalcluster.Name, r schema.GroupResource) bool {
			return c == "circle" && r == sliceResource.GroupResource()
		},
		Dynamic: fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{sliceResource: "SliceList"}, stored),
		RESTMapper: func(context.Context) (meta.RESTMapper, error) {
			m := meta.NewDefaultRESTMapper([]schema.GroupVersion{sliceResource.GroupVersion()})
			m.AddSpecific(sliceResource.GroupVersion().WithKind("Slice"), sliceResource, sliceResource.GroupVersion().WithResource("slice"), meta.RESTScopeRoot)
			return m, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// read lists books as a consumer, with all values in the context that must not leave the server.
func read(t *testing.T, e *Endpoints, at *url.URL) (*unstructured.UnstructuredList, error) {
	t.Helper()
	client, err := e.objects(at, books)
	if err != nil {
		t.Fatal(err)
	}
	ctx := request.WithUser(logicalcluster.WithName(t.Context(), "consumer"), &user.DefaultInfo{Name: "jane", Groups: []string{"system:masters"}})
	return client("").List(ctx, metav1.ListOptions{})
}

func TestAURLIsAllowedOnlyForItsWorkspace(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	e := newEndpoints(t, server, server.URL+"/services/books/of/ada")
	if u, _, err := e.URL(t.Context(), "library", slice); err != nil || u.Path != "/services/books/of/ada" {
		t.Errorf("got %v, %v", u, err)
	}
	for name, test := range map[string]struct {
		cluster   logicalcluster.Name
		reference corev1.TypedLocalObjectReference
	}{
		"another workspace":              {"thief", slice},
		"a slice that is virtual itself": {"circle", slice},
		"another slice":                  {"library", corev1.TypedLocalObjectReference{APIGroup: slice.APIGroup, Kind: slice.Kind, Name: "none"}},
		"another kind":                   {"library", corev1.TypedLocalObjectReference{APIGroup: slice.APIGroup, Kind: "Secret", Name: "books"}},
	} {
		if u, _, err := e.URL(t.Context(), test.cluster, test.reference); err == nil {
			t.Errorf("%s resolves to %s", name, u)
		} else if strings.Contains(err.Error(), server.URL) {
			t.Errorf("%s: consumers get %q", name, err)
		}
	}
}

func TestARequestForwardsNoCredentialsOrIdentity(t *testing.T) {
	var got *http.Request
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Clone(context.Background())
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"apiVersion":"example.org/v1","kind":"BookList","items":[{"apiVersion":"example.org/v1","kind":"Book","metadata":{"name":"one"}}]}`)
	}))
	defer server.Close()
	e := newEndpoints(t, server, server.URL+"/services/books")
	at, _, err := e.URL(t.Context(), "library", slice)
	if err != nil {
		t.Fatal(err)
	}
	list, err := read(t, e, at)
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("got %v, %v", list, err)
	}
	if got.URL.Path != "/services/books/clusters/consumer/apis/example.org/v1/books" {
		t.Errorf("the path is %s", got.URL.Path)
	}
	for header := range got.Header {
		switch header {
		case "Accept", "Accept-Encoding", "User-Agent", customresources.HopsHeader:
		default:
			t.Errorf("the header %s is sent", header)
		}
	}
	if len(got.TLS.PeerCertificates) != 0 {
		t.Error("a certificate is presented that is not configured")
	}
}

func TestMisbehavingVirtualWorkspacesAreErrors(t *testing.T) {
	internal := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { t.Error("a redirect was followed") }))
	defer internal.Close()
	answers := map[string]http.HandlerFunc{
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, internal.URL+"/services/x", http.StatusTemporaryRedirect)
		},
		"unauthorized": func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
		"forbidden":    func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusForbidden) },
		"broken":       func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) },
		"no-JSON":      func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "<html>") },
		"large-headers": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 2*mostHeaderBytes))
		},
		"packed": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Encoding", "gzip")
			packed := gzip.NewWriter(w)
			fmt.Fprint(packed, `{"apiVersion":"example.org/v1","kind":"BookList","items":[]}`)
			packed.Close()
		},
		"endless": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"apiVersion":"example.org/v1","kind":"BookList","items":[],"x":"`)
			for page := []byte(strings.Repeat("x", 1<<20)); ; {
				if _, err := w.Write(page); err != nil {
					return
				}
			}
		},
	}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answers[strings.Split(r.URL.Path, "/")[3]](w, r)
	}))
	defer server.Close()
	for what := range answers {
		e := newEndpoints(t, server, server.URL+"/services/books/"+what)
		u, _, err := e.URL(t.Context(), "library", slice)
		if err != nil {
			t.Fatal(err)
		}
		if list, err := read(t, e, u); !apierrors.IsServiceUnavailable(err) {
			t.Errorf("%s: consumers get %v, %v", what, list, err)
		}
	}
	// A server that cannot prove to be the virtual workspace gets no request.
	stranger := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("an untrusted server got a request") }))
	stranger.TLS = &tls.Config{}
	stranger.StartTLS()
	defer stranger.Close()
	e := newEndpoints(t, server, server.URL+"/services/books")
	e.transport = newTransport(nil)
	u, _ := url.Parse(stranger.URL + "/services/books")
	if _, err := read(t, e, u); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("an untrusted server answers %v", err)
	}
}

func TestConsumersGetOnlyKnownErrors(t *testing.T) {
	for _, err := range []error{errors.New("secret"), apierrors.NewUnauthorized("secret"), apierrors.NewInternalError(errors.New("secret"))} {
		if got := consumerError(err); !apierrors.IsServiceUnavailable(got) || strings.Contains(got.Error(), "secret") {
			t.Errorf("%v becomes %v", err, got)
		}
	}
	for _, err := range []error{nil, apierrors.NewNotFound(schema.GroupResource{}, "x"), apierrors.NewResourceExpired("x"),
		apierrors.NewServiceUnavailable("the cluster is away")} {
		if got := consumerError(err); !errors.Is(got, err) {
			t.Errorf("%v becomes %v", err, got)
		}
	}
}

func TestOnlyTheSliceAllowsDeletions(t *testing.T) {
	deleting := func(path string, verbs ...string) endpoint { return endpoint{URL: notes + path, Verbs: verbs} }
	permitted := func(u *url.URL) bool { return u.Host == "notes.example.org" }
	for name, test := range map[string]struct {
		endpoints []endpoint
		want      bool
	}{
		"no verbs":              {[]endpoint{deleting("")}, false},
		"other verbs":           {[]endpoint{deleting("", "get", "create", "deletecollection", "*")}, false},
		"delete":                {[]endpoint{deleting("", "delete")}, true},
		"of another endpoint":   {[]endpoint{deleting("/a", "delete"), onShards(deleting("/b"), true, nil)}, false},
		"of the chosen one":     {[]endpoint{deleting("/a"), onShards(deleting("/b", "delete"), true, nil)}, true},
		"of one that may not":   {[]endpoint{{URL: "https://elsewhere.example.org/services/notes", Verbs: []string{"delete"}}, deleting("")}, false},
		"of the permitted only": {[]endpoint{{URL: "https://elsewhere.example.org/services/notes"}, deleting("", "delete")}, true},
	} {
		if got, err := choose(test.endpoints, nil, permitted); err != nil || got.deletes != test.want {
			t.Errorf("%s: got %t, %v", name, got.deletes, err)
		}
	}
}

func TestADeletionHasItsOptionsAndNoIdentityOfTheUser(t *testing.T) {
	code, causes := http.StatusOK, []metav1.StatusCause(nil)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		options := metav1.DeleteOptions{}
		if err := json.NewDecoder(r.Body).Decode(&options); err != nil || ptr.Deref(options.GracePeriodSeconds, 0) != 3 {
			t.Errorf("the options are %+v: %v", options, err)
		}
		if r.Method != http.MethodDelete || r.URL.Path != "/services/books/clusters/consumer/apis/example.org/v1/namespaces/default/books/one" ||
			r.Header.Get("Content-Type") != "application/json" || r.Header.Get("Authorization") != "" || r.Header.Get("X-Remote-User") != "" {
			t.Errorf("%s %s with %v", r.Method, r.URL, r.Header)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		reason := map[int]metav1.StatusReason{http.StatusConflict: metav1.StatusReasonConflict, http.StatusForbidden: metav1.StatusReasonForbidden}[code]
		result := map[bool]string{true: metav1.StatusSuccess, false: metav1.StatusFailure}[code == http.StatusOK]
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Code: int32(code),
			Status: result, Reason: reason, Details: &metav1.StatusDetails{Causes: causes}})
	}))
	defer server.Close()
	e := newEndpoints(t, server, server.URL+"/services/books")
	at, err := url.Parse(server.URL + "/services/books")
	if err != nil {
		t.Fatal(err)
	}
	in, err := e.Objects(at, books)
	if err != nil {
		t.Fatal(err)
	}
	ctx := request.WithUser(logicalcluster.WithName(t.Context(), "consumer"), &user.DefaultInfo{Name: "jane"})
	for status, is := range map[int]func(error) bool{
		http.StatusOK: func(err error) bool { return err == nil }, http.StatusConflict: apierrors.IsConflict,
		http.StatusForbidden: apierrors.IsServiceUnavailable, // not of the consumer
	} {
		code = status
		if err := in("default").Delete(ctx, "one", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](3)}); !is(err) {
			t.Errorf("after %d: got %v", status, err)
		}
	}
	code, causes = http.StatusForbidden, []metav1.StatusCause{{Type: virtual.CauseDeletionRefused}}
	if err := in("default").Delete(ctx, "one", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](3)}); !apierrors.IsForbidden(err) {
		t.Errorf("after the owner of the object refused its deletion: got %v", err)
	}
}

func TestASliceMayHaveVerbsOfAnotherForm(t *testing.T) {
	for _, test := range []struct {
		verbs any
		want  bool
	}{
		{nil, false}, {"delete", false}, {[]any{"delete"}, true}, {[]any{"delete", int64(1)}, false}, {map[string]any{"delete": true}, false},
		{[]any{map[string]any{"name": "delete"}}, false},
	} {
		e, u := endpointsOf(t, map[string]any{"endpoints": []any{map[string]any{"url": notes, "verbs": test.verbs}}})
		if at, deletes, err := e.URL(t.Context(), "library", slice); err != nil || at.String() != u || deletes != test.want {
			t.Errorf("with the verbs %v: got %v, %t, %v", test.verbs, at, deletes, err)
		}
	}
}

func TestConsumersGetTheCauseIfTheStatusOfASliceHasAnotherForm(t *testing.T) {
	for _, status := range []any{"a secret", map[string]any{"endpoints": "a secret"},
		map[string]any{"endpoints": []any{map[string]any{"url": map[string]any{"a": "secret"}}}}} {
		e, _ := endpointsOf(t, status)
		_, _, err := e.URL(t.Context(), "library", slice)
		if err == nil || !strings.Contains(err.Error(), "the status of its virtual storage, Slice books, cannot be decoded: ") ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("with the status %v: got %v", status, err)
		}
	}
}

// endpointsOf returns Endpoints of a slice with a status, and the URL that is allowed.
func endpointsOf(t *testing.T, status any) (*Endpoints, string) {
	t.Helper()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	e := newEndpoints(t, server, notes)
	allowed, err := ParseAllowed("root:library=" + notes)
	if err != nil {
		t.Fatal(err)
	}
	e.config.Allowed = []Allowed{allowed}
	client := e.config.Dynamic.Resource(sliceResource)
	stored, err := client.Get(t.Context(), "books", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stored.Object["status"] = status
	if _, err := client.Update(t.Context(), stored, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	return e, notes
}
