// Package mapping reads the mapping file of a front proxy: which backend serves which paths.
package mapping

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/kcplane/kcp/server/internal/frontproxy/identity"
)

const (
	// Clusters is the path of logical clusters. The shard that holds the logical cluster serves the request, whatever backend the entry has.
	Clusters = "/clusters/"
	// placeholder is the segment of a path that stands for a logical cluster.
	placeholder = "{cluster}"
	// maxEntries is the maximum number of entries: every request is compared with them.
	maxEntries = 1000
)

// Entry is one entry of the file.
type Entry struct {
	// Path is the prefix of the paths that the entry serves.
	Path string
	// Backend is the URL that serves them. The path of the request is added to it.
	Backend *url.URL
	// CAFile has the authorities of the backend's certificate. Without it, those of the system are used.
	CAFile string
	// CertFile and KeyFile are the client certificate, with which the backend trusts the headers of users.
	CertFile, KeyFile string
	// Headers are the names of the headers for users.
	Headers identity.Names
	// Source is the file and the line of the entry, for errors; empty without a file.
	Source string

	segments []string
	// cluster is the position of the segment that names a logical cluster; -1 without one.
	cluster int
}

// Mapping is a mapping file. The zero Mapping matches nothing.
//
// Invariants:
//   - No two entries have the same path.
//   - An entry stands before all entries whose paths are shorter, and paths are compared by segments: "/a/" serves "/a" and "/a/b",
//     not "/ab".
type Mapping struct{ entries []*Entry }

// Entries returns all entries, those with the longest paths first.
func (m Mapping) Entries() []*Entry { return m.entries }

// Match is the entry for a path.
type Match struct {
	*Entry
	// Cluster is the logical cluster that the path names at the position that the entry defines, as a name or a path; empty without one.
	Cluster string
	// position is the segment of the path that has Cluster.
	position int
}

// Match returns the entry with the longest prefix of a decoded path; false without one.
func (m Mapping) Match(path string) (Match, bool) {
	segments := split(path)
	for _, e := range m.entries {
		if !e.matches(segments) {
			continue
		}
		match := Match{Entry: e, position: e.cluster}
		if e.cluster >= 0 && e.cluster < len(segments) {
			match.Cluster = segments[e.cluster]
		}
		return match, true
	}
	return Match{}, false
}

// Replace returns path with name in the place of Cluster.
func (m Match) Replace(path, name string) string {
	segments := strings.Split(path, "/")
	segments[m.position+1] = name // the first segment is before the first slash
	return strings.Join(segments, "/")
}

// split returns the segments of a path.
func split(path string) []string {
	trimmed := strings.Trim(path, "/")
	if trimmed == "" {
		return nil
	}
	return strings.Split(trimmed, "/")
}

// IsClusters reports whether the entry is that of logical clusters, so that the index chooses the backend.
func (e *Entry) IsClusters() bool {
	return len(e.segments) == 1 && e.segments[0] == strings.Trim(Clusters, "/")
}

func (e *Entry) matches(segments []string) bool {
	if len(segments) < len(e.segments) {
		return false
	}
	for i, s := range e.segments {
		if s != placeholder && s != segments[i] {
			return false
		}
	}
	return true
}

// New returns a mapping of entries, whose paths it checks.
func New(entries []*Entry) (Mapping, error) {
	var m Mapping
	for _, e := range entries {
		if err := m.add(e); err != nil {
			return Mapping{}, err
		}
	}
	m.sort()
	return m, nil
}

func (m *Mapping) add(e *Entry) error {
	if !strings.HasPrefix(e.Path, "/") || strings.Contains(e.Path, "//") || strings.ContainsAny(e.Path, "%?#*") {
		return fmt.Errorf("path %q: must begin with / and have no empty segment and none of the characters %%?#*", e.Path)
	}
	e.segments, e.cluster = split(e.Path), -1
	for i, s := range e.segments {
		switch {
		case s == "." || s == "..":
			return fmt.Errorf("path %q: must have no relative segment", e.Path)
		case s == placeholder && e.cluster >= 0:
			return fmt.Errorf("path %q: must have %s once at most", e.Path, placeholder)
		case s == placeholder:
			e.cluster = i
		case strings.ContainsAny(s, "{}"):
			return fmt.Errorf("path %q: %s must be a whole segment, and is the only placeholder", e.Path, placeholder)
		}
	}
	if n := len(e.segments); e.cluster < 0 && n > 0 && e.segments[n-1] == "clusters" {
		e.cluster = n
	}
	for _, other := range m.entries {
		if slices.Equal(other.segments, e.segments) {
			return fmt.Errorf("path %q: another entry has the same path", e.Path)
		}
	}
	if len(m.entries) >= maxEntries {
		return fmt.Errorf("a mapping has %d entries at most", maxEntries)
	}
	m.entries = append(m.entries, e)
	return nil
}

