package endpoints

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kcplane/kcp/server/internal/process/outbound"
	"github.com/kcplane/kcp/server/virtual"
)

// Allowed is a virtual workspace to which the exports of one workspace may refer.
type Allowed struct {
	// Workspace is the path of the workspace, or the name of its logical cluster.
	Workspace string
	// URL is that of the virtual workspace, https://<host>/services/<name>[/…].
	URL *url.URL
}

// ParseAllowed parses <workspace>=<URL>.
func ParseAllowed(text string) (Allowed, error) {
	workspace, location, _ := strings.Cut(text, "=")
	u, err := parse(location)
	if err != nil || workspace == "" {
		return Allowed{}, fmt.Errorf("%q is not of the form <workspace>=<URL of a virtual workspace>: %w", text, errors.Join(err))
	}
	return Allowed{workspace, u}, nil
}

// parse parses the URL of a virtual workspace.
func parse(text string) (*url.URL, error) {
	u, err := outbound.Location(text)
	switch {
	case err != nil:
		return nil, err
	case !strings.HasPrefix(u.Path, virtual.Prefix) || strings.Contains(u.Path+"/", "/clusters/"):
		return nil, errors.New("the path must be that of a virtual workspace, /services/<name>, without a logical cluster")
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	return u, nil
}

// permits reports whether a URL is the allowed one, or below it.
func (a Allowed) permits(u *url.URL) bool {
	return strings.EqualFold(u.Host, a.URL.Host) && (u.Path == a.URL.Path || strings.HasPrefix(u.Path, a.URL.Path+"/"))
}

// endpoint is an entry in the status of an endpoint slice.
type endpoint struct {
	URL    string `json:"url"`
	Verbs  verbs  `json:"verbs,omitempty"`
	Shards *struct {
		MatchAll bool                  `json:"matchAll"`
		Selector *metav1.LabelSelector `json:"selector"`
	} `json:"shards"`
}

// verbs are what consumers may do besides reading; "delete" is the only one. The slices of providers may have a field of this name for
// something else: all but a list of strings means no verbs.
type verbs []string

// UnmarshalJSON implements json.Unmarshaler.
func (v *verbs) UnmarshalJSON(data []byte) error {
	var list []string
	if json.Unmarshal(data, &list) != nil {
		list = nil
	}
	*v = list
	return nil
}

func (e endpoint) deletes() bool { return slices.Contains(e.Verbs, "delete") }

// target is a virtual workspace, and whether consumers may delete objects there.
type target struct {
	*url.URL
	deletes bool
}

// choose returns the endpoint for a shard with labels: the one with the most specific selector that matches them, otherwise the
// one for all shards, otherwise the only permitted one.
func choose(all []endpoint, shard labels.Set, permitted func(*url.URL) bool) (target, error) {
	best, specific := endpoint{}, -1
	for _, e := range all {
		if e.Shards == nil || e.Shards.Selector == nil {
			if e.Shards != nil && e.Shards.MatchAll && specific < 0 {
				best, specific = e, 0
			}
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(e.Shards.Selector)
		if err != nil || !selector.Matches(shard) {
			continue
		}
		if requirements, _ := selector.Requirements(); len(requirements) > specific {
			best, specific = e, len(requirements)
		}
	}
	if specific >= 0 {
		u, err := parse(best.URL)
		if err == nil && !permitted(u) {
			err = errors.New("no administrator of the installation allowed it with --virtual-storage-endpoints")
		}
		return target{u, best.deletes()}, err
	}
	var only target
	for _, e := range all {
		u, err := parse(e.URL)
		if err != nil || !permitted(u) {
			continue
		}
		if only.URL != nil {
			return target{}, errors.New("more than one URL applies to this shard")
		}
		only = target{u, e.deletes()}
	}
	if only.URL == nil {
		return target{}, errors.New("it has no URL that an administrator of the installation allowed with --virtual-storage-endpoints")
	}
	return only, nil
}
