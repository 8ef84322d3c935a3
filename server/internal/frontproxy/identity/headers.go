// Package identity decides what a front proxy says about users to its backends, in headers, and removes what clients say about themselves.
package identity

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Names are the names of the headers for users. A backend has the same names as the flags --requestheader-*.
type Names struct{ User, Group, ExtraPrefix string }

// DefaultNames are those of Kubernetes.
var DefaultNames = Names{User: "X-Remote-User", Group: "X-Remote-Group", ExtraPrefix: "X-Remote-Extra-"}

// Validate returns an error if a name cannot be that of a header, or if two names could be confused.
func (n Names) Validate() error {
	for field, name := range map[string]string{"user_header": n.User, "group_header": n.Group, "extra_header_prefix": n.ExtraPrefix} {
		if !httpguts.ValidHeaderFieldName(name) || strings.Contains(name, "_") || strings.EqualFold(name, "Authorization") {
			return fmt.Errorf("%s: %q cannot be the name of a header for users", field, name)
		}
	}
	user, group, extra := fold(n.User), fold(n.Group), fold(n.ExtraPrefix)
	if user == group || strings.HasPrefix(user, extra) || strings.HasPrefix(group, extra) {
		return fmt.Errorf("user_header, group_header and extra_header_prefix must differ: got %q, %q and %q", n.User, n.Group, n.ExtraPrefix)
	}
	return nil
}

const uidHeader = "X-Remote-Uid"

// reserved are the prefixes of headers that only the installation sets. A client could otherwise be another user, or send what shards and
// proxies say to each other.
var reserved = []string{"x-remote-", "x-kcp-"}

// counted are headers with the reserved prefix that clients may set: programs that forward requests count them, and a forged one can only
// end a request early.
var counted = map[string]bool{"x-kcp-mount-hops": true, "x-kcp-virtual-resource-hops": true}

// fold returns a form of the name of a header in which all spellings are equal that a server on the way could take for the same name.
func fold(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "-") }

// Guard removes from the requests of clients what only the installation may set.
type Guard struct {
	prefixes []string
	exact    map[string]bool
	// first has the first characters of all of them, in every spelling.
	first [0x80]bool
}

// NewGuard returns a guard for backends with the given names.
func NewGuard(names ...Names) *Guard {
	g := &Guard{prefixes: reserved, exact: map[string]bool{"x-real-ip": true}}
	for _, n := range names {
		g.exact[fold(n.User)], g.exact[fold(n.Group)] = true, true
		g.prefixes = append(g.prefixes[:len(g.prefixes):len(g.prefixes)], fold(n.ExtraPrefix))
	}
	for name := range g.exact {
		g.beginsWith(name)
	}
	for _, prefix := range g.prefixes {
		g.beginsWith(prefix)
	}
	return g
}

// beginsWith adds the first character of a folded name.
func (g *Guard) beginsWith(folded string) {
	for c := range g.first {
		g.first[c] = g.first[c] || strings.HasPrefix(folded, fold(string(rune(c))))
	}
}

// Clean removes the headers, in every spelling.
func (g *Guard) Clean(header http.Header) {
	for name := range header {
		if g.removes(name) {
			delete(header, name)
		}
	}
}

func (g *Guard) removes(name string) bool {
	if !g.mayRemove(name) {
		return false
	}
	folded := fold(name)
	if counted[folded] {
		return name != http.CanonicalHeaderKey(folded)
	}
	if g.exact[folded] {
		return true
	}
	for _, p := range g.prefixes {
		if strings.HasPrefix(folded, p) {
			return true
		}
	}
	return false
}

// mayRemove reports whether a name begins like one that is removed. It is fast for the many that do not.
func (g *Guard) mayRemove(name string) bool {
	return name == "" || name[0] >= 0x80 || g.first[name[0]]
}

// Set says in the header who the user is. The caller has cleaned the header. The groups are shared.
func (n Names) Set(header http.Header, u user.Info) {
	header.Set(n.User, u.GetName())
	if groups := u.GetGroups(); len(groups) > 0 {
		header[http.CanonicalHeaderKey(n.Group)] = slices.Clip(groups)
	}
	if u.GetUID() != "" {
		header.Set(uidHeader, u.GetUID())
	}
	for key, values := range u.GetExtra() {
		if len(values) > 0 {
			name := http.CanonicalHeaderKey(n.ExtraPrefix + escape(key))
			header[name] = append(header[name], values...) // another key may have the same name
		}
	}
}

// escape encodes the key of an extra value, so that it can be part of the name of a header. Header names are not case sensitive: upper case
// letters are encoded too.
func escape(key string) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	b.Grow(len(key) + 2*4) // most keys have no more than four such characters
	for i := range len(key) {
		c := key[i]
		if c == '%' || 'A' <= c && c <= 'Z' || !httpguts.IsTokenRune(rune(c)) || c >= 0x80 {
			b.Write([]byte{'%', digits[c>>4], digits[c&0xf]})
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}
