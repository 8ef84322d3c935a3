package cacheserver

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Prefix is the path of the API.
const Prefix = "/services/cache/"

// all in place of a shard or a logical cluster means all of them.
const all = "*"

var shardName = regexp.MustCompile(`^[a-z0-9-:]{1,61}$`)

// target is what a request addresses. Of the fields after place, each needs the one before; namespace is optional.
type target struct {
	place     storage.Place
	rest      []string // after the logical cluster, starting with api or apis
	group     string
	version   string
	namespace string
	resource  string
	identity  string
	name      string
}

// gvr returns the resource without its identity.
func (t target) gvr() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: t.group, Version: t.version, Resource: t.resource}
}

// one reports whether the place is one logical cluster of one shard.
func (t target) one() bool { return t.place.Shard != "" && t.place.Cluster != "" }

// parse returns the target of a URL. It refuses every path that has another meaning after it is decoded or cleaned, so that what is
// authorized is what is read.
func parse(u *url.URL) (target, bool) {
	relative, ok := strings.CutPrefix(u.EscapedPath(), Prefix)
	if !ok {
		return target{}, false
	}
	parts := strings.Split(relative, "/")
	for i, part := range parts {
		decoded, err := url.PathUnescape(part)
		if err != nil || decoded == "" || len(content.IsPathSegmentName(decoded)) > 0 {
			return target{}, false
		}
		parts[i] = decoded
	}
	if len(parts) < 5 || parts[0] != "shards" || parts[2] != "clusters" {
		return target{}, false
	}
	t := target{rest: parts[4:]}
	if parts[1] != all {
		t.place.Shard, ok = parts[1], shardName.MatchString(parts[1])
	}
	if parts[3] != all {
		t.place.Cluster, ok = logicalcluster.Name(parts[3]), ok && logicalcluster.ValidPath(parts[3])
	}
	if !ok || !t.parseResource() {
		return target{}, false
	}
	return t, true
}

// parseResource reads the group, the version and the resource.
func (t *target) parseResource() bool {
	parts := t.rest[1:]
	next := func() string {
		if len(parts) == 0 {
			return ""
		}
		part := parts[0]
		parts = parts[1:]
		return part
	}
	switch t.rest[0] {
	case "api":
	case "apis":
		t.group = next()
	default:
		return len(t.rest) == 1
	}
	t.version = next()
	if len(parts) > 1 && parts[0] == "namespaces" {
		t.namespace, parts = parts[1], parts[2:]
	}
	t.resource, t.identity, _ = strings.Cut(next(), ":")
	t.name = next()
	return len(parts) == 0
}

// verb returns the verb of a request to a resource.
func (t target) verb(r *http.Request) string {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		switch watches := r.URL.Query().Get("watch"); {
		case t.name != "":
			return "get"
		case watches != "" && watches != "false" && watches != "0":
			return "watch"
		}
		return "list"
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		if t.name == "" {
			return "deletecollection"
		}
		return "delete"
	}
	return strings.ToLower(r.Method)
}

// info returns what the handlers of Kubernetes need to know of a request.
func (t target) info(r *http.Request) *request.RequestInfo {
	info := &request.RequestInfo{
		Path: r.URL.Path, Verb: strings.ToLower(r.Method), APIPrefix: t.rest[0], APIGroup: t.group, APIVersion: t.version,
	}
	if t.resource != "" {
		info.IsResourceRequest, info.Verb = true, t.verb(r)
		info.Namespace, info.Resource, info.Name, info.Parts = t.namespace, t.resource, t.name, t.rest
	}
	return info
}
