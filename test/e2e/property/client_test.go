package property

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// client is one of many concurrent clients. Each has its own connections.
type client struct {
	http    *http.Client
	server  string // URL without a path
	secrets *secrets
}

// newClient returns a client of the server at base, with the CA of config.
func newClient(config *rest.Config, base string, s *secrets) (*client, error) {
	trust, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	return &client{http: &http.Client{Transport: &http.Transport{TLSClientConfig: trust, ForceAttemptHTTP2: true}}, server: base, secrets: s}, nil
}

// request is a request of a client to a tenant.
type request struct {
	method, path string
	query        url.Values
	body         any    // encoded as JSON, unless nil
	contentType  string // application/json if empty
	accept       string // application/json if empty
	as           identity
	knows        []string // names of other clusters that the request contains
}

// answer is the response of the server.
type answer struct {
	code   int
	body   []byte
	object map[string]any // nil if the body is not a JSON object
}

func (a answer) String() string { return fmt.Sprintf("%d %.600s", a.code, a.body) }

// items returns the items of a list.
func (a answer) items() []any {
	items, _ := a.object["items"].([]any)
	return items
}

// leak is the error that a response contains data of another tenant.
type leak struct {
	what []string
	in   string
}

func (l leak) Error() string {
	return fmt.Sprintf("the response contains %s: %s", strings.Join(l.what, ", "), l.in)
}

// open sends a request, and returns the response before its body is read. It retries if the server is overloaded.
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

// do sends a request and returns the whole response, which must not contain data of other tenants.
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
	_ = json.Unmarshal(a.body, &a.object) // other formats are only searched for markers
	if found := c.secrets.foreign(t.reader(r.knows...), response.Header, a.body); len(found) > 0 {
		return a, leak{found, a.String()}
	}
	return a, nil
}

// want sends a request whose response must have one of the codes. It repeats a request that changes nothing if the storage of the server
// responds too late, unless the codes allow that. Whether another one was executed is not known then.
func (c *client) want(ctx context.Context, t *tenant, r request, codes ...int) (answer, error) {
	a, err := c.do(ctx, t, r)
	for err == nil && a.isLate() && !slices.Contains(codes, a.code) && r.changesNothing(codes) && ctx.Err() == nil {
		a, err = c.do(ctx, t, r)
	}
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

// isLate reports whether the storage of the server has responded too late. The server also says so of a revision that its storage does not
// have yet, and never will if the revision is that of another storage.
func (a answer) isLate() bool {
	return a.code == http.StatusGatewayTimeout && !bytes.Contains(a.body, []byte(metav1.CauseTypeResourceVersionTooLarge))
}

// changesNothing reports whether a request is without an effect if its response has one of the codes.
func (r request) changesNothing(codes []int) bool {
	return r.method == http.MethodGet || r.query.Has("dryRun") || slices.Min(codes) >= http.StatusBadRequest
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
