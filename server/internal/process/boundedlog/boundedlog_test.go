package boundedlog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

func entryFrom(line int, text string) string {
	return fmt.Sprintf("E1122 11:53:28.424882   22758 wrap.go:%d] %q\n", line, text)
}

func TestDetailsOfAStartAreDroppedUntilTheServerHasStarted(t *testing.T) {
	const (
		text    = "I1122 11:53:28.424882   22758 handler.go:309] Adding GroupVersion\n"
		inJSON  = `{"ts":1.5,"caller":"aggregated/handler.go:309","msg":"Adding GroupVersion","v":0}` + "\n"
		warning = "W1122 11:53:28.424882   22758 handler.go:310] a warning\n"
		failure = `{"ts":1.5,"caller":"aggregated/handler.go:311","msg":"failed","err":"x"}` + "\n"
		other   = "I1122 11:53:28.424882   22758 secure_serving.go:214] Serving securely\n"
	)
	out := &bytes.Buffer{}
	w := New(out)
	write := func() {
		for _, entry := range []string{text, inJSON, warning, failure, other} {
			if n, err := w.Write([]byte(entry)); n != len(entry) || err != nil {
				t.Fatal(n, err)
			}
		}
	}
	w.Starting()
	write()
	if got, want := out.String(), warning+failure+other; got != want {
		t.Errorf("while the server starts, got %q, want %q", got, want)
	}
	out.Reset()
	w.Started()
	write()
	if got, want := out.String(), text+inJSON+warning+failure+other; got != want {
		t.Errorf("after the start, got %q, want %q", got, want)
	}
}

func TestAStatementCannotExceedItsShareOfTheLog(t *testing.T) {
	out, now := &bytes.Buffer{}, time.Unix(1000, 0)
	w := New(out)
	w.now = func() time.Time { return now }
	log := func(entry string) {
		t.Helper()
		if n, err := w.Write([]byte(entry)); n != len(entry) || err != nil {
			t.Fatal(n, err)
		}
	}
	flood := entryFrom(1, strings.Repeat("x", 1000))
	for range 10_000 {
		log(flood)
	}
	if written := out.Len(); written > burst || written < burst/2 {
		t.Errorf("%d bytes of a flood were written", written)
	}
	out.Reset()
	log(entryFrom(2, "another statement"))
	if got := out.String(); got != entryFrom(2, "another statement") {
		t.Errorf("another statement wrote %q", got)
	}
	written := 0
	for range 3600 {
		now = now.Add(time.Second)
		out.Reset()
		log(flood)
		log(flood)
		log(flood)
		log(flood)
		log(flood)
		written += out.Len()
	}
	if most := 3600*perSecond + burst + 1<<20; written > most || written < 3600*perSecond/2 {
		t.Errorf("in an hour, %d bytes were written", written)
	}
	now = now.Add(24 * time.Hour)
	out.Reset()
	log(entryFrom(1, "later"))
	if got := out.String(); !strings.HasPrefix(got, `E1122 11:53:28.424882   22758 wrap.go:1] "later" droppedBefore=`) || !strings.HasSuffix(got, "\n") {
		t.Errorf("later: %q", got)
	}
}

func TestEntriesInJSONStayValid(t *testing.T) {
	out, now := &bytes.Buffer{}, time.Unix(1000, 0)
	w := New(out)
	w.now = func() time.Time { return now }
	entry := func(text string) []byte {
		return fmt.Appendf(nil, `{"ts":1.5,"caller":"filters/wrap.go:53","msg":%q,"URI":"/"}`+"\n", text)
	}
	long := entry(strings.Repeat("x", 900_000))
	for range 100 {
		_, _ = w.Write(long)
	}
	now = now.Add(time.Hour)
	_, _ = w.Write(entry("later"))
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	for _, line := range lines {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil || fields["caller"] != "filters/wrap.go:53" {
			t.Errorf("%v: %.200s", err, line)
		}
	}
	if last := lines[len(lines)-1]; !strings.Contains(last, `"droppedBefore":`) || out.Len() > burst+1000 {
		t.Errorf("%d bytes in %d lines, the last of which is %.200s", out.Len(), len(lines), last)
	}
}

func TestALongEntryIsCut(t *testing.T) {
	out := &bytes.Buffer{}
	if _, err := New(out).Write([]byte(entryFrom(1, strings.Repeat("x", 900_000)))); err != nil {
		t.Fatal(err)
	}
	if out.Len() > longest+100 || !strings.HasSuffix(out.String(), " bytes more)\n") {
		t.Errorf("%d bytes were written, which end with %q", out.Len(), out.String()[out.Len()-40:])
	}
}

func TestTheStatementOfAnEntryIsRecognised(t *testing.T) {
	for entry, want := range map[string]string{
		entryFrom(53, "x"):                         "wrap.go:53",
		"http2: server connection error":           "",
		`{"ts":1,"caller":"a/b.go:7","msg":"x"}`:   "a/b.go:7",
		`I1122 11:53:28.4 1 x.go:1 forged wrap.go`: "",
	} {
		if got := whereFrom([]byte(entry)); got != want {
			t.Errorf("%q is from %q, want %q", entry, got, want)
		}
	}
}
