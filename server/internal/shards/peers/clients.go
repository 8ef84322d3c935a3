package peers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// maxAnswer is the maximum size of the response to a call.
const maxAnswer = 16 << 20

// Config of Clients.
type Config struct {
	// TLS has the certificate of this peer, and the authorities of the serving certificates of shards. Files are read again when they change.
	TLS rest.TLSClientConfig
	// URL returns the base URL of a shard, and false for an unknown one.
	URL   func(shard string) (string, bool)
	Clock clock.PassiveClock
}

// Clients call shards. All calls to a shard share connections. A shard that does not respond costs a caller no time: until it is tried
// again, calls fail at once.
type Clients struct {
	config     Config
	http       *http.Client
	breakers   breakers
	connecting connecting
}

// NewClients returns clients. It fails if the certificate cannot be read.
func NewClients(config Config) (*Clients, error) {
	client, err := rest.HTTPClientFor(&rest.Config{TLSClientConfig: config.TLS, QPS: -1})
	if err != nil {
		return nil, err
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Clients{
		config: config, http: client, breakers: breakers{clock: config.Clock, states: map[string]*breaker{}},
		connecting: connecting{clock: config.Clock, states: map[string]*connection{}},
	}, nil
}

// Unreachable is the error of a call that got no response.
type Unreachable struct {
	Shard string
	Err   error
}

// Error implements error.
func (u *Unreachable) Error() string {
	return fmt.Sprintf("shard %q does not respond: %v", u.Shard, u.Err)
}

// Unwrap returns the cause.
func (u *Unreachable) Unwrap() error { return u.Err }

// IsUnreachable reports whether an error says that a shard did not respond. Whether the call was executed is unknown.
func IsUnreachable(err error) bool {
	var unreachable *Unreachable
	return errors.As(err, &unreachable)
}

// Answers reports whether a call to a shard would be tried now.
func (c *Clients) Answers(shard string) bool {
	_, known := c.config.URL(shard)
	return known && c.breakers.closed(shard)
}

// Call sends a call to a shard, until ctx ends. The error is a Status of the shard, or an Unreachable.
func Call[Q, A any](ctx context.Context, c *Clients, shard, name string, in Q) (out A, err error) {
	body, err := json.Marshal(in)
	if err != nil {
		return out, err
	}
	response, err := c.send(ctx, shard, http.MethodPost, name, nil, body)
	if err != nil {
		return out, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err == nil && len(answer) > maxAnswer {
		err = fmt.Errorf("the response is larger than %d bytes", maxAnswer)
	}
	if err == nil {
		err = json.Unmarshal(answer, &out)
	}
	if err != nil {
		return out, &Unreachable{Shard: shard, Err: fmt.Errorf("reading the response to %s: %w", name, err)}
	}
	return out, nil
}

// Stream opens a stream of a shard, which ends with ctx. The caller closes it.
func (c *Clients) Stream(ctx context.Context, shard, name string, query url.Values) (io.ReadCloser, error) {
	response, err := c.send(ctx, shard, http.MethodGet, name, query, nil)
	if err != nil {
		return nil, err
	}
	return response.Body, nil
}

// send returns a successful response, whose body the caller closes.
func (c *Clients) send(ctx context.Context, shard, method, name string, query url.Values, body []byte) (*http.Response, error) {
	base, known := c.config.URL(shard)
	if !known {
		return nil, &Unreachable{Shard: shard, Err: errors.New("there is no Shard with this name in root")}
	}
	if !c.breakers.begin(shard) {
		return nil, &Unreachable{Shard: shard, Err: errors.New("recent calls failed; it is tried again in a moment")}
	}
	target := strings.TrimSuffix(base, "/") + Prefix + name
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	begun := c.config.Clock.Now()
	response, err := c.exchange(ctx, shard, method, target, body)
	if ctx.Err() != nil && c.config.Clock.Since(begun) < patience {
		c.breakers.end(shard, context.Canceled)
	} else {
		c.breakers.end(shard, err)
	}
	if err != nil {
		return nil, &Unreachable{Shard: shard, Err: err}
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		return nil, statusOf(response, shard, name)
	}
	return response, nil
}

// exchange sends a request, and returns the response of the shard.
func (c *Clients) exchange(ctx context.Context, shard, method, target string, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json")
	ctx, connected, err := c.connecting.begin(ctx, shard)
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(r.WithContext(ctx))
	connected(err)
	return response, err
}

// statusOf returns the error in a response.
func statusOf(response *http.Response, shard, name string) error {
	text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<16))
	status := metav1.Status{}
	if json.Unmarshal(text, &status) == nil && status.Kind == "Status" && status.Status == metav1.StatusFailure {
		return &apierrors.StatusError{ErrStatus: status}
	}
	return &Unreachable{Shard: shard, Err: fmt.Errorf("%s returned %s without a Status", name, response.Status)}
}
