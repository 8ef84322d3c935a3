package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A stand-in serves the tree stream as a shard does: frames with their length before them, of messages with a tag before each. The package
// server/internal/shards/tree describes the format.
const (
	tagHello byte = iota + 1
	tagEnd
	tagBookmark
	tagEdge
	_
	tagCluster
	_
	tagShard
)

const (
	standinFrame    = 32 << 10
	standinBookmark = time.Second // unless the client requests fewer
	rootShard       = "root"
	// standinChanges is the number of changes that a stream may be behind.
	standinChanges = 1024
)

// standin is a shard that only has a place in the tree for each of its logical clusters.
type standin struct {
	name, url string
	// records are those of a snapshot.
	records func(w *treeWriter)

	mu      sync.Mutex
	streams map[chan []byte]bool
	// added is the number of changes.
	added uint64
}

// treeWriter writes frames.
type treeWriter struct {
	to    http.ResponseWriter
	frame []byte
	err   error
}

func (w *treeWriter) text(s string) {
	w.frame = append(binary.AppendUvarint(w.frame, uint64(len(s))), s...)
}

func (w *treeWriter) numbers(all ...uint64) {
	for _, n := range all {
		w.frame = binary.AppendUvarint(w.frame, n)
	}
}

func (w *treeWriter) tag(t byte, more ...byte) { w.frame = append(append(w.frame, t), more...) }

// record ends a record.
func (w *treeWriter) record() {
	if len(w.frame) >= standinFrame {
		w.flush()
	}
}

func (w *treeWriter) flush() {
	if w.err != nil || len(w.frame) == 0 {
		return
	}
	header := binary.BigEndian.AppendUint32(nil, uint32(len(w.frame)))
	if _, w.err = w.to.Write(append(header, w.frame...)); w.err == nil {
		w.err = http.NewResponseController(w.to).Flush()
	}
	w.frame = w.frame[:0]
}

// place is a workspace and its logical cluster.
type place struct{ parent, name, cluster string }

func (p place) uid() (uid [16]byte) {
	copy(uid[:], p.cluster)
	return uid
}

// edge writes what the shard of the parent says, and cluster what the shard that holds the cluster says. shard is empty if both are the
// same.
func (w *treeWriter) edge(p place, shard string) {
	uid := p.uid()
	w.tag(tagEdge)
	w.text(p.parent)
	w.text(p.name)
	w.frame = append(w.frame, 0)
	w.text(p.cluster)
	w.text(shard)
	w.numbers(1)
	w.frame = append(w.frame, uid[:]...)
	w.text("")
	w.record()
}

func (w *treeWriter) cluster(p place) {
	uid := p.uid()
	w.tag(tagCluster)
	w.text(p.cluster)
	w.numbers(1)
	w.frame = append(w.frame, uid[:]...)
	w.text("root:universal")
	w.text(p.parent)
	w.text(p.name)
	w.record()
}

func (w *treeWriter) shard(name, url string) {
	w.tag(tagShard)
	w.text(name)
	w.text(url)
	w.text("incarnation-of-" + name)
	w.record()
}

// stream writes a snapshot, then changes and bookmarks until the request ends.
func (s *standin) stream(ctx context.Context, to http.ResponseWriter, bookmarks time.Duration) {
	changes := make(chan []byte, standinChanges)
	s.mu.Lock()
	s.streams[changes] = true
	position := s.added
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.streams, changes)
	}()
	w := &treeWriter{to: to}
	w.tag(tagHello, 1, 1) // the version, and that a snapshot follows
	w.text(s.name)
	w.text("incarnation-of-" + s.name)
	w.numbers(1, 1, 0)
	s.records(w)
	w.tag(tagEnd)
	w.numbers(position, 1)
	w.flush()
	ticker := time.NewTicker(max(bookmarks, standinBookmark))
	defer ticker.Stop()
	for w.err == nil {
		select {
		case <-ctx.Done():
			return
		case change := <-changes:
			w.frame = append(w.frame, change...)
			position += 2
		case <-ticker.C:
			w.tag(tagBookmark)
			w.numbers(position, 1)
		}
		w.flush()
	}
}

