// Package location does the arithmetic of places: which workspace the URL of a server names, and where a name that a user
// types leads from there. It asks no server.
package location

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// Root is the path of the workspace that all others are below.
const Root = "root"

// Location is a place that a kubeconfig points to.
type Location struct {
	base, cluster, host string
}

// Parse takes the URL of a server in a kubeconfig apart. What is not below /clusters/ is a place too, but no workspace.
func Parse(server string) (Location, error) {
	if !strings.Contains(server, "://") {
		server = "https://" + server
	}
	u, err := url.Parse(server)
	if err != nil || u.Host == "" {
		return Location{}, fmt.Errorf("the URL %q of the server cannot be read", server)
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

// Cluster is the path of the workspace, for example root:org:team, or the name of a logical cluster followed by the names
// of workspaces below it. It is empty where no workspace is.
func (l Location) Cluster() string { return l.cluster }

// IsWorkspace tells whether the place is a workspace.
func (l Location) IsWorkspace() bool { return l.cluster != "" }

// At is the workspace with a path on the same server.
func (l Location) At(path string) Location { return Location{base: l.base, cluster: path} }

// Child is the workspace of that name directly below this one.
func (l Location) Child(name string) Location { return l.At(l.cluster + ":" + name) }

// Base is the URL of the server, below which workspaces are.
func (l Location) Base() string { return l.base }

// URL is the address for Kubernetes clients.
func (l Location) URL() string {
	if l.cluster == "" {
		return l.host
	}
	return l.base + "/clusters/" + l.cluster
}

// Parent is the workspace that this one is directly below. The first workspace of a path has none.
func (l Location) Parent() (Location, bool) {
	segments := strings.Split(l.cluster, ":")
	if len(segments) <= first(segments) {
		return Location{}, false
	}
	return l.At(strings.Join(segments[:len(segments)-1], ":")), true
}

// IsCanonical tells whether the path says where the workspace is: one that begins with the name of a logical cluster does not.
func (l Location) IsCanonical() bool {
	begin, _, _ := strings.Cut(l.cluster, ":")
	return begin == Root || begin == "user" || begin == "system"
}

// String is what people read: the path, or the URL where there is none.
func (l Location) String() string {
	if l.cluster == "" {
		return l.host
	}
	return l.cluster
}

var segment = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// ValidPath tells whether path can be that of a workspace.
func ValidPath(path string) bool {
	for _, s := range strings.Split(path, ":") {
		if !segment.MatchString(s) {
			return false
		}
	}
	return true
}

// IsAbsolute tells whether a name means the same from everywhere.
func IsAbsolute(name string) bool {
	return strings.HasPrefix(name, ":") || strings.HasPrefix(name, "/")
}

// ErrNoWorkspace is why a relative name leads nowhere from a place that is no workspace.
var ErrNoWorkspace = errors.New("not a workspace")

// Resolve returns where name leads from l: an absolute one begins with a colon, and ".", ".." and names separated by colons
// or slashes lead on from there.
func (l Location) Resolve(name string) (Location, error) {
	colons := strings.ReplaceAll(name, "/", ":")
	var at []string
	rest, absolute := strings.CutPrefix(colons, ":")
	switch {
	case colons == "":
		return Location{}, errors.New("the name of a workspace is empty")
	case colons == ":":
		return l.At(Root), nil
	case !absolute && !l.IsWorkspace():
		return Location{}, fmt.Errorf("%s is %w (it is not below /clusters/), so %q leads nowhere from there; "+
			"give a path that begins with a colon, like :root:%s",
			l, ErrNoWorkspace, name, strings.Trim(rest, ".:"))
	case !absolute:
		at = strings.Split(l.cluster, ":")
	}
	for _, s := range strings.Split(strings.TrimSuffix(rest, ":"), ":") {
		switch {
		case s == ".":
		case s == ".." && len(at) <= first(at):
			return Location{}, fmt.Errorf("%q leads above %s, which has no parent", name, strings.Join(at, ":"))
		case s == "..":
			at = at[:len(at)-1]
		case !segment.MatchString(s):
			return Location{}, fmt.Errorf("%q cannot be the path of a workspace: want names of lower case letters, digits and dashes, "+
				"separated by colons, and %q is none", name, s)
		default:
			at = append(at, s)
		}
	}
	if len(at) == 0 {
		return Location{}, fmt.Errorf("%q names no workspace", name)
	}
	return l.At(strings.Join(at, ":")), nil
}

// first is the number of segments that the first workspace of a path has: user:<name> and system:<name> are two long.
func first(segments []string) int {
	if len(segments) > 0 && (segments[0] == "user" || segments[0] == "system") {
		return 2
	}
	return 1
}
