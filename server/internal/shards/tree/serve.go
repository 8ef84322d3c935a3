package tree

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/shards/peers"
)

const (
	// contentType is that of the stream.
	contentType = "application/vnd.kcp.tree"
	// writeTimeout is how long a proxy may take to read a frame.
	writeTimeout = 10 * time.Second
	// catchUpTimeout and catchUpPoll define how long a stream waits until this server has what the client has.
	catchUpTimeout = 5 * time.Second
	catchUpPoll    = 10 * time.Millisecond
)

// errSlow ends the stream of a proxy that reads too slowly. It resumes, or gets a snapshot.
var errSlow = errors.New("the front proxy reads more slowly than changes arrive")

// Register adds the stream to the calls of peers.
func (s *Source) Register(calls *peers.Server) {
	calls.HandleStream(Call, []peers.Kind{peers.Proxy}, func(w http.ResponseWriter, r *http.Request, _ peers.Identity) { s.ServeHTTP(w, r) })
}

// ServeHTTP writes the stream until the request ends, the server stops, or the client is too slow.
func (s *Source) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := s.serve(w, r); err != nil {
		status := responsewriters.ErrorToAPIStatus(err)
		responsewriters.WriteRawJSON(int(status.Code), status, w)
	}
}

// serve returns an error only before it has written anything.
func (s *Source) serve(w http.ResponseWriter, r *http.Request) error {
	token, err := ParseToken(r.URL.Query().Get("token"))
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	ctx := r.Context()
	if !isSynced(s.config.Workspaces.Informer) || !isSynced(s.config.Clusters.Informer) {
		return apierrors.NewServiceUnavailable("the shard is starting: retry the request")
	}
	log := s.acquire()
	defer s.release()
	if token.Incarnation == s.config.Incarnation {
		if err := s.catchUp(ctx, token.Revision); err != nil {
			return err
		}
	}
	w.Header().Set("Content-Type", contentType)
	st := &stream{source: s, log: log, w: w, control: http.NewResponseController(w), frame: make([]byte, headerSize, 2*frameSize),
		bookmarks: bookmarksOf(r.URL.Query())}
	_ = st.run(ctx, token) // the client sees that the stream ends, and opens another one
	return nil
}

func isSynced(informer *informers.Informer) bool {
	select {
	case <-informer.Synced():
		return true
	default:
		return false
	}
}

// catchUp waits until the informers have a revision that the client has. Another server of the same etcd can be ahead.
func (s *Source) catchUp(ctx context.Context, revision uint64) error {
	if s.version() >= revision {
		return nil
	}
	err := s.config.Progress(ctx)
	if err == nil {
		err = wait.PollUntilContextTimeout(ctx, catchUpPoll, catchUpTimeout, true, func(context.Context) (bool, error) {
			return s.version() >= revision, nil
		})
	}
	if err != nil {
		return apierrors.NewServiceUnavailable(fmt.Sprintf("the client has revision %d of the tree and this server only %d: retry the request",
			revision, s.version()))
	}
	return nil
}

// stream writes the tree to one proxy.
type stream struct {
	source  *Source
	log     *changelog
	w       http.ResponseWriter
	control *http.ResponseController
	// bookmarks is the time between bookmarks.
	bookmarks time.Duration
	// frame is the frame that is being filled.
	frame []byte
	// position is that of the next change to write.
	position uint64
}

func (st *stream) run(ctx context.Context, token Token) error {
	config := st.source.config
	h := hello{Start: Start{Shard: config.Shard, Incarnation: config.Incarnation, Revision: st.source.version()}, Log: st.log.id}
	if token.Incarnation == config.Incarnation && token.Log == st.log.id && st.log.has(token.Position) {
		h.Position, st.position = token.Position, token.Position
		st.frame = appendHello(st.frame, h)
	} else {
		h.Snapshot = true
		st.frame = appendHello(st.frame, h)
		if err := st.flush(); err != nil { // the client knows that it is connected, even if it waits
			return err
		}
		if err := st.snapshot(ctx); err != nil {
			return err
		}
	}
	return st.follow(ctx)
}

// errStopping ends the streams of a server that stops.
var errStopping = errors.New("the server stops")

