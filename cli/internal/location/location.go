// Package location parses the server URL of a kubeconfig and resolves paths of workspaces relative to it. It sends no requests.
package location

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// Root is the path of the root workspace.
const Root = "root"

// Location is the target of a kubeconfig: a workspace, or another URL.
type Location struct {
	base, cluster, host string
}

// Parse parses the server URL of a kubeconfig. A URL without a /clusters/ path is a location, but not a workspace.
func Parse(server string) (Location, error) {
	if !strings.Contains(server, "://") {
		server = "https://" + server
	}
	u, err := url.Parse(server)
	if err != nil || u.Host == "" {
		return Location{}, fmt.Errorf("invalid server URL %q", server)
	}
	origin := u.Scheme + "://" + u.Host
	path := strings.TrimRight(u.Path, "/")
	location := Location{host: origin + path}
	if before, _, virtual := strings.Cut(path+"/", "/services/"); virtual {
		location.base = origin + before
		return location, nil
	}
	before, cluster, found := strings.Cut(path, "/clusters/")
	if !found || !ValidPath(cluster) {
		location.base = origin + strings.TrimSuffix(before, "/clusters")
		return location, nil
	}
	location.base, location.cluster = origin+before, cluster
	return location, nil
}

// Cluster returns the path of the workspace, for example root:org:team. A path can also start with the name of a logical cluster. It
// is empty if the location is not a workspace.
func (l Location) Cluster() string { return l.cluster }

// IsWorkspace reports whether the location is a workspace.
func (l Location) IsWorkspace() bool { return l.cluster != "" }

// At returns the workspace with a path on the same server.
func (l Location) At(path string) Location { return Location{base: l.base, cluster: path} }

// Child returns a child workspace.
func (l Location) Child(name string) Location { return l.At(l.cluster + ":" + name) }

// Base returns the URL of the server without the path of the workspace.
func (l Location) Base() string { return l.base }

// URL returns the server URL for Kubernetes clients.
func (l Location) URL() string {
	if l.cluster == "" {
		return l.host
	}
	return l.base + "/clusters/" + l.cluster
}

// Parent returns the parent workspace. The first workspace of a path has none.
func (l Location) Parent() (Location, bool) {
	segments := strings.Split(l.cluster, ":")
	if len(segments) <= first(segments) {
		return Location{}, false
	}
	return l.At(strings.Join(segments[:len(segments)-1], ":")), true
}

// IsCanonical reports whether the path is canonical, that is, does not start with the name of a logical cluster.
func (l Location) IsCanonical() bool {
	begin, _, _ := strings.Cut(l.cluster, ":")
	return begin == Root || begin == "user" || begin == "system"
}

// String returns the path, or the URL if the location is not a workspace.
func (l Location) String() string {
	if l.cluster == "" {
		return l.host
	}
	return l.cluster
}

var segment = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// ValidPath reports whether path is a valid path of a workspace.
func ValidPath(path string) bool {
	for _, s := range strings.Split(path, ":") {
		if !segment.MatchString(s) {
			return false
		}
	}
	return true
}

// IsAbsolute reports whether a path is absolute.
func IsAbsolute(name string) bool {
	return strings.HasPrefix(name, ":") || strings.HasPrefix(name, "/")
}

// ErrNoWorkspace is the reason why a relative path cannot be resolved.
var ErrNoWorkspace = errors.New("not a workspace")

// Resolve resolves a path relative to l. Segments are separated by colons or slashes, an absolute path starts with a separator, and
// "." and ".." have their usual meaning.
func (l Location) Resolve(name string) (Location, error) {
	colons := strings.ReplaceAll(name, "/", ":")
	var at []string
	rest, absolute := strings.CutPrefix(colons, ":")
	switch {
	case colons == "":
		return Location{}, errors.New("path of the workspace is empty")
	case colons == ":":
		return l.At(Root), nil
	case !absolute && !l.IsWorkspace():
		return Location{}, fmt.Errorf("%s is %w (the URL has no /clusters/ path), so the relative path %q cannot be resolved; "+
			"pass an absolute path, such as :root:%s",
			l, ErrNoWorkspace, name, strings.Trim(rest, ".:"))
	case !absolute:
		at = strings.Split(l.cluster, ":")
	}
	for _, s := range strings.Split(strings.TrimSuffix(rest, ":"), ":") {
		switch {
		case s == ".":
		case s == ".." && len(at) <= first(at):
			return Location{}, fmt.Errorf("invalid path %q: %s has no parent", name, strings.Join(at, ":"))
		case s == "..":
			at = at[:len(at)-1]
		case !segment.MatchString(s):
			return Location{}, fmt.Errorf("invalid path %q: segment %q must be lower case letters, digits or dashes, and start and end with a "+
				"letter or digit", name, s)
		default:
			at = append(at, s)
		}
	}
	if len(at) == 0 {
		return Location{}, fmt.Errorf("invalid path %q: it has no segments", name)
	}
	return l.At(strings.Join(at, ":")), nil
}

// first returns the number of segments of the first workspace of a path: user:<name> and system:<name> have two.
func first(segments []string) int {
	if len(segments) > 0 && (segments[0] == "user" || segments[0] == "system") {
		return 2
	}
	return 1
}
