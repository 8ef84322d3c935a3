// Package boundedlog limits how much each statement of the program writes to the log. Clients can cause many entries: one for each request
// that is reset, for example, and each entry may contain the URL of the request. Without a limit, a client can fill the disk, and hides the
// entries that others need.
package boundedlog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

const (
	// A statement may write burst bytes at once, and perSecond bytes per second in the long run.
	burst, perSecond = 256 << 10, 4 << 10
	// longest is the maximum length of an entry, and longestText of a text in a JSON entry. The stack traces of a panic have up to 64 KiB.
	longest, longestText = 80 << 10, 64 << 10
)

// startup are upstream's source files that log details of a start: a line for each API group, the names of all admission plugins, and that
// a certificate is loaded. Upstream writes them at every verbosity.
var startup = map[string]bool{
	"handler.go": true, "plugins.go": true, "dynamic_serving_content.go": true, "dynamic_cafile_content.go": true, "tlsconfig.go": true,
	"storage_readiness_hook.go": true,
}

// Writer writes entries to another writer. Each call of Write is one entry, in the text or the JSON format of klog.
type Writer struct {
	to       io.Writer
	now      func() time.Time
	starting atomic.Bool

	mu         sync.Mutex
	statements map[string]*statement
}

// statement is a statement that logs. The source code bounds their number.
type statement struct {
	bytes   *rate.Limiter
	dropped int // entries
}

// New returns a Writer that writes to another writer.
func New(to io.Writer) *Writer {
	return &Writer{to: to, now: time.Now, statements: map[string]*statement{}}
}

// Starting makes the writer drop the information entries of startup until Started is called.
func (w *Writer) Starting() { w.starting.Store(true) }

// Started ends what Starting began.
func (w *Writer) Started() { w.starting.Store(false) }

// Write implements io.Writer. It does not fail when it drops an entry.
func (w *Writer) Write(entry []byte) (int, error) {
	n, from := len(entry), whereFrom(entry)
	if w.starting.Load() && isInformation(entry) && startup[fileOf(from)] {
		return n, nil
	}
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

// isInformation reports whether an entry is neither a warning nor an error.
func isInformation(entry []byte) bool {
	if len(entry) > 0 && entry[0] == '{' {
		return bytes.Contains(entry, []byte(`"v":`)) // errors have none
	}
	return len(entry) > 0 && entry[0] == 'I'
}

// fileOf returns the name of the source file of a statement.
func fileOf(statement string) string {
	file, _, _ := strings.Cut(path.Base(statement), ":")
	return file
}

// take returns whether a statement may write that many bytes, and how many of its entries were dropped before.
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

// The header of a text entry of klog, and the field of a JSON entry, that contain the file and the line.
var (
	header = regexp.MustCompile(`^[IWEF]\d{4} \S+ +\d+ ([^\s\]]+:\d+)\] `)
	caller = regexp.MustCompile(`"caller":"([^"]+)"`)
)

// whereFrom returns the statement that wrote an entry: file and line. It is empty for all entries of other forms.
func whereFrom(entry []byte) string {
	beginning := entry[:min(len(entry), 256)]
	for _, form := range []*regexp.Regexp{header, caller} {
		if found := form.FindSubmatch(beginning); found != nil {
			return string(found[1])
		}
	}
	return ""
}

// shorten returns an entry that is not longer than longest.
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

// mark adds to an entry how many entries were dropped before it.
func mark(entry []byte, inJSON bool, dropped int) []byte {
	if inJSON {
		return append(fmt.Appendf(nil, `{"droppedBefore":%d,`, dropped), entry[1:]...)
	}
	return fmt.Appendf(bytes.TrimSuffix(bytes.Clone(entry), []byte("\n")), " droppedBefore=%d\n", dropped)
}