// sort orders the entries: the longest path first, and a segment before a placeholder.
func (m *Mapping) sort() {
	slices.SortStableFunc(m.entries, func(a, b *Entry) int {
		if d := len(b.segments) - len(a.segments); d != 0 {
			return d
		}
		for i := range a.segments {
			if x, y := a.segments[i] == placeholder, b.segments[i] == placeholder; x != y {
				if y {
					return -1
				}
				return 1
			}
		}
		return 0
	})
}

// fields are the settings of an entry, by their keys in the file.
func (e *Entry) fields() map[string]*string {
	return map[string]*string{
		"path": &e.Path, "backend": new(string), "backend_server_ca": &e.CAFile, "proxy_client_cert": &e.CertFile, "proxy_client_key": &e.KeyFile,
		"user_header": &e.Headers.User, "group_header": &e.Headers.Group, "extra_header_prefix": &e.Headers.ExtraPrefix,
	}
}

// Parse reads a mapping file. Errors have the name of the file, and the line.
func Parse(name string, text []byte) (Mapping, error) {
	var document, further yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	if err := decoder.Decode(&document); err != nil && !errors.Is(err, io.EOF) {
		return Mapping{}, syntaxError(name, text, err)
	}
	at := func(n *yaml.Node, err error) error { return fmt.Errorf("%s:%d: %w", name, n.Line, err) }
	switch err := decoder.Decode(&further); {
	case err == nil:
		return Mapping{}, at(&further, errors.New("must not have more than one document"))
	case !errors.Is(err, io.EOF):
		return Mapping{}, syntaxError(name, text, err)
	}
	if len(document.Content) != 1 || document.Content[0].Kind != yaml.SequenceNode {
		return Mapping{}, fmt.Errorf("%s:1: must be a list of entries, each with a path and a backend", name)
	}
	var m Mapping
	for _, item := range document.Content[0].Content {
		e, line, err := parseEntry(item)
		if err == nil {
			e.Source = fmt.Sprintf("%s:%d", name, item.Line)
			err = m.add(e)
		}
		if err != nil {
			return Mapping{}, at(line, err)
		}
	}
	if len(m.entries) == 0 {
		return Mapping{}, fmt.Errorf("%s:1: must have an entry", name)
	}
	m.sort()
	return m, nil
}

// syntaxError returns an error of the YAML parser with the name of the file and the line. The parser names neither the first line, nor one
// with a character that it does not accept.
func syntaxError(name string, text []byte, err error) error {
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 1
	if _, scanned := fmt.Sscanf(message, "line %d:", &line); scanned == nil {
		_, message, _ = strings.Cut(message, ": ")
	} else if at := bytes.IndexFunc(text, isRefused); at >= 0 {
		line += bytes.Count(text[:at], []byte("\n"))
	}
	return fmt.Errorf("%s:%d: %s", name, line, message)
}

// isRefused reports whether a YAML file must not contain a character.
func isRefused(r rune) bool {
	return r == utf8.RuneError || unicode.IsControl(r) && !strings.ContainsRune("\t\n\r", r)
}

// parseEntry returns an entry, and the node to which an error belongs.
func parseEntry(item *yaml.Node) (*Entry, *yaml.Node, error) {
	if item.Kind != yaml.MappingNode {
		return nil, item, fmt.Errorf("an entry must be an object with a path and a backend")
	}
	e := &Entry{Headers: identity.DefaultNames}
	fields, lines := e.fields(), map[string]*yaml.Node{}
	for i := 0; i+1 < len(item.Content); i += 2 {
		key, value := item.Content[i], item.Content[i+1]
		field, known := fields[key.Value]
		switch _, again := lines[key.Value]; {
		case !known:
			return nil, key, fmt.Errorf("unknown field %q", key.Value)
		case again:
			return nil, key, fmt.Errorf("field %q is set twice", key.Value)
		case value.Kind != yaml.ScalarNode || value.Tag != "!!str":
			return nil, value, fmt.Errorf("%s: must be a string", key.Value)
		}
		*field, lines[key.Value] = value.Value, value
	}
	for _, required := range []string{"path", "backend"} {
		if *fields[required] == "" {
			return nil, item, fmt.Errorf("%s is required", required)
		}
	}
	var err error
	if e.Backend, err = ParseBackend(*fields["backend"]); err != nil {
		return nil, lines["backend"], fmt.Errorf("backend: %w", err)
	}
	if (e.CertFile == "") != (e.KeyFile == "") {
		return nil, item, fmt.Errorf("proxy_client_cert and proxy_client_key must be set together")
	}
	if err := e.Headers.Validate(); err != nil {
		return nil, item, err
	}
	return e, item, nil
}

// ParseBackend returns the URL of a backend. It requires https: the backend trusts what the proxy says about users.
func ParseBackend(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, err
	}
	if u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.RawPath != "" {
		return nil, fmt.Errorf("%q is not the URL of a server: use a URL such as https://kcp.example.com:6443", text)
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	return u, nil
}

// Names returns the names of headers for users of all entries. A client must not set any of them, whichever entry its request matches.
func (m Mapping) Names() []identity.Names {
	names := []identity.Names{identity.DefaultNames}
	for _, e := range m.entries {
		if !slices.Contains(names, e.Headers) {
			names = append(names, e.Headers)
		}
	}
	return names
}
