package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"net/http"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kcplane/kcp/test/sharded"
)

// fedKinds are the paths of the resources that a shard reads in the cache server.
var fedKinds = []string{
	"admissionregistration.k8s.io/v1/mutatingadmissionpolicies", "admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings",
	"admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", "admissionregistration.k8s.io/v1/validatingadmissionpolicies",
	"admissionregistration.k8s.io/v1/validatingadmissionpolicybindings", "admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
	"apis.kcp.io/v1alpha1/apiconversions", "apis.kcp.io/v1alpha1/apiexportendpointslices", "apis.kcp.io/v1alpha1/apiresourceschemas",
	"apis.kcp.io/v1alpha2/apiexports", "cache.kcp.io/v1alpha1/clustercachedresources", "core.kcp.io/v1alpha1/logicalclusters",
	"core.kcp.io/v1alpha1/shards", "rbac.authorization.k8s.io/v1/clusterroles", "rbac.authorization.k8s.io/v1/clusterrolebindings",
	"tenancy.kcp.io/v1alpha1/workspaces", "tenancy.kcp.io/v1alpha1/workspaceauthenticationconfigurations",
	"tenancy.kcp.io/v1alpha1/workspacetypes",
}

// feeder is the client of a stand-in at the cache server.
type feeder struct {
	shard  string
	url    string
	client *http.Client
	fed    *fed
}

// fed are the figures of all feeders.
type fed struct {
	// ends are the ends of pages by the hash of the page as it was sent, which is compressed. Shards decompress each one; here, one feeder
	// does so for all, because all of them share two processors with the cache server.
	ends sync.Map
	seed maphash.Seed
	// bytes were read in lists, and events in watches, of which some are bookmarks. heard is the number of events of the measured change.
	bytes, events, bookmarks, heard atomic.Int64
	// watches are open.
	watches atomic.Int64
}

// newFeeder returns the client of a shard, with its own connections.
func newFeeder(pki *sharded.PKI, shard, url string, f *fed) (*feeder, error) {
	certificate, err := pki.Peer(sharded.KindShard, shard)
	if err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(certificate.Cert, certificate.Key)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: pki.Serving.Pool(), Certificates: []tls.Certificate{pair}}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, DisableCompression: true} // see fed.ends
	return &feeder{shard: shard, url: url, client: &http.Client{Transport: transport}, fed: f}, nil
}

func (f *feeder) do(ctx context.Context, method, path string, body any) (*http.Response, error) {
	content, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	for {
		request, err := http.NewRequestWithContext(ctx, method, f.url+"/services/cache/shards/"+path, bytes.NewReader(content))
		if err != nil {
			return nil, err
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Accept-Encoding", "gzip")
		response, err := f.client.Do(request)
		if err != nil {
			return nil, err
		}
		switch response.StatusCode {
		case http.StatusOK, http.StatusCreated:
			return response, nil
		case http.StatusTooManyRequests: // as client-go does
			_ = response.Body.Close()
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(time.Second):
			}
			continue
		}
		text, _ := io.ReadAll(io.LimitReader(response.Body, 300))
		_ = response.Body.Close()
		return nil, fmt.Errorf("%s %s: %s %s", method, path, response.Status, text)
	}
}

// offer writes an object of a logical cluster of the shard.
func (f *feeder) offer(ctx context.Context, method, cluster, resource, kind, name string, version int, spec map[string]any) error {
	group, _, _ := cutLast(resource)
	path := f.shard + "/clusters/" + cluster + "/apis/" + resource
	if method == http.MethodPut {
		path += "/" + name
	}
	response, err := f.do(ctx, method, path, map[string]any{
		"apiVersion": group, "kind": kind, "spec": spec,
		"metadata": map[string]any{"name": name, "annotations": map[string]string{
			"cache.kcp.io/original-resource-version": fmt.Sprint(version), "cache.kcp.io/original-resource-UID": cluster + "-" + name,
			"internal.kcp.io/incarnation": "incarnation-of-" + f.shard, "internal.kcp.io/leader-term": "1",
		}},
	})
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	return err
}

