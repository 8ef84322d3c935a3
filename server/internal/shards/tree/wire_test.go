package tree

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// recorder is a sink that describes what it receives.
type recorder struct {
	events []string
	err    error
	signal chan string // receives each event if it is not nil
}

func (r *recorder) add(format string, args ...any) error {
	event := fmt.Sprintf(format, args...)
	r.events = append(r.events, event)
	if r.signal != nil {
		r.signal <- event
	}
	return r.err
}

func (r *recorder) Begin(s Start) error     { return r.add("begin %+v", s) }
func (r *recorder) End() error              { return r.add("end") }
func (r *recorder) Edge(e Edge) error       { return r.add("%+v", e) }
func (r *recorder) Cluster(c Cluster) error { return r.add("%+v", c) }
func (r *recorder) Shard(s Shard) error     { return r.add("%+v", s) }
func (r *recorder) Bookmark(rev uint64)     { _ = r.add("bookmark %d", rev) }
func (r *recorder) Lost(err error)          { _ = r.add("lost: %v", err) }

var someUID = uuid.MustParse("6d0f6f0e-1b52-4d0c-9c44-0a1f0a5f5d3e")

var (
	someEdges = []Edge{
		{Parent: "root", Name: "org", Cluster: "2fx8q1z4m0p7k3vd", Shard: "eu-1", Epoch: 3, UID: someUID},
		{Parent: "root", Name: "down", Cluster: "aaa", Unavailable: true},
		{Parent: "root", Name: "mount", URL: "https://elsewhere:6443/x"},
		{Parent: "root", Name: "gone", Deleted: true},
	}
	someClusters = []Cluster{
		{Name: "root", UID: someUID, Epoch: 1, Type: "root:root"},
		{Name: "aaa", UID: someUID, Epoch: 1 << 40, Type: "root:universal", Parent: "root", Workspace: "down"},
		{Name: "gone", Deleted: true},
	}
	someShards = []Shard{{Name: "eu-1", BaseURL: "https://eu-1:6443", Incarnation: "b"}, {Name: "gone", Deleted: true}}
)

func someRecords(b []byte) ([]byte, []string) {
	var want []string
	for _, e := range someEdges {
		b, want = appendEdge(b, e), append(want, fmt.Sprintf("%+v", e))
	}
	for _, c := range someClusters {
		b, want = appendCluster(b, c), append(want, fmt.Sprintf("%+v", c))
	}
	for _, s := range someShards {
		b, want = appendShard(b, s), append(want, fmt.Sprintf("%+v", s))
	}
	return b, want
}

func greeting(h hello) []byte {
	if h.Shard == "" {
		h.Shard = "eu"
	}
	if h.Incarnation == "" {
		h.Incarnation = "a"
	}
	return appendHello(nil, h)
}

