package frontproxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/server/internal/frontproxy/answer"
	"github.com/kcplane/kcp/server/internal/frontproxy/forward"
	"github.com/kcplane/kcp/server/internal/frontproxy/identity"
	"github.com/kcplane/kcp/server/internal/frontproxy/index"
	"github.com/kcplane/kcp/server/internal/frontproxy/mapping"
	"github.com/kcplane/kcp/server/internal/frontproxy/questions"
	"github.com/kcplane/kcp/server/internal/request/path"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/shards/tree"
	"github.com/kcplane/kcp/server/internal/tenancy/pathindex"
	"github.com/kcplane/kcp/server/logicalcluster"
)

const (
	services = "/services/"
	// shardPrefix and the name of a shard before a path below /services/ choose the shard, for virtual workspaces over all logical clusters of
	// a shard. A shard with --shard-virtual-workspace-url=https://<proxy>/shards/<name> is served this way.
	shardPrefix = "/shards/"
)

// internal are paths of shards for shards and front proxies. This proxy is one, so no client may use its certificate there.
var internal = []string{"/services/peers", "/services/cache"}

// destination is where a request goes.
type destination struct {
	target forward.Target
	// resolved is the path that was resolved; empty if nothing was.
	resolved string
	// pathOf returns the path of the request for the name of a logical cluster; nil if nothing was resolved.
	pathOf  func(cluster string) string
	headers identity.Names
	// credentials reports that the backend gets the credentials of the client too: a mounted server authenticates them again.
	credentials bool
}

// checkPath returns an error for a path that two servers could understand differently.
func checkPath(r *http.Request) error {
	u := r.URL
	if r.Method == http.MethodConnect || u.Opaque != "" || !strings.HasPrefix(u.Path, "/") {
		return apierrors.NewBadRequest("the target of the request must be a path")
	}
	lower := strings.ToLower(u.EscapedPath())
	for _, trick := range []string{"%2f", "%5c", "%00", "%25"} {
		if strings.Contains(lower, trick) {
			return apierrors.NewBadRequest(fmt.Sprintf("the path contains the escape %s, which no Kubernetes path needs", trick))
		}
	}
	if strings.Contains(u.Path, "//") {
		return apierrors.NewBadRequest("the path contains an empty segment")
	}
	for segment := range strings.SplitSeq(u.Path[1:], "/") {
		if segment == "." || segment == ".." {
			return apierrors.NewBadRequest("the path contains a relative segment")
		}
	}
	return nil
}

// below reports whether a path is one of the prefixes, or below it.
func below(path string, prefixes ...string) bool {
	for _, p := range prefixes {
		if path == p || strings.HasPrefix(path, p+"/") {
			return true
		}
	}
	return false
}

// destination returns where a request goes. The error is for the client.
func (p *Proxy) destination(r *http.Request, c caller) (destination, error) {
	if err := checkPath(r); err != nil {
		return destination{}, err
	}
	files := p.files.Load()
	requested := r.URL.Path
	if named, rest, ok := cutShard(requested); ok {
		if below(rest, internal...) {
			return destination{}, errInternal(rest)
		}
		return p.atShard(files, named, rest)
	}
	if below(requested, internal...) {
		return destination{}, errInternal(requested)
	}
	match, ok := files.mapping.Match(requested)
	if !ok {
		return destination{}, notFound("this front proxy serves no such path; it serves logical clusters at /clusters/<name>/")
	}
	switch {
	case match.IsClusters():
		return p.cluster(r, c, files, match)
	case match.Cluster != "" && match.Cluster != "*":
		place, _, err := p.resolve(r.Context(), c, match.Cluster)
		if err != nil {
			return destination{}, err
		}
		if place.Mount != "" {
			return destination{}, forbidden(match.Cluster)
		}
		return p.backend(files, match, match.Replace(requested, string(place.Cluster))), nil
	}
	if _, ours := p.shards.At(match.Backend); ours && strings.HasPrefix(requested, services) {
		if at := clusterIn(requested); at > 0 {
			return p.view(r, c, files, match, at)
		}
	}
	return p.backend(files, match, requested), nil
}

func (p *Proxy) backend(files *files, match mapping.Match, path string) destination {
	return destination{target: forward.Target{Base: match.Backend, Path: path, Via: files.connections[match.Entry]}, headers: match.Headers}
}

