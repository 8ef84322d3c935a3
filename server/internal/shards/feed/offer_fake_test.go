package feed

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kcplane/kcp/server/internal/cacheserver"
)

// fakeCache is a cache server in memory. Paths are those after /services/cache.
type fakeCache struct {
	t      *testing.T
	server *httptest.Server

	mu       sync.Mutex
	instance string
	version  int
	objects  map[string]map[string]any
	down     bool
	// refused are the parts of paths of which writes fail.
	refused []string
	// writes are the methods and paths of all writes, in order.
	writes []string
	// lists is the number of complete lists of APIExports of one shard.
	lists    int
	watchers map[chan map[string]any]string
	// wrote receives a value after every write.
	wrote chan struct{}
	// onWrite is called before every write.
	onWrite func()
}

func newFakeCache(t *testing.T) *fakeCache {
	f := &fakeCache{
		t: t, instance: "one", objects: map[string]map[string]any{}, watchers: map[chan map[string]any]string{}, wrote: make(chan struct{}, 1),
	}
	f.server = httptest.NewServer(f)
	t.Cleanup(func() {
		f.server.CloseClientConnections()
		f.server.Close()
	})
	return f
}

func (f *fakeCache) config() *rest.Config {
	return &rest.Config{Host: f.server.URL + "/services/cache"}
}

func (f *fakeCache) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/services/cache")
	if r.URL.Query().Get("watch") != "" {
		f.watch(w, r, path)
		return
	}
	body, _ := io.ReadAll(r.Body)
	if f.onWrite != nil && r.Method != http.MethodGet {
		f.onWrite()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	w.Header().Set(cacheserver.InstanceHeader, f.instance)
	w.Header().Set("Content-Type", "application/json")
	answer, err := f.answer(r, path, body)
	if err != nil {
		status := apierrors.NewInternalError(err).ErrStatus
		var s *apierrors.StatusError
		if errors.As(err, &s) {
			status = s.ErrStatus
		}
		status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		w.WriteHeader(int(status.Code))
		_ = json.NewEncoder(w).Encode(status)
		return
	}
	_ = json.NewEncoder(w).Encode(answer)
}

var anything = schema.GroupResource{Resource: "objects"}

func (f *fakeCache) answer(r *http.Request, path string, body []byte) (any, error) {
	if f.down {
		return nil, apierrors.NewServiceUnavailable("down")
	}
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if r.Method != http.MethodGet {
		select {
		case f.wrote <- struct{}{}:
		default:
		}
		f.writes = append(f.writes, r.Method+" "+path)
		if slices.ContainsFunc(f.refused, func(part string) bool { return strings.Contains(string(body)+path, part) }) {
			return nil, apierrors.NewBadRequest("refused")
		}
	}
	stored, exists := f.objects[path]
	switch {
	case r.Method == http.MethodGet && len(parts) == 8:
		return f.list(r, parts), nil
	case r.Method == http.MethodPost:
		u := decode(f.t, body)
		path += "/" + u.GetName()
		if _, exists := f.objects[path]; exists {
			return nil, apierrors.NewAlreadyExists(anything, u.GetName())
		}
		return f.put(path, u, "uid-"+strconv.Itoa(f.version)), nil
	case !exists:
		return nil, apierrors.NewNotFound(anything, path)
	case r.Method == http.MethodGet:
		return stored, nil
	}
	live := unstructured.Unstructured{Object: stored}
	if r.Method == http.MethodDelete {
		options := metav1.DeleteOptions{}
		if err := json.Unmarshal(body, &options); err != nil {
			return nil, err
		}
		if string(*options.Preconditions.UID) != string(live.GetUID()) || *options.Preconditions.ResourceVersion != live.GetResourceVersion() {
			return nil, apierrors.NewConflict(anything, path, fmt.Errorf("precondition"))
		}
		delete(f.objects, path)
		f.notify("DELETED", stored)
		return map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Success"}, nil
	}
	u := decode(f.t, body)
	if u.GetUID() != live.GetUID() || u.GetResourceVersion() != live.GetResourceVersion() {
		return nil, apierrors.NewConflict(anything, path, fmt.Errorf("changed"))
	}
	return f.put(path, u, string(live.GetUID())), nil
}

func decode(t *testing.T, body []byte) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(body); err != nil {
		t.Error(err)
	}
	return u
}