func TestRecordsArriveAsTheyWereSent(t *testing.T) {
	b := greeting(hello{Snapshot: true, Start: Start{Revision: 7}, Log: 5})
	b, want := someRecords(b)
	b = appendMark(appendMark(b, tagEnd, mark{9, 8}), tagBookmark, mark{9, 10})
	sink := &recorder{}
	f := &follower{shard: "eu", sink: sink}
	if err := f.read(fields{rest: string(b)}); err != nil {
		t.Fatal(err)
	}
	want = append(append([]string{"begin {Shard:eu Incarnation:a Revision:7}"}, want...), "end", "bookmark 10")
	if got := strings.Join(sink.events, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	if want := (Token{"a", 10, 5, 9}); f.token != want {
		t.Errorf("got token %v, want %v", f.token, want)
	}
}

func TestCutAndCorruptFramesAreErrors(t *testing.T) {
	whole, _ := someRecords(greeting(hello{Snapshot: true}))
	whole = appendMark(whole, tagEnd, mark{1, 1})
	for n := range len(whole) {
		f := &follower{shard: "eu", sink: &recorder{}}
		if err := f.read(fields{rest: string(whole[:n])}); err == nil && f.token != (Token{}) {
			t.Errorf("after %d of %d bytes, the snapshot is complete", n, len(whole))
		}
	}
	long := appendEdge(greeting(hello{Snapshot: true}), Edge{Parent: "root", Name: strings.Repeat("x", maxString+1)})
	if err := (&follower{shard: "eu", sink: &recorder{}}).read(fields{rest: string(long)}); !errors.Is(err, errFormat) {
		t.Errorf("a string of more than %d bytes: %v", maxString, err)
	}
	frame := bytes.NewReader([]byte{0xff, 0xff, 0xff, 0xff, 1})
	if _, _, err := readFrame(bufio.NewReader(frame), nil); !errors.Is(err, errFormat) {
		t.Errorf("a frame of 4 GiB: %v", err)
	}
}

func FuzzFrames(f *testing.F) {
	whole, _ := someRecords(greeting(hello{Snapshot: true}))
	f.Add(string(whole))
	f.Fuzz(func(_ *testing.T, frame string) {
		_ = (&follower{shard: "eu", sink: &recorder{}}).read(fields{rest: frame})
	})
}

func TestTokensExpectationsAndMarkersHaveATextForm(t *testing.T) {
	for _, token := range []Token{{}, {"a-b", 12, 1 << 63, 3}} {
		if got, err := ParseToken(token.String()); err != nil || got != token {
			t.Errorf("%v: got %v, %v", token, got, err)
		}
	}
	for _, bad := range []string{"a", "a.1.2", ".1.2.3", "a.b.2.3", "a.1.2.-3", "a.1.2.3.4", strings.Repeat("a", maxString+1) + ".1.2.3"} {
		if got, err := ParseToken(bad); err == nil {
			t.Errorf("token %.20q is parsed as %v", bad, got)
		}
	}
	for _, e := range []Expectation{{"root", someUID, 3}, {"aaa", UID{}, 0}} {
		if got, err := ParseExpectation(e.String()); err != nil || got != e {
			t.Errorf("%v: got %v, %v", e, got, err)
		}
	}
	for _, bad := range []string{"", "root", ";;1", "root:a;;1", "root;x;1", "root;;x", "root;;1;", "*;;1", "../x;;1"} {
		if got, err := ParseExpectation(bad); err == nil {
			t.Errorf("expectation %q is parsed as %v", bad, got)
		}
	}
	for _, m := range []Marker{{"eu", "a", Moved, "us", 4}, {"eu", "a", Never, "", 0}, {"eu", "a", Deleted, "", 0}} {
		if got, err := ParseMarker(m.String()); err != nil || got != m {
			t.Errorf("%v: got %v, %v", m, got, err)
		}
	}
	for _, bad := range []string{"", "eu;a;moved;;1", "eu;a;never;us;1", "eu;a;other;;1", ";a;never;;1", "eu;a;moved;us;x", "eu;a;moved;us"} {
		if got, err := ParseMarker(bad); err == nil {
			t.Errorf("marker %q is parsed as %v", bad, got)
		}
	}
}

func TestOnlyUIDsOfTheServerAreUIDs(t *testing.T) {
	if got, ok := ParseUID(types.UID(someUID.String())); !ok || got != someUID {
		t.Errorf("got %v, %t", got, ok)
	}
	for _, bad := range []types.UID{"", "x", types.UID("{" + someUID.String() + "}"), types.UID(strings.ToUpper(someUID.String()))} {
		if got, ok := ParseUID(bad); ok {
			t.Errorf("%q is parsed as %v", bad, got)
		}
	}
}

// counter is a sink that counts.
type counter struct{ edges, clusters int }

func (c *counter) Begin(Start) error     { return nil }
func (c *counter) End() error            { return nil }
func (c *counter) Edge(Edge) error       { c.edges++; return nil }
func (c *counter) Cluster(Cluster) error { c.clusters++; return nil }
func (c *counter) Shard(Shard) error     { return nil }
func (c *counter) Bookmark(uint64)       {}
func (c *counter) Lost(error)            {}

func encodeWorkspaces(n int) []byte {
	b := greeting(hello{Snapshot: true})
	for i := range n {
		cluster := logicalcluster.Name(fmt.Sprintf("%016d", i))
		b = appendEdge(b, Edge{Parent: "2fx8q1z4m0p7k3vd", Name: "workspace-1", Cluster: cluster, Shard: "eu-1", Epoch: 1, UID: someUID})
		b = appendCluster(b, Cluster{Name: cluster, UID: someUID, Epoch: 1, Type: "root:universal", Parent: "2fx8q1z4m0p7k3vd", Workspace: "workspace-1"})
	}
	return b
}

// Each operation is a workspace: an edge and a cluster.
func BenchmarkDecode(b *testing.B) {
	const n = 200
	frame := string(encodeWorkspaces(n))
	b.SetBytes(int64(len(frame)) / n)
	b.ResetTimer()
	for i := 0; i < b.N; i += n {
		if err := (&follower{shard: "eu", sink: &counter{}}).read(fields{rest: frame}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	e, c := someEdges[0], someClusters[1]
	var buffer []byte
	for range b.N {
		buffer = appendCluster(appendEdge(buffer[:0], e), c)
	}
	b.SetBytes(int64(len(buffer)))
}
