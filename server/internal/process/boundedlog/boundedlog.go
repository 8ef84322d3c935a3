// Package boundedlog bounds what each statement of the program writes to the log. Clients cause many entries: one for each request that is
// reset, and each may name the URL of the request. Without a bound, a client fills the disk, and what others should read is lost among it.
package boundedlog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// burst is how many bytes a statement writes at once, and perSecond how many in the long run.
	burst, perSecond = 256 << 10, 4 << 10
	// longest is the length of an entry, and of a text in one that is JSON. The stacks of a panic have up to 64 KiB.
	longest, longestText = 80 << 10, 64 << 10
)

// Writer writes entries to another writer: each call of Write is one, in the text or the JSON format of klog.
type Writer struct {
	to  io.Writer
	now func() time.Time

	mu         sync.Mutex
	statements map[string]*statement
}

// statement is one that logs. There are as many as the program has.
type statement struct {
	bytes   *rate.Limiter
	dropped int // entries
}

// New returns a writer for entries that are written to another one.
func New(to io.Writer) *Writer {
	return &Writer{to: to, now: time.Now, statements: map[string]*statement{}}
}

// Write implements io.Writer. It never fails because an entry is dropped.
func (w *Writer) Write(entry []byte) (int, error) {
	n, from := len(entry), whereFrom(entry)
	inJSON := len(entry) > 0 && entry[0] == '{'
	if n > longest {
		entry = shorten(entry, inJSON)
	}
	dropped, ok := w.take(from, len(entry))
	if !ok {
		return n, nil
	}
	if dropped > 0 {
		entry = mark(entry, inJSON, dropped)
	}
	if _, err := w.to.Write(entry); err != nil {
		return 0, err
	}
	return n, nil
}

// take returns whether a statement may write so many bytes, and how many of its entries were dropped before that.
func (w *Writer) take(from string, size int) (dropped int, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, now := w.statements[from], w.now()
	if s == nil {
		s = &statement{bytes: rate.NewLimiter(perSecond, burst)}
		w.statements[from] = s
	}
	if !s.bytes.AllowN(now, size) {
		s.dropped++
		return 0, false
	}
	dropped, s.dropped = s.dropped, 0
	return dropped, true
}

// The beginning of an entry as klog writes it, which names the file and line, and where JSON does.
var (
	header = regexp.MustCompile(`^[IWEF]\d{4} \S+ +\d+ ([^\s\]]+:\d+)\] `)
	caller = regexp.MustCompile(`"caller":"([^"]+)"`)
)

// whereFrom returns the statement that an entry is from. All that have another form share one.
func whereFrom(entry []byte) string {
	beginning := entry[:min(len(entry), 256)]
	for _, form := range []*regexp.Regexp{header, caller} {
		if found := form.FindSubmatch(beginning); found != nil {
			return string(found[1])
		}
	}
	return ""
}

// shorten returns an entry that is not too long.
func shorten(entry []byte, inJSON bool) []byte {
	if !inJSON {
		return fmt.Appendf(bytes.Clone(entry[:longest]), "... (%d bytes more)\n", len(entry)-longest)
	}
	fields := map[string]any{}
	if json.Unmarshal(entry, &fields) == nil {
		for name, value := range fields {
			if text, ok := value.(string); ok && len(text) > longestText {
				fields[name] = fmt.Sprintf("%s... (%d bytes more)", text[:longestText], len(text)-longestText)
			}
		}
		if content, err := json.Marshal(fields); err == nil && len(content) <= longest {
			return append(content, '\n')
		}
	}
	return fmt.Appendf(nil, "{\"msg\":\"an entry of %d bytes is too long for the log\"}\n", len(entry))
}

// mark says in an entry how many were dropped before.
func mark(entry []byte, inJSON bool, dropped int) []byte {
	if inJSON {
		return append(fmt.Appendf(nil, `{"droppedBefore":%d,`, dropped), entry[1:]...)
	}
	return fmt.Appendf(bytes.TrimSuffix(bytes.Clone(entry), []byte("\n")), " droppedBefore=%d\n", dropped)
}
