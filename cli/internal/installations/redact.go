package installations

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"regexp"
	"slices"
)

// redactor removes credentials from text. What Secrets contain is removed wherever it is; patterns find other credentials.
type redactor struct{ values [][]byte }

// minSecret is the length from which the value of a Secret is removed. Shorter ones, such as "true", are also in other text.
const minSecret = 8

var redacted = []byte("[redacted]")

// keep remembers the values of a Secret, as text and in base64.
func (r *redactor) keep(value []byte) {
	add := func(v []byte) {
		if v = bytes.TrimSpace(v); len(v) >= minSecret {
			r.values = append(r.values, v)
		}
	}
	add(value)
	add([]byte(base64.StdEncoding.EncodeToString(value)))
	for line := range bytes.Lines(value) { // of a file, in a log that has one line of it
		if len(line) >= 2*minSecret {
			add(line)
		}
	}
}

// patterns find credentials that no Secret of the namespace contains.
var patterns = []struct {
	find    *regexp.Regexp
	replace string
}{
	{regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)`), "[redacted]"},
	{regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*`), "[redacted]"},
	{regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}`), "$1 [redacted]"},
	{regexp.MustCompile(`://[^/\s:@"']+:[^/\s@"']+@`), "://[redacted]@"},
	{regexp.MustCompile(`(?i)([a-z0-9_.-]*(?:password|passwd|token|secret[-_]?key|client[-_]?secret|api[-_]?key|access[-_]?key)["']?` +
		`[ \t]*[=:][ \t]*)("[^"\n]+"|'[^'\n]+'|[^\s,;"'}]+)`), "$1[redacted]"},
}

// redact returns text without credentials.
func (r *redactor) redact(text []byte) []byte {
	// Longer values first: a shorter one may be a part of them.
	slices.SortFunc(r.values, func(a, b []byte) int { return cmp.Or(len(b)-len(a), bytes.Compare(a, b)) })
	r.values = slices.CompactFunc(r.values, bytes.Equal)
	for _, value := range r.values {
		text = bytes.ReplaceAll(text, value, redacted)
	}
	for _, p := range patterns {
		text = p.find.ReplaceAll(text, []byte(p.replace))
	}
	return text
}