func cutLast(resource string) (before, after string, found bool) {
	i := bytes.LastIndexByte([]byte(resource), '/')
	return resource[:i], resource[i+1:], true
}

var (
	continueToken = regexp.MustCompile(`"continue":"([^"]+)"`)
	listVersion   = regexp.MustCompile(`"metadata":\{[^{}]*"resourceVersion":"(\d+)"[^{}]*\}\}?\s*$`)
)

// list reads all objects of a resource of all shards, and returns the resource version. It reads in pages as shards do.
func (f *feeder) list(ctx context.Context, resource string) (version string, err error) {
	query := "?limit=500&resourceVersion=0"
	for {
		response, err := f.do(ctx, http.MethodGet, "*/clusters/*/apis/"+resource+query, nil)
		if err != nil {
			return "", err
		}
		last, err := f.end(response)
		if err != nil {
			return "", err
		}
		found := listVersion.FindSubmatch(last)
		if found == nil {
			return "", fmt.Errorf("the list of %s has no resource version at its end: %s", resource, last)
		}
		more := continueToken.FindSubmatch(last)
		if more == nil {
			return string(found[1]), nil
		}
		query = "?limit=500&continue=" + string(more[1])
	}
}

// end returns the end of a page.
func (f *feeder) end(response *http.Response) ([]byte, error) {
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	f.fed.bytes.Add(int64(len(content)))
	hash := maphash.Bytes(f.fed.seed, content)
	if known, ok := f.fed.ends.Load(hash); ok {
		return known.([]byte), nil
	}
	var plain io.Reader = bytes.NewReader(content)
	if response.Header.Get("Content-Encoding") == "gzip" {
		if plain, err = gzip.NewReader(plain); err != nil {
			return nil, err
		}
	}
	last := &tail{}
	if _, err := io.Copy(last, plain); err != nil {
		return nil, err
	}
	f.fed.ends.Store(hash, last.kept)
	return last.kept, nil
}

// tail keeps the end of what is written.
type tail struct{ kept []byte }

func (t *tail) Write(p []byte) (int, error) {
	const size = 1 << 10
	t.kept = append(t.kept, p[max(0, len(p)-size):]...)
	t.kept = t.kept[max(0, len(t.kept)-size):]
	return len(p), nil
}

// follow lists a resource, and watches it until ctx ends. listed is called when the watch is open.
func (f *feeder) follow(ctx context.Context, resource string, listed func()) error {
	for ctx.Err() == nil {
		version, err := f.list(ctx, resource)
		if err != nil {
			return err
		}
		response, err := f.do(ctx, http.MethodGet,
			"*/clusters/*/apis/"+resource+"?watch=true&allowWatchBookmarks=true&timeoutSeconds=3600&resourceVersion="+version, nil)
		if err != nil {
			return err
		}
		f.fed.watches.Add(1)
		listed()
		listed = func() {}
		lines := bufio.NewReader(response.Body)
		for {
			line, err := lines.ReadSlice('\n')
			if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
				break
			}
			f.hear(line)
		}
		f.fed.watches.Add(-1)
		_ = response.Body.Close()
	}
	return nil
}

var (
	bookmarkPrefix = []byte(`{"type":"BOOKMARK"`)
	eventPrefix    = []byte(`{"type":"`)
	measuredChange = []byte(`"measured-change`)
)

func (f *feeder) hear(line []byte) {
	switch {
	case bytes.HasPrefix(line, bookmarkPrefix):
		f.fed.bookmarks.Add(1)
	case bytes.HasPrefix(line, eventPrefix):
		f.fed.events.Add(1)
		if bytes.Contains(line, measuredChange) {
			f.fed.heard.Add(1)
		}
	}
}

// followAll follows all resources, and returns when every watch is open. It reports errors to failed until ctx ends.
func (f *feeder) followAll(ctx context.Context, group *errgroup.Group, listed func()) {
	for _, resource := range fedKinds {
		group.Go(func() error {
			err := f.follow(ctx, resource, listed)
			if ctx.Err() != nil {
				return nil
			}
			return err
		})
	}
}
