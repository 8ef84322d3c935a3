package builtin

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	api "k8s.io/kubernetes/pkg/apis/core"
)

// codecs are those of the server, which encode one object of a list after the other.
var codecs = serializer.NewCodecFactory(legacyscheme.Scheme, serializer.WithStreamingCollectionEncodingToJSON(),
	serializer.WithStreamingCollectionEncodingToProtobuf())

// listOf returns a list of ConfigMaps of one KiB.
func listOf(n int) *api.ConfigMapList {
	list := &api.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
	for i := range n {
		list.Items = append(list.Items, api.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("one-", i)}, Data: map[string]string{"a": strings.Repeat("x", 1024)},
		})
	}
	return list
}

// respond returns the response with an object to a client that accepts gzip.
func respond(s runtime.NegotiatedSerializer, mediaType string, obj runtime.Object) *httptest.ResponseRecorder {
	request := httptest.NewRequest(http.MethodGet, "/api/v1/configmaps", nil)
	request.Header.Set("Accept", mediaType)
	request.Header.Set("Accept-Encoding", "gzip")
	response := httptest.NewRecorder()
	responsewriters.WriteObjectNegotiated(s, negotiation.DefaultEndpointRestrictions, corev1.SchemeGroupVersion, response, request,
		http.StatusOK, obj, false)
	return response
}

func TestResponsesAreTheSameWithCollectedLists(t *testing.T) {
	sizes := map[string]int{"empty": 0, "small": 3, "below the size that is compressed": 100, "large": 300}
	for name, n := range sizes {
		for _, mediaType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
			want := respond(codecs, mediaType, listOf(n))
			got := respond(listEncoding{codecs}, mediaType, listOf(n))
			if !bytes.Equal(got.Body.Bytes(), want.Body.Bytes()) || got.Header().Get("Content-Encoding") != want.Header().Get("Content-Encoding") {
				t.Errorf("%s list as %s: got %d bytes %v, want %d bytes %v", name, mediaType,
					got.Body.Len(), got.Header(), want.Body.Len(), want.Header())
			}
		}
	}
	one := &listOf(1).Items[0]
	if got, want := respond(listEncoding{codecs}, runtime.ContentTypeJSON, one), respond(codecs,
		runtime.ContentTypeJSON, one); !bytes.Equal(got.Body.Bytes(), want.Body.Bytes()) {
		t.Errorf("got %s, want %s", got.Body, want.Body)
	}
}

func TestAListIsEncodedWithoutBuffersThatGrow(t *testing.T) {
	list := listOf(100)
	encoded := func(s runtime.NegotiatedSerializer) int64 {
		return testing.Benchmark(func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				respond(s, runtime.ContentTypeProtobuf, list)
			}
		}).AllocedBytesPerOp()
	}
	before, after := encoded(codecs), encoded(listEncoding{codecs})
	if after > before*2/3 {
		t.Errorf("a response allocates %d bytes, and %d without listEncoding", after, before)
	}
}

// writes records the sizes of writes, which fail after the given number of them.
type writes struct {
	sizes []int
	fails int
}

var errWrite = errors.New("the client is gone")

func (w *writes) Write(p []byte) (int, error) {
	if len(w.sizes) == w.fails {
		return 0, errWrite
	}
	w.sizes = append(w.sizes, len(p))
	return len(p), nil
}

func TestWritesOfACollector(t *testing.T) {
	for name, c := range map[string]struct {
		written []int
		want    string
	}{
		"less than the buffer is one write":          {[]int{4, 1000, 1000}, "[2004]"},
		"the rest follows as it is written":          {[]int{4, collected, 5, 6}, fmt.Sprint([]int{collected, 4, 5, 6})},
		"a full buffer waits for the end":            {[]int{collected}, fmt.Sprint([]int{collected})},
		"a large object does not leave a small part": {[]int{100, 3 * collected}, fmt.Sprint([]int{collected, 2*collected + 100})},
	} {
		to := &writes{fails: 100}
		err := collect(&corev1.ConfigMapList{}, to, func(w io.Writer) error {
			for _, n := range c.written {
				if got, err := w.Write(make([]byte, n)); got != n || err != nil {
					t.Errorf("%s: wrote %d of %d: %v", name, got, n, err)
				}
			}
			return nil
		})
		if got := fmt.Sprint(to.sizes); err != nil || got != c.want {
			t.Errorf("%s: got %s, %v, want %s", name, got, err, c.want)
		}
	}
}

func TestAFailedEncodingWritesNothing(t *testing.T) {
	to := &writes{fails: 100}
	err := collect(&corev1.ConfigMapList{}, to, func(w io.Writer) error {
		_, _ = w.Write([]byte("begin"))
		return io.ErrUnexpectedEOF
	})
	if err == nil || len(to.sizes) > 0 {
		t.Errorf("got %v, and writes of %v", err, to.sizes)
	}
	for fails := range 2 {
		err := collect(&corev1.ConfigMapList{}, &writes{fails: fails}, func(w io.Writer) error {
			_, err := w.Write(make([]byte, 2*collected))
			return err
		})
		if !errors.Is(err, errWrite) {
			t.Errorf("got %v if write %d fails", err, fails)
		}
	}
}