// add adds a workspace, which front proxies hear of.
func (s *standin) add(p place) {
	w := &treeWriter{}
	w.cluster(p)
	w.edge(p, "")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.added += 2
	for stream := range s.streams {
		stream <- w.frame
	}
}

// standins are all shards of an installation in this process, each at a port of its own.
type standins struct {
	shards []*standin // the first one is root
	byPort map[int]*standin
	// served is the number of requests that front proxies have forwarded, and asked that of their questions.
	served, asked atomic.Int64
	server        *http.Server
}

const (
	// organizationsEach is the number of organizations of a stand-in, and workspacesEach that of workspaces of an organization.
	organizationsEach, workspacesEach = 10, 99
)

// organizationAt returns an organization of a shard, and workspaceAt a workspace of one.
func organizationAt(shard, i int) place {
	return place{rootShard, fmt.Sprintf("org-%d-%d", shard, i), fmt.Sprintf("o%05dx%09d", shard, i)}
}

func workspaceAt(shard, org, i int) place {
	return place{organizationAt(shard, org).cluster, fmt.Sprintf("workspace-%d", i), fmt.Sprintf("w%05dx%03dx%05d", shard, org, i)}
}

// path is the path of a workspace through a front proxy.
func workspacePath(shard, org, i int) string {
	return "/clusters/root:" + organizationAt(shard, org).name + ":" + workspaceAt(shard, org, i).name
}

// newStandins returns n shards and the root shard, which serve nothing yet.
func newStandins(n int) *standins {
	all := &standins{byPort: map[int]*standin{}}
	for i := range n + 1 {
		s := &standin{name: rootShard, streams: map[chan []byte]bool{}}
		s.records = all.rootRecords
		if i > 0 {
			s.name = fmt.Sprintf("shard-%d", i)
			s.records = func(w *treeWriter) { all.shardRecords(w, i) }
		}
		all.shards = append(all.shards, s)
	}
	return all
}

func (all *standins) rootRecords(w *treeWriter) {
	for i, s := range all.shards {
		w.shard(s.name, s.url)
		for org := range organizationsEach {
			if i > 0 {
				w.edge(organizationAt(i, org), s.name)
			}
		}
	}
	w.cluster(place{cluster: rootShard})
}

func (all *standins) shardRecords(w *treeWriter, shard int) {
	for org := range organizationsEach {
		w.cluster(organizationAt(shard, org))
		for i := range workspacesEach {
			w.cluster(workspaceAt(shard, org, i))
			w.edge(workspaceAt(shard, org, i), "")
		}
	}
}

// ServeHTTP serves peer calls, and requests of users.
func (all *standins) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	address, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	s := all.byPort[address.Port]
	switch {
	case r.URL.Path == "/services/peers/v1/tree":
		bookmarks, _ := time.ParseDuration(r.URL.Query().Get("bookmarks"))
		s.stream(r.Context(), w, bookmarks)
	case r.URL.Path == "/services/peers/v1/resolve":
		all.asked.Add(1)
		var question struct{ Path string }
		_ = json.NewDecoder(r.Body).Decode(&question)
		answer := map[string]any{"incarnation": "incarnation-of-" + s.name, "revision": 1}
		if !strings.Contains(question.Path, ":") { // what is below is absent, until the stream has said so
			answer["cluster"] = map[string]any{"name": question.Path, "epoch": 1, "parent": rootShard, "workspace": "any"}
		}
		writeJSON(w, answer)
	case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":true}}`)
	default:
		all.served.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		writeJSON(w, map[string]any{"kind": "Status", "apiVersion": "v1"})
	}
}

func writeJSON(w http.ResponseWriter, content any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(content)
}

// at returns the URL of a listener.
func urlOf(l net.Listener) (string, int) {
	port := l.Addr().(*net.TCPAddr).Port
	return "https://127.0.0.1:" + strconv.Itoa(port), port
}
