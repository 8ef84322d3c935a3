package tree

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// The stream consists of frames: the length of the payload in four bytes, big endian, and the payload, which is a sequence of messages. A
// message is a tag byte and the fields of its type: strings with their length before them, numbers in the variable-length form of
// encoding/binary, UIDs in 16 bytes. The first message is a hello. After it come, for a snapshot, records and an end, and then records and
// bookmarks until the connection ends.
const (
	tagHello byte = iota + 1
	tagEnd
	tagBookmark
	tagEdge
	tagNoEdge
	tagCluster
	tagNoCluster
	tagShard
	tagNoShard
)

const (
	// version is that of the format. A client refuses others.
	version = 1
	// maxString and maxFrame limit what a client accepts. The server sends frames of frameSize and one batch of an informer, at most.
	maxString, maxFrame = 2 << 10, 1 << 20
	// frameSize is the size of a frame after which the server begins another one.
	frameSize = 32 << 10
)

var errFormat = errors.New("the tree stream is not in the expected format")

// hello begins a stream.
type hello struct {
	Start
	// Snapshot reports that a snapshot follows. Otherwise, the stream continues at the position of the token that the client sent.
	Snapshot bool
	Log      uint64
	// Position is that of the first change after the hello. It is unspecified before a snapshot.
	Position uint64
}

// mark is the position and the revision of a client that has read the stream so far: at the end of a snapshot, and in a bookmark.
type mark struct{ Position, Revision uint64 }

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendFlags(b []byte, flags ...bool) []byte {
	var set byte
	for i, f := range flags {
		if f {
			set |= 1 << i
		}
	}
	return append(b, set)
}

func appendHello(b []byte, h hello) []byte {
	b = append(b, tagHello, version)
	b = appendFlags(b, h.Snapshot)
	b = appendString(appendString(b, h.Shard), h.Incarnation)
	b = binary.AppendUvarint(b, h.Revision)
	return binary.AppendUvarint(binary.AppendUvarint(b, h.Log), h.Position)
}

func appendMark(b []byte, tag byte, m mark) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(append(b, tag), m.Position), m.Revision)
}

func appendEdge(b []byte, e Edge) []byte {
	if e.Deleted {
		return appendString(appendString(append(b, tagNoEdge), string(e.Parent)), e.Name)
	}
	b = appendString(appendString(append(b, tagEdge), string(e.Parent)), e.Name)
	b = appendFlags(b, e.Unavailable)
	b = appendString(appendString(b, string(e.Cluster)), e.Shard)
	b = append(binary.AppendUvarint(b, e.Epoch), e.UID[:]...)
	return appendString(b, e.URL)
}

func appendCluster(b []byte, c Cluster) []byte {
	if c.Deleted {
		return appendString(append(b, tagNoCluster), string(c.Name))
	}
	b = appendString(append(b, tagCluster), string(c.Name))
	b = append(binary.AppendUvarint(b, c.Epoch), c.UID[:]...)
	return appendString(appendString(appendString(b, c.Type), string(c.Parent)), c.Workspace)
}

func appendShard(b []byte, s Shard) []byte {
	if s.Deleted {
		return appendString(append(b, tagNoShard), s.Name)
	}
	return appendString(appendString(appendString(append(b, tagShard), s.Name), s.BaseURL), s.Incarnation)
}

// writeFrame writes the payload as one frame. payload begins with headerSize bytes that writeFrame fills.
func writeFrame(w io.Writer, payload []byte) error {
	binary.BigEndian.PutUint32(payload, uint32(len(payload)-headerSize))
	_, err := w.Write(payload)
	return err
}

// headerSize is the number of bytes before the payload of a frame.
const headerSize = 4

// readFrame returns the payload of the next frame. buffer is reused for the bytes before they become the string.
func readFrame(r *bufio.Reader, buffer []byte) (string, []byte, error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return "", buffer, err
	}
	size := binary.BigEndian.Uint32(header[:])
	if size > maxFrame {
		return "", buffer, fmt.Errorf("%w: a frame has %d bytes", errFormat, size)
	}
	if cap(buffer) < int(size) {
		buffer = make([]byte, size)
	}
	buffer = buffer[:size]
	if _, err := io.ReadFull(r, buffer); err != nil {
		return "", buffer, err
	}
	return string(buffer), buffer, nil
}

// fields reads the fields of a frame. After an error, every field is zero.
type fields struct {
	rest string
	bad  bool
}

func (f *fields) byte() byte {
	if len(f.rest) == 0 {
		f.bad = true
		return 0
	}
	b := f.rest[0]
	f.rest = f.rest[1:]
	return b
}

func (f *fields) flag(set byte, n int) bool { return set&(1<<n) != 0 }

func (f *fields) number() uint64 {
	var n uint64
	for shift := 0; shift < 64; shift += 7 {
		b := f.byte()
		n |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return n
		}
	}
	f.bad = true
	return 0
}

func (f *fields) string() string {
	size := f.number()
	if size > maxString || size > uint64(len(f.rest)) {
		f.bad = true
		return ""
	}
	s := f.rest[:size]
	f.rest = f.rest[size:]
	return s
}

func (f *fields) cluster() logicalcluster.Name { return logicalcluster.Name(f.string()) }

func (f *fields) uid() (uid UID) {
	if copy(uid[:], f.rest) < len(uid) {
		f.bad = true
		return UID{}
	}
	f.rest = f.rest[len(uid):]
	return uid
}

// err returns an error if a field was incomplete or too long.
func (f *fields) err() error {
	if f.bad {
		return errFormat
	}
	return nil
}

func (f *fields) hello() (hello, error) {
	if v := f.byte(); v != version && !f.bad {
		return hello{}, fmt.Errorf("%w: it has version %d instead of %d", errFormat, v, version)
	}
	set := f.byte()
	h := hello{Snapshot: f.flag(set, 0), Start: Start{Shard: f.string(), Incarnation: f.string(), Revision: f.number()}}
	h.Log, h.Position = f.number(), f.number()
	return h, f.err()
}

func (f *fields) mark() (mark, error) {
	m := mark{Position: f.number(), Revision: f.number()}
	return m, f.err()
}

func (f *fields) edge() (Edge, error) {
	e := Edge{Parent: f.cluster(), Name: f.string()}
	set := f.byte()
	e.Unavailable = f.flag(set, 0)
	e.Cluster, e.Shard, e.Epoch, e.UID, e.URL = f.cluster(), f.string(), f.number(), f.uid(), f.string()
	return e, f.err()
}

func (f *fields) noEdge() (Edge, error) {
	e := Edge{Parent: f.cluster(), Name: f.string(), Deleted: true}
	return e, f.err()
}

func (f *fields) held() (Cluster, error) {
	c := Cluster{Name: f.cluster(), Epoch: f.number(), UID: f.uid(), Type: f.string(), Parent: f.cluster(), Workspace: f.string()}
	return c, f.err()
}

func (f *fields) notHeld() (Cluster, error) {
	c := Cluster{Name: f.cluster(), Deleted: true}
	return c, f.err()
}

func (f *fields) shard() (Shard, error) {
	s := Shard{Name: f.string(), BaseURL: f.string(), Incarnation: f.string()}
	return s, f.err()
}

func (f *fields) noShard() (Shard, error) {
	s := Shard{Name: f.string(), Deleted: true}
	return s, f.err()
}