// cutShard splits /shards/<name>/services/….
func cutShard(path string) (name, rest string, ok bool) {
	after, ok := strings.CutPrefix(path, shardPrefix)
	if !ok {
		return "", "", false
	}
	name, rest, _ = strings.Cut(after, "/")
	return name, "/" + rest, strings.HasPrefix("/"+rest, services) && peers.ValidName(name)
}

// atShard returns the destination of a path at a shard that the client names.
func (p *Proxy) atShard(files *files, name, path string) (destination, error) {
	base, known := p.shards.URL(name)
	if !known {
		return destination{}, notFound(fmt.Sprintf("there is no shard %q", name))
	}
	return destination{target: forward.Target{Shard: name, Base: base, Path: path, Via: files.shards}, headers: files.headers}, nil
}

// cluster returns the destination of a path below /clusters/.
func (p *Proxy) cluster(r *http.Request, c caller, files *files, match mapping.Match) (destination, error) {
	if !strings.HasPrefix(r.URL.Path, mapping.Clusters) {
		return destination{}, notFound("the path names no logical cluster")
	}
	cluster, rest, err := path.Split(r.URL)
	switch {
	case err != nil:
		return destination{}, err
	case cluster.Wildcard:
		return destination{}, answer.Status(http.StatusForbidden, metav1.StatusReasonForbidden, "a front proxy serves single logical clusters; "+
			"send requests for all logical clusters of a shard to the shard")
	case cluster.Name.IsSystem():
		return destination{}, forbidden(string(cluster.Name))
	}
	pathOf := func(name string) string { return mapping.Clusters + name + rest }
	if cluster.Name == logicalcluster.Root && rest == homeOfUser {
		if target, ok := p.home(r, c, files, pathOf(string(logicalcluster.Root))); ok {
			return destination{target: target, headers: match.Headers}, nil
		}
	}
	place, resolved, err := p.resolve(r.Context(), c, string(cluster.Name))
	if err != nil {
		return destination{}, err
	}
	target, err := p.targetOf(files, place, pathOf)
	return destination{target: target, resolved: resolved, pathOf: pathOf, headers: match.Headers, credentials: place.Mount != ""}, err
}

// homeOfUser is the path of the home of the user below root.
const homeOfUser = "/apis/tenancy.kcp.io/v1alpha1/workspaces/~"

// home returns the target of a request for the home of its user, if another shard than the root shard has it: that shard responds while the
// root shard is down. The root shard creates homes, and decides about impersonation in root.
func (p *Proxy) home(r *http.Request, c caller, files *files, path string) (forward.Target, bool) {
	if r.Method != http.MethodGet || c.user == nil || len(r.Header[authenticationv1.ImpersonateUserHeader]) > 0 {
		return forward.Target{}, false
	}
	found := p.shards.index.Lookup(string(pathindex.HomeCluster(c.user.GetName())))
	if found.State != index.Found || found.Place.Unavailable || found.Place.Shard == peers.Root {
		return forward.Target{}, false
	}
	base, known := p.shards.URL(found.Place.Shard)
	return forward.Target{Shard: found.Place.Shard, Base: base, Path: path, Via: files.shards}, known
}

// clusterIn returns the position of the segment with the logical cluster in the path of a virtual workspace; 0 without one.
func clusterIn(path string) int {
	segments := strings.Split(path, "/") // "", services, <view>, …
	if len(segments) < 4 {
		return 0
	}
	at := map[string]int{"apiexport": 6, "replication": 6, "initializingworkspaces": 5, "terminatingworkspaces": 5, "migratingworkspaces": 4,
		"apiresourceschema": 3}[segments[2]]
	switch {
	case at == 0 || len(segments) <= at || at > 3 && segments[at-1] != "clusters":
		return 0
	case segments[at] == "*" || segments[at] == "":
		return 0
	}
	return at
}

// view returns the destination of a virtual workspace for one logical cluster: the shard that holds it.
func (p *Proxy) view(r *http.Request, c caller, files *files, match mapping.Match, at int) (destination, error) {
	segments := strings.Split(r.URL.Path, "/")
	if !logicalcluster.ValidPath(segments[at]) {
		return destination{}, apierrors.NewBadRequest("the path names an invalid logical cluster")
	}
	place, resolved, err := p.resolve(r.Context(), c, segments[at])
	if err != nil {
		return destination{}, err
	}
	if place.Mount != "" {
		return destination{}, forbidden(segments[at])
	}
	pathOf := func(name string) string {
		segments[at] = name
		return strings.Join(segments, "/")
	}
	target, err := p.targetOf(files, place, pathOf)
	return destination{target: target, resolved: resolved, pathOf: pathOf, headers: match.Headers}, err
}

