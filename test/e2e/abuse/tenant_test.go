package abuse

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// target is the address of a server, and the CA of its certificate.
type target struct {
	URL string
	CA  []byte
}

func (t target) tls(protocols ...string) *tls.Config {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(t.CA)
	return &tls.Config{RootCAs: roots, NextProtos: protocols}
}

// connections returns an HTTP client with separate connections.
func (t target) connections() *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: t.tls(), ForceAttemptHTTP2: true, DisableCompression: true, MaxIdleConnsPerHost: 1}}
}

// client sends requests of one user to one logical cluster. It does not retry, so that every response is counted.
type client struct {
	// url is the URL of the cluster, or of the server.
	url, token string
	http       *http.Client
	// answered is called for every response, with its code, or with 0 and the error if there is no response.
	answered func(code int, err error, response *http.Response)
}

// noAnswer is the code of a request whose connection was closed without a response.
const noAnswer = 0

// mediaType returns the header for a body of that type.
func mediaType(of string) http.Header { return http.Header{"Content-Type": {of}} }

// request returns a request of the user.
func (c *client) request(ctx context.Context, method, path string, body io.Reader, header http.Header) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.url+path, body)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json")
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	for name, values := range header {
		r.Header[name] = values
	}
	return r, nil
}

// open sends a request, and returns the response before its body is read.
func (c *client) open(ctx context.Context, method, path, body string, header http.Header) (*http.Response, error) {
	r, err := c.request(ctx, method, path, strings.NewReader(body), header)
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(r)
	switch {
	case c.answered == nil:
	case err == nil:
		c.answered(response.StatusCode, nil, response)
	case ctx.Err() == nil:
		c.answered(noAnswer, err, nil)
	}
	return response, err
}

// send sends a request, and returns the code and the body of the response.
func (c *client) send(ctx context.Context, method, path, body string, header http.Header) (int, []byte, error) {
	response, err := c.open(ctx, method, path, body, header)
	if err != nil {
		return noAnswer, nil, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return response.StatusCode, content, err
}

func (c *client) get(ctx context.Context, path string) (int, []byte, error) {
	return c.send(ctx, http.MethodGet, path, "", nil)
}

func (c *client) post(ctx context.Context, path, body string) (int, []byte, error) {
	return c.send(ctx, http.MethodPost, path, body, nil)
}

func (c *client) delete(ctx context.Context, path string) (int, []byte, error) {
	return c.send(ctx, http.MethodDelete, path, "", nil)
}

// status writes the status of an object.
func (c *client) status(ctx context.Context, path, status string) error {
	return c.must(ctx, http.MethodPatch, path+"/status", `{"status":`+status+`}`, mediaType("application/merge-patch+json"))
}

// must repeats a request until it succeeds, because permissions and definitions take effect with a delay.
func (c *client) must(ctx context.Context, method, path, body string, header http.Header) error {
	return eventually(ctx, func() error {
		code, content, err := c.send(ctx, method, path, body, header)
		if err == nil && code >= 300 && (method != http.MethodPost || code != http.StatusConflict || !bytes.Contains(content, []byte("AlreadyExists"))) {
			err = fmt.Errorf("%s %s returned %d %.300s", method, path, code, content)
		}
		return err
	})
}

// create posts objects in turn. The arguments are pairs of a path and a manifest.
func (c *client) create(ctx context.Context, pathsAndObjects ...string) error {
	for i := 0; i < len(pathsAndObjects); i += 2 {
		if err := c.must(ctx, http.MethodPost, pathsAndObjects[i], pathsAndObjects[i+1], mediaType("application/yaml")); err != nil {
			return err
		}
	}
	return nil
}

// field waits until a string field of an object has the value want, or any value if want is empty, and returns it.
func (c *client) field(ctx context.Context, path, want string, names ...string) (string, error) {
	got := ""
	err := eventually(ctx, func() error {
		code, content, err := c.get(ctx, path)
		if err != nil {
			return err
		}
		var object any
		if err := json.Unmarshal(content, &object); err != nil {
			return fmt.Errorf("%s returned %d %.300s", path, code, content)
		}
		for _, name := range names {
			fields, _ := object.(map[string]any)
			object = fields[name]
		}
		if got, _ = object.(string); got == "" || (want != "" && got != want) {
			return fmt.Errorf("%s has %v %q: %.500s", path, names, got, content)
		}
		return nil
	})
	return got, err
}

const (
	workspacePath = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
	crdPath       = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	configMapPath = "/api/v1/namespaces/default/configmaps"
)

// workspace creates a workspace in the cluster, and returns a client for it once it is ready.
func (c *client) workspace(ctx context.Context, name string, connections *http.Client) (*client, error) {
	return c.workspaceOf(ctx, name, "", connections)
}

// workspaceOf does the same for a workspace with a type. If it is empty, the type is that of the parent.
func (c *client) workspaceOf(ctx context.Context, name, workspaceType string, connections *http.Client) (*client, error) {
	if workspaceType != "" {
		workspaceType = fmt.Sprintf(`, "spec":{"type":{"name":%q}}`, workspaceType)
	}
	if err := c.create(ctx, workspacePath, fmt.Sprintf(`{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace","metadata":{"name":%q}%s}`, name, workspaceType)); err != nil {
		return nil, err
	}
	if _, err := c.field(ctx, workspacePath+"/"+name, "Ready", "status", "phase"); err != nil {
		return nil, err
	}
	child := &client{url: c.url + ":" + name, token: c.token, http: connections}
	return child, child.must(ctx, http.MethodGet, "/api/v1/namespaces/default", "", nil)
}

// patience limits how long eventually waits.
const patience = 60 * time.Second

// eventually calls f until it succeeds.
func eventually(ctx context.Context, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-ticker.C:
		}
	}
}

// configMap returns a ConfigMap with a value of a size.
func configMap(name string, size int) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"value":%q}}`, name, strings.Repeat("x", size))
}
