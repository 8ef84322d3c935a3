package kcptest

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// Raw sends a request that client libraries would not send, and returns the code and the body of the response. path is sent unchanged,
// and header takes precedence over the user's credentials.
func (c *Cluster) Raw(t testing.TB, user User, method, path string, header http.Header, body string) (int, []byte) {
	t.Helper()
	client := c.server.client(t, Anonymous)
	request, err := http.NewRequestWithContext(Context(t), method, c.server.baseOf(path), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	raw, query, _ := strings.Cut(path, "?")
	unescaped, err := url.PathUnescape(raw)
	if err != nil {
		t.Fatal(err)
	}
	request.URL.Path, request.URL.RawPath, request.URL.RawQuery = unescaped, raw, query
	if user.Token != "" {
		request.Header.Set("Authorization", "Bearer "+user.Token)
	}
	for name, values := range header {
		if len(values) > 0 && values[0] != "" {
			request.Header[name] = values
		}
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, content
}
