package bodylimit

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// read returns what a handler reads of body, in pieces of one byte or as a whole.
func read(body []byte, contentType string, pieces bool) ([]byte, error) {
	var got []byte
	var err error
	h := WithText(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got, err = io.ReadAll(r.Body) }))
	var reader io.Reader = bytes.NewReader(body)
	if pieces {
		reader = iotest.OneByteReader(reader)
	}
	request := httptest.NewRequest(http.MethodPost, "/", reader)
	request.Header.Set("Content-Type", contentType)
	h.ServeHTTP(httptest.NewRecorder(), request)
	return got, err
}

func TestOnlyTextMustBeUTF8(t *testing.T) {
	for contentType, refused := range map[string]bool{
		"":                                    true,
		"application/json":                    true,
		"application/json; charset=utf-8":     true,
		"application/merge-patch+json":        true,
		"application/yaml":                    true,
		"application/apply-patch+yaml":        true,
		"application/vnd.kubernetes.protobuf": false,
		"application/cbor":                    false,
	} {
		if _, err := read([]byte("\xff"), contentType, false); apierrors.IsBadRequest(err) != refused {
			t.Errorf("%q: %v", contentType, err)
		}
	}
}

func FuzzWhatIsReadIsWhatWasSent(f *testing.F) {
	for _, seed := range []string{"", "{}", "häß", "日本語", "𝄞", "\xff", "a\xc3", "\xe6\x97", "\xed\xa0\x80", strings.Repeat("é", 700)} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		for _, pieces := range []bool{false, true} {
			got, err := read(sent, "application/json", pieces)
			if utf8.Valid(sent) != (err == nil) {
				t.Fatalf("%q in pieces (%t): %v", sent, pieces, err)
			}
			if err == nil && !bytes.Equal(got, sent) {
				t.Fatalf("%q was read as %q", sent, got)
			}
		}
	})
}
