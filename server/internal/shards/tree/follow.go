package tree

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
)

const (
	// idleTimeout is how long a stream may be silent. Bookmarks arrive more often, see slowestBookmarks.
	idleTimeout = 15 * time.Second
	// firstDelay and maxDelay limit the time between two connections, to which jitter adds half at most. A shard that is back is followed
	// at once, because every request for what the index does not have is a question to it until then.
	firstDelay, maxDelay, jitter = 100 * time.Millisecond, 2 * time.Second, 0.5
)

var (
	// errSilent ends a connection without bookmarks.
	errSilent = errors.New("the shard has sent nothing for " + idleTimeout.String())
	// errBackwards ends a stream that is older than what the client has.
	errBackwards = errors.New("the tree stream goes backwards")
)

// Streams opens peer streams. *peers.Clients implements it.
type Streams interface {
	Stream(ctx context.Context, shard, call string, query url.Values) (io.ReadCloser, error)
}

// Follow delivers the tree of a shard to sink until ctx ends. It resumes the stream after an interruption, with increasing delays while the
// shard does not respond.
//
// turns are those of all streams of this process.
func Follow(ctx context.Context, streams Streams, turns Turns, shard string, sink Sink) {
	f := &follower{streams: streams, turns: turns, shard: shard, sink: sink, clock: clock.RealClock{}}
	f.run(ctx)
}

// follower is the client of one shard.
//
// Invariants:
//   - token is what the sink has: it is zero until the sink has a complete snapshot, and after an error of the sink.
//   - Within an incarnation, the revision that the sink has does not fall. A store that is restored from a backup has another incarnation.
//   - Nothing is delivered from a stream of another shard.
type follower struct {
	streams Streams
	turns   Turns
	shard   string
	sink    Sink
	clock   clock.WithDelayedExecution

	token Token
	// seen is the token of the last complete snapshot or bookmark, also while token is zero.
	seen Token
	// snapshot reports that the records are those of a snapshot, and greeted that the stream has begun.
	snapshot, greeted bool
	// settled reports that the connection has delivered a bookmark.
	settled bool
}

func (f *follower) run(ctx context.Context) {
	delay := newDelay()
	for {
		err := f.connect(ctx)
		if ctx.Err() != nil {
			return
		}
		f.sink.Lost(fmt.Errorf("following the tree of shard %s: %w", f.shard, err))
		if f.settled {
			delay = newDelay()
		}
		select {
		case <-ctx.Done():
			return
		case <-f.clock.After(delay.Step()):
		}
	}
}

func newDelay() *wait.Backoff {
	return &wait.Backoff{Duration: firstDelay, Factor: 2, Jitter: jitter, Steps: 100, Cap: maxDelay * 2 / 3}
}

// connect follows the stream until it ends.
func (f *follower) connect(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	f.settled, f.greeted, f.snapshot = false, false, false
	release, err := f.turns.take(ctx, f.clock)
	if err != nil {
		return err
	}
	defer release()
	idle := f.clock.AfterFunc(idleTimeout, func() { cancel(errSilent) })
	defer idle.Stop()
	stream, err := f.streams.Stream(ctx, f.shard, Call, url.Values{"token": {f.token.String()}})
	release()
	if err != nil {
		return cause(ctx, err)
	}
	defer func() { _ = stream.Close() }()
	defer context.AfterFunc(ctx, func() { _ = stream.Close() })()
	r := bufio.NewReaderSize(stream, 2*frameSize)
	var buffer []byte
	for {
		var frame string
		if frame, buffer, err = readFrame(r, buffer); err != nil {
			return cause(ctx, err)
		}
		idle.Reset(idleTimeout)
		if err := f.read(fields{rest: frame}); err != nil {
			return err
		}
	}
}

// cause returns why ctx has ended, or err.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// read delivers the messages of a frame. After an error, the sink is in an unknown state.
func (f *follower) read(frame fields) (err error) {
	defer func() {
		if err != nil {
			f.token = Token{}
		}
	}()
	for len(frame.rest) > 0 {
		tag := frame.byte()
		if f.greeted == (tag == tagHello) {
			return errFormat
		}
		switch tag {
		case tagHello:
			err = f.begin(&frame)
		case tagEnd, tagBookmark:
			err = f.mark(tag, &frame)
		default:
			err = f.record(tag, &frame)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// begin checks the first message of a stream, and starts a snapshot.
func (f *follower) begin(frame *fields) error {
	h, err := frame.hello()
	switch {
	case err != nil:
		return err
	case h.Shard != f.shard:
		return fmt.Errorf("the tree stream is that of shard %q, check the URLs of both shards", h.Shard)
	case h.Incarnation == "":
		return errFormat
	case h.Incarnation == f.seen.Incarnation && h.Revision < f.seen.Revision:
		return fmt.Errorf("%w: revision %d after %d", errBackwards, h.Revision, f.seen.Revision)
	}
	f.greeted = true
	if !h.Snapshot {
		if f.token == (Token{}) || h.Incarnation != f.token.Incarnation || h.Log != f.token.Log || h.Position != f.token.Position {
			return fmt.Errorf("%w: it continues at another place than it ended", errFormat)
		}
		return nil
	}
	f.snapshot, f.token = true, Token{}
	f.seen = Token{Incarnation: h.Incarnation, Revision: h.Revision, Log: h.Log}
	return f.sink.Begin(h.Start)
}

// mark handles the end of a snapshot, and bookmarks.
func (f *follower) mark(tag byte, frame *fields) error {
	m, err := frame.mark()
	switch {
	case err != nil:
		return err
	case (tag == tagEnd) != f.snapshot || (tag == tagBookmark && m.Position != f.token.Position):
		return errFormat
	case m.Revision < f.seen.Revision:
		return fmt.Errorf("%w: revision %d after %d", errBackwards, m.Revision, f.seen.Revision)
	}
	f.seen.Revision, f.seen.Position = m.Revision, m.Position
	f.token = f.seen
	if tag == tagEnd {
		f.snapshot = false
		return f.sink.End()
	}
	f.settled = true
	f.sink.Bookmark(m.Revision)
	return nil
}

// record delivers a record.
func (f *follower) record(tag byte, frame *fields) error {
	if !f.snapshot {
		f.token.Position++
	}
	switch tag {
	case tagEdge:
		return deliver(frame.edge, f.sink.Edge)
	case tagNoEdge:
		return deliver(frame.noEdge, f.sink.Edge)
	case tagCluster:
		return deliver(frame.held, f.sink.Cluster)
	case tagNoCluster:
		return deliver(frame.notHeld, f.sink.Cluster)
	case tagShard:
		return deliver(frame.shard, f.sink.Shard)
	case tagNoShard:
		return deliver(frame.noShard, f.sink.Shard)
	}
	return fmt.Errorf("%w: tag %d", errFormat, tag)
}

func deliver[T any](read func() (T, error), to func(T) error) error {
	record, err := read()
	if err != nil {
		return err
	}
	return to(record)
}
