package property

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// client is one of many that are used at once. Each has connections of its own.
type client struct {
	http    *http.Client
	server  string // URL without a path
	secrets *secrets
}

// newClient returns a client of the server at base, which trusts what config trusts.
func newClient(config *rest.Config, base string, s *secrets) (*client, error) {
	trust, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	return &client{http: &http.Client{Transport: &http.Transport{TLSClientConfig: trust, ForceAttemptHTTP2: true}}, server: base, secrets: s}, nil
}

// request is what a client asks of a tenant.
type request struct {
	method, path string
	query        url.Values
	body         any    // encoded as JSON, unless nil
	contentType  string // application/json if empty
	accept       string // application/json if empty
	as           identity
	knows        []string // names of other clusters that the request tells
}

// answer is what the server sent.
type answer struct {
	code   int
	body   []byte
	object map[string]any // nil if the body is not a JSON object
}

func (a answer) String() string { return fmt.Sprintf("%d %.600s", a.code, a.body) }

// items of a list.
func (a answer) items() []any {
	items, _ := a.object["items"].([]any)
	return items
}

// leak is an answer that contains what is another tenant's.
type leak struct {
	what []string
	in   string
}

func (l leak) Error() string {
	return fmt.Sprintf("the answer contains %s: %s", strings.Join(l.what, ", "), l.in)
}

// open sends a request, and returns the answer with its body to be read. An overloaded server is asked again.
func (c *client) open(ctx context.Context, t *tenant, r request) (*http.Response, error) {
	var body []byte
	if r.body != nil {
		var err error
		if body, err = json.Marshal(r.body); err != nil {
			return nil, err
		}
	}
	for {
		q, err := http.NewRequestWithContext(ctx, r.method, c.server+"/clusters/"+t.name+r.path+"?"+r.query.Encode(), bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		q.Header.Set("Content-Type", or(r.contentType, "application/json"))
		q.Header.Set("Accept", or(r.accept, "application/json"))
		q.Header.Set("User-Agent", fieldManager)
		if r.as.token != "" {
			q.Header.Set("Authorization", "Bearer "+r.as.token)
		}
		response, err := c.http.Do(q)
		if err != nil || response.StatusCode != http.StatusTooManyRequests {
			return response, err
		}
		_ = response.Body.Close()
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// do sends a request and returns the whole answer, which must contain nothing of other tenants.
func (c *client) do(ctx context.Context, t *tenant, r request) (answer, error) {
	response, err := c.open(ctx, t, r)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	a := answer{code: response.StatusCode}
	if a.body, err = io.ReadAll(response.Body); err != nil {
		return a, err
	}
	_ = json.Unmarshal(a.body, &a.object) // other formats are only searched
	if found := c.secrets.foreign(t.reader(r.knows...), response.Header, a.body); len(found) > 0 {
		return a, leak{found, a.String()}
	}
	return a, nil
}

// want sends a request whose answer must have one of the codes.
func (c *client) want(ctx context.Context, t *tenant, r request, codes ...int) (answer, error) {
	a, err := c.do(ctx, t, r)
	if err != nil {
		return a, fmt.Errorf("%s as %s: %w", r, r.as.name, err)
	}
	for _, code := range codes {
		if a.code == code {
			return a, nil
		}
	}
	return a, fmt.Errorf("%s as %s: want %v, got %s", r, r.as.name, codes, a)
}

func (r request) String() string {
	sent, _ := json.Marshal(r.body)
	return fmt.Sprintf("%s %s?%s %s", r.method, r.path, r.query.Encode(), sent)
}

func or(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}
