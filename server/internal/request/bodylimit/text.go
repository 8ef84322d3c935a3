// Package bodylimit refuses requests whose content would change when it is stored, and requests with more values or requirements than the
// server can handle for one request, whatever their size in bytes.
package bodylimit

import (
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// WithText refuses JSON and YAML that is not UTF-8. Decoders would replace invalid characters, and the server would store another object
// than the client sent. It also refuses bodies with too many values, including protobuf.
func WithText(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil && r.Body != http.NoBody && isText(r.Header.Get("Content-Type")) {
			read := *r
			read.Body = &text{ReadCloser: r.Body}
			if isYAML(r.Header.Get("Content-Type")) {
				read.Body = &yamlBody{ReadCloser: read.Body}
			} else {
				read.Body = &measured{ReadCloser: read.Body}
			}
			r = &read
		}
		if r.Body != nil && r.Body != http.NoBody && isProtobuf(r.Header.Get("Content-Type")) {
			read := *r
			read.Body = &protobufBody{ReadCloser: r.Body}
			r = &read
		}
		next.ServeHTTP(w, r)
	})
}

// isText reports whether a body is JSON or YAML. A body without a content type is JSON.
func isText(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err != nil || strings.HasSuffix(media, "json") || strings.HasSuffix(media, "yaml")
}

func isYAML(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && strings.HasSuffix(media, "yaml")
}

// text is a body that fails at the first invalid UTF-8.
type text struct {
	io.ReadCloser
	begun [utf8.UTFMax]byte // the beginning of a character whose end is not read yet
	n     int               // number of bytes in begun
}

func (t *text) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	if !t.valid(p[:n]) || (err == io.EOF && t.n > 0) {
		return 0, apierrors.NewBadRequest("the body of the request is not UTF-8, as JSON and YAML have to be")
	}
	return n, err
}

// valid reports whether p continues valid text, and remembers an incomplete character at its end.
func (t *text) valid(p []byte) bool {
	for t.n > 0 && len(p) > 0 {
		t.begun[t.n] = p[0]
		t.n++
		p = p[1:]
		if utf8.FullRune(t.begun[:t.n]) {
			if r, size := utf8.DecodeRune(t.begun[:t.n]); r == utf8.RuneError && size == 1 {
				return false
			}
			t.n = 0
		}
	}
	end := len(p)
	for i := 1; i < utf8.UTFMax && i <= len(p); i++ {
		if utf8.RuneStart(p[len(p)-i]) {
			if !utf8.FullRune(p[len(p)-i:]) {
				end = len(p) - i
			}
			break
		}
	}
	t.n += copy(t.begun[t.n:], p[end:])
	return utf8.Valid(p[:end])
}