// resolve returns the place of a path, and the canonical path.
func (p *Proxy) resolve(ctx context.Context, c caller, path string) (index.Place, string, error) {
	canonical := index.Canonical(path)
	place, err := p.resolver.Resolve(ctx, c.client, canonical)
	switch {
	case errors.Is(err, questions.ErrAbsent):
		return index.Place{}, "", forbidden(path)
	case err != nil:
		return index.Place{}, "", err
	case place.Unavailable:
		return index.Place{}, "", answer.Unavailable("workspace " + path + " is unavailable")
	}
	return place, canonical, nil
}

// targetOf returns the target for a place. pathOf returns the path of the request for the name of a logical cluster.
func (p *Proxy) targetOf(files *files, place index.Place, pathOf func(cluster string) string) (forward.Target, error) {
	base, known := p.shards.URL(place.Shard)
	if !known {
		return forward.Target{}, answer.Unavailable(fmt.Sprintf(
			"shard %q, which holds the workspace, is not known to this front proxy; try again", place.Shard))
	}
	name := string(place.Cluster)
	if place.Mount != "" {
		name += ":" + place.Mount // the shard knows the name of the parent, not always its path
	}
	return forward.Target{Shard: place.Shard, Base: base, Path: pathOf(name), Via: files.shards,
		Expect: &tree.Expectation{Cluster: place.Cluster, UID: place.UID, Epoch: place.Epoch}}, nil
}

// next returns the target after a marker.
func (p *Proxy) next(ctx context.Context, c caller, d destination, last forward.Target, m tree.Marker) (forward.Target, error) {
	at := *last.Expect
	if m.Verdict == tree.Moved && (m.To != last.Shard || m.Epoch != at.Epoch) {
		base, known := p.shards.URL(m.To)
		if !known {
			return forward.Target{}, busy(at.Cluster, fmt.Sprintf("shard %q, to which it has moved, is not known to this front proxy", m.To))
		}
		last.Shard, last.Base, last.Expect = m.To, base, &tree.Expectation{Cluster: at.Cluster, UID: at.UID, Epoch: m.Epoch}
		return last, nil
	}
	if m.Verdict == tree.Moving { // the index may have the new place by now
		place, _, err := p.resolve(ctx, c, d.resolved)
		if err != nil || (place.Mount != "") != d.credentials {
			return last, err
		}
		return p.targetOf(p.files.Load(), place, d.pathOf)
	}
	place, err := p.resolver.Confirm(ctx, c.client, d.resolved)
	switch {
	case errors.Is(err, questions.ErrAbsent):
		return forward.Target{}, forbidden(d.resolved)
	case err != nil:
		return forward.Target{}, err
	case place.Shard == last.Shard && place.Cluster == at.Cluster && (place.UID == at.UID || place.UID == tree.UID{}) &&
		(place.Epoch == at.Epoch || place.Epoch == 0):
		return forward.Target{}, busy(at.Cluster, fmt.Sprintf("shard %q should hold it, and does not", last.Shard))
	case (place.Mount != "") != d.credentials:
		return forward.Target{}, busy(at.Cluster, "its mount has just changed")
	}
	return p.targetOf(p.files.Load(), place, d.pathOf)
}

func busy(cluster logicalcluster.Name, why string) error {
	return answer.Unavailable(fmt.Sprintf("logical cluster %q cannot be reached now: %s; try again", cluster, why))
}

// forbidden returns the error for a workspace that does not exist, which is that for one to which the user has no access.
func forbidden(path string) error {
	return apierrors.NewForbidden(schema.GroupResource{Group: "tenancy.kcp.io", Resource: "workspaces"}, path,
		errors.New("workspace access not permitted"))
}

func errInternal(path string) error {
	return answer.Status(http.StatusForbidden, metav1.StatusReasonForbidden, path+" is for shards and front proxies")
}

func notFound(message string) error {
	return answer.Status(http.StatusNotFound, metav1.StatusReasonNotFound, message)
}
