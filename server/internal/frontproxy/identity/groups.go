package identity

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kcplane/kcp/server/internal/auth/authorization"
)

// DefaultDropped are the groups that no user has through a front proxy: they are more than an administrator of workspaces needs.
var DefaultDropped = []string{"system:masters", "system:kcp:logical-cluster-admin", "system:kcp:initializer:*", "system:kcp:terminator:*"}

// Filter decides which groups of a user reach the shards. An entry with * at its end is a prefix.
type Filter struct {
	drop []string
	// pass is empty if all groups pass that drop does not name.
	pass []string
}

// NewFilter returns a filter. Entries may be lists themselves, in quotes: a flag that is quoted twice must not mean that nothing is
// dropped.
func NewFilter(drop, pass []string) Filter { return Filter{drop: entries(drop), pass: entries(pass)} }

func entries(lists []string) (all []string) {
	for _, list := range lists {
		for e := range strings.SplitSeq(list, ",") {
			if e = strings.Trim(e, `"' `); e != "" {
				all = append(all, e)
			}
		}
	}
	return all
}

func matches(patterns []string, group string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		prefix, ok := strings.CutSuffix(p, "*")
		return p == group || ok && strings.HasPrefix(group, prefix)
	})
}

// Apply returns the user as the shards know them: without dropped groups, and without warrants, which only a shard issues.
func (f Filter) Apply(u user.Info) user.Info {
	filtered := &user.DefaultInfo{Name: u.GetName(), UID: u.GetUID(), Extra: u.GetExtra()}
	if n := len(u.GetGroups()); n > 0 {
		filtered.Groups = make([]string, 0, n)
	}
	for _, group := range u.GetGroups() {
		if !matches(f.drop, group) && (len(f.pass) == 0 || matches(f.pass, group)) {
			filtered.Groups = append(filtered.Groups, group)
		}
	}
	if _, warranted := filtered.Extra[authorization.WarrantKey]; warranted {
		filtered.Extra = maps.Clone(filtered.Extra)
		delete(filtered.Extra, authorization.WarrantKey)
	}
	return filtered
}