// put stores an object; f.mu is held.
func (f *fakeCache) put(path string, u *unstructured.Unstructured, uid string) map[string]any {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	f.version++
	_ = unstructured.SetNestedField(u.Object, uid, "metadata", "uid")
	u.SetResourceVersion(strconv.Itoa(f.version))
	u.SetCreationTimestamp(metav1.Unix(int64(f.version), 0))
	annotations := u.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[cacheserver.Shard], annotations["kcp.io/cluster"] = parts[1], parts[3]
	u.SetAnnotations(annotations)
	kind := "ADDED"
	if f.objects[path] != nil {
		kind = "MODIFIED"
	}
	f.objects[path] = u.Object
	f.notify(kind, u.Object)
	return u.Object
}

// offer stores an object as another shard would.
func (f *fakeCache) offer(path string, obj map[string]any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.put(path, &unstructured.Unstructured{Object: obj}, "uid-"+strconv.Itoa(f.version))
}

func (f *fakeCache) list(r *http.Request, parts []string) map[string]any {
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	if limit != 1 && parts[7] == "apiexports" {
		f.lists++
	}
	items, names := []any{}, slices.Sorted(maps.Keys(f.objects))
	metadata := map[string]any{"resourceVersion": strconv.Itoa(f.version)}
	for _, path := range names {
		of := strings.Split(strings.Trim(path, "/"), "/")
		if (parts[1] != "*" && of[1] != parts[1]) || !slices.Equal(parts[4:], of[4:8]) || path <= r.URL.Query().Get("continue") {
			continue
		}
		if items = append(items, f.objects[path]); len(items) == 2 { // the cache server has pages of its own size
			metadata["continue"] = path
			break
		}
	}
	return map[string]any{"kind": "List", "apiVersion": parts[5] + "/" + parts[6], "metadata": metadata, "items": items}
}

func (f *fakeCache) watch(w http.ResponseWriter, r *http.Request, path string) {
	events := make(chan map[string]any, 1000)
	listed, err := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	if err != nil {
		f.t.Errorf("a watch without a version: %v", err)
	}
	f.mu.Lock()
	resource := strings.Split(strings.Trim(path, "/"), "/")[7]
	f.watchers[events] = resource
	for _, name := range slices.Sorted(maps.Keys(f.objects)) { // what was put after the list
		u := unstructured.Unstructured{Object: f.objects[name]}
		if version, _ := strconv.Atoi(u.GetResourceVersion()); strings.Split(name, "/")[8] == resource && version > listed {
			events <- map[string]any{"type": "ADDED", "object": u.DeepCopy().Object}
		}
	}
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.watchers, events)
	}()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case event := <-events:
			_ = json.NewEncoder(w).Encode(event)
			w.(http.Flusher).Flush()
		}
	}
}

func (f *fakeCache) notify(kind string, obj map[string]any) {
	u := unstructured.Unstructured{Object: obj}
	for events, resource := range f.watchers {
		if strings.HasPrefix(resource, strings.ToLower(u.GetKind())) {
			events <- map[string]any{"type": kind, "object": u.DeepCopy().Object}
		}
	}
}

// paths returns the paths of all objects of a shard.
func (f *fakeCache) paths(shard string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var found []string
	for _, path := range slices.Sorted(maps.Keys(f.objects)) {
		if of, ok := strings.CutPrefix(path, "/shards/"+shard+"/clusters/"); ok {
			found = append(found, of)
		}
	}
	return found
}

// change changes an object in the cache server.
func (f *fakeCache) change(path string, change func(u *unstructured.Unstructured)) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	obj := f.objects["/shards/here/clusters/"+path]
	if obj == nil {
		f.t.Fatalf("the cache server has no %s", path)
	}
	u := (&unstructured.Unstructured{Object: obj}).DeepCopy()
	change(u)
	f.put("/shards/here/clusters/"+path, u, string(u.GetUID()))
}

// get returns an object of this shard.
func (f *fakeCache) get(path string) *unstructured.Unstructured {
	f.mu.Lock()
	defer f.mu.Unlock()
	obj := f.objects["/shards/here/clusters/"+path]
	if obj == nil {
		return nil
	}
	return (&unstructured.Unstructured{Object: obj}).DeepCopy()
}

// takeWrites returns the writes since the last call, without the part of the path that all have.
func (f *fakeCache) takeWrites() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var writes []string
	for _, write := range f.writes {
		writes = append(writes, strings.Replace(write, "/shards/here/clusters/", "", 1))
	}
	f.writes = nil
	return writes
}

func (f *fakeCache) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}