// wait returns when the snapshot may be encoded. The client receives empty frames until then.
func (st *stream) wait(ctx context.Context) error {
	tick := st.source.config.Clock.NewTicker(bookmarkInterval)
	defer tick.Stop()
	for {
		select {
		case st.source.snapshots <- struct{}{}:
			return nil
		case <-tick.C():
			if err := st.flush(); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-st.source.config.Stopping:
			return errStopping
		}
	}
}

// flush sends the frame, which can be empty.
func (st *stream) flush() error {
	deadline := st.source.config.Clock.Now().Add(writeTimeout)
	if err := st.control.SetWriteDeadline(deadline); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	err := writeFrame(st.w, st.frame)
	if err == nil {
		err = st.control.Flush()
	}
	st.frame = st.frame[:headerSize]
	return err
}

// snapshot writes all records, and the changes that happen during that.
func (st *stream) snapshot(ctx context.Context) error {
	if err := st.wait(ctx); err != nil {
		return err
	}
	defer func() { <-st.source.snapshots }()
	config := st.source.config
	revision := st.source.version()
	st.log.setShards(config.Shards())
	st.frame, st.position = st.log.appendShards(st.frame)
	if err := st.scan(ctx, config.Clusters.Informer, func(b []byte, obj runtime.Object) []byte {
		return appendCluster(b, ClusterOf(obj.(*corev1alpha1.LogicalCluster)))
	}); err != nil {
		return err
	}
	if err := st.scan(ctx, config.Workspaces.Informer, func(b []byte, obj runtime.Object) []byte {
		if e := EdgeOf(obj.(*tenancyv1alpha1.Workspace)); !e.Deleted {
			return appendEdge(b, e)
		}
		return b
	}); err != nil {
		return err
	}
	if err := st.changes(st.log.next()); err != nil {
		return err
	}
	st.frame = appendMark(st.frame, tagEnd, mark{st.position, revision})
	return st.flush()
}

// scan writes the records of all objects of an informer. Before each batch, it writes the changes that are older than the batch.
func (st *stream) scan(ctx context.Context, informer *informers.Informer, encode func([]byte, runtime.Object) []byte) error {
	var batch []byte
	var position uint64
	read := func(objects []runtime.Object) {
		position, batch = st.log.next(), batch[:0]
		for _, obj := range objects {
			batch = encode(batch, obj)
		}
	}
	write := func() error {
		if err := st.changes(position); err != nil {
			return err
		}
		if st.frame = append(st.frame, batch...); len(st.frame) >= frameSize {
			return st.flush()
		}
		return nil
	}
	return informer.Scan(ctx, read, write)
}

// changes writes the changes up to a position, of which the last ones may stay in the frame.
func (st *stream) changes(to uint64) error {
	for st.position < to {
		var ok bool
		if st.frame, st.position, _, ok = st.log.read(st.frame, st.position, to, frameSize); !ok {
			return errSlow
		}
		if len(st.frame) >= frameSize {
			if err := st.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// follow writes changes and bookmarks.
func (st *stream) follow(ctx context.Context) error {
	config := st.source.config
	tick := config.Clock.NewTicker(st.bookmarks)
	defer tick.Stop()
	if err := st.bookmark(); err != nil {
		return err
	}
	for {
		var changed <-chan struct{}
		var ok bool
		if st.frame, st.position, changed, ok = st.log.read(st.frame, st.position, math.MaxUint64, frameSize); !ok {
			return errSlow
		}
		if len(st.frame) > headerSize {
			if err := st.flush(); err != nil {
				return err
			}
			continue
		}
		select {
		case <-changed:
		case <-tick.C():
			if err := st.bookmark(); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-config.Stopping:
			return errStopping
		}
	}
}

// bookmark writes the changes up to now and a bookmark.
func (st *stream) bookmark() error {
	st.log.setShards(st.source.config.Shards())
	revision := st.source.version() // before the position: the changelog has what the informers have
	if err := st.changes(st.log.next()); err != nil {
		return err
	}
	st.frame = appendMark(st.frame, tagBookmark, mark{st.position, revision})
	return st.flush()
}
