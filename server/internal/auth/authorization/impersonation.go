package authorization

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// Impersonator is the user who makes a request that impersonates another user. User is nil until the request is
// authenticated.
type Impersonator struct{ User *user.DefaultInfo }

type impersonatorKey struct{}

// WithImpersonator returns the context of a request that impersonates a user. Nil means that the request does not
// impersonate a user, or that impersonation is complete.
func WithImpersonator(ctx context.Context, i *Impersonator) context.Context {
	return context.WithValue(ctx, impersonatorKey{}, i)
}

// ImpersonatorFrom returns the impersonator of a request, or nil.
func ImpersonatorFrom(ctx context.Context) *Impersonator {
	i, _ := ctx.Value(impersonatorKey{}).(*Impersonator)
	return i
}

// impersonated is an identity that another user impersonates.
type impersonated struct {
	*user.DefaultInfo
	by user.Info
}

// impersonatorOf returns the user who impersonates u; nil if u is not impersonated, or if the impersonator is a
// member of system:masters.
func impersonatorOf(u user.Info) user.Info {
	if i, ok := u.(impersonated); ok {
		return i.by
	}
	return nil
}

// ImpersonatedUser returns the impersonated identity of a request, limited to the cluster of the request and to the policies that apply
// to the impersonator, unless the impersonator is a member of system:masters. It returns nil if the request does not impersonate a
// user, or not yet.
func ImpersonatedUser(ctx context.Context) user.Info {
	i := ImpersonatorFrom(ctx)
	u, ok := request.UserFrom(ctx)
	if i == nil || !ok {
		return nil
	}
	if i.User != nil {
		if same, isDefault := u.(*user.DefaultInfo); isDefault && same == i.User {
			return nil // still the impersonator, whose permission to impersonate is being checked
		}
		if isMaster(ctx, i.User) {
			return u
		}
	}
	if i.User != nil {
		u = impersonated{&user.DefaultInfo{Name: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: u.GetExtra()}, i.User}
	}
	cluster, ok := logicalcluster.From(ctx)
	if !ok {
		return u
	}
	return scoped(u, scopePrefix+cluster.String())
}

// InClusterOnly returns u limited to one cluster, without access to other clusters by its warrants.
func InClusterOnly(u user.Info, cluster logicalcluster.Name) user.Info {
	return scoped(u, scopePrefix+string(cluster))
}

// scoped returns u with one more scope. The identities in its warrants get the scope too: the scopes of the holder do
// not apply to a warrant, so an impersonator could otherwise create a warrant with more access than the impersonator
// has.
func scoped(u user.Info, scope string) user.Info {
	limited := &user.DefaultInfo{Name: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: scopedExtra(u.GetExtra(), scope, 0)}
	if by := impersonatorOf(u); by != nil {
		return impersonated{limited, by}
	}
	return limited
}

func scopedExtra(extra map[string][]string, scope string, depth int) map[string][]string {
	result := maps.Clone(extra)
	if result == nil {
		result = map[string][]string{}
	}
	result[ScopesKey] = append(slices.Clone(extra[ScopesKey]), scope)
	if len(extra[WarrantKey]) == 0 {
		return result
	}
	var warrants []string
	for _, value := range extra[WarrantKey] {
		var w warrant
		if depth == maxWarrantDepth || json.Unmarshal([]byte(value), &w) != nil {
			continue // it would not be read
		}
		w.Extra = scopedExtra(w.Extra, scope, depth+1)
		if encoded, err := json.Marshal(w); err == nil {
			warrants = append(warrants, string(encoded))
		}
	}
	result[WarrantKey] = warrants
	return result
}

// attributesOf are attributes with another user than the original ones.
type attributesOf struct {
	authorizer.Attributes
	user user.Info
}

func (a attributesOf) GetUser() user.Info { return a.user }

// As returns the attributes of a request with another user.
func As(u user.Info, a authorizer.Attributes) authorizer.Attributes { return attributesOf{a, u} }

// guarded are the groups that only members may impersonate.
var guarded = sets.New(user.SystemPrivilegedGroup, LogicalClusterAdminGroup, ExternalAdminGroup, WorkspaceBootstrapper,
	AdminGroup, user.AllAuthenticated)

// isMaster reports whether u is a member of system:masters in the cluster of ctx.
func isMaster(ctx context.Context, u user.Info) bool {
	return u != nil && slices.Contains(GroupsIn(ctx, u), user.SystemPrivilegedGroup)
}

const formerKey = "extra " + FormerClusterNameKey + " is not accepted: use " + logicalcluster.UserExtraKey

// hasFormerKey reports whether a warrant, or a nested one, has the extra key FormerClusterNameKey.
func hasFormerKey(value string, depth int) bool {
	var w warrant
	if depth > maxWarrantDepth || json.Unmarshal([]byte(value), &w) != nil {
		return false
	}
	_, former := w.Extra[FormerClusterNameKey]
	return former || slices.ContainsFunc(w.Extra[WarrantKey], func(nested string) bool { return hasFormerKey(nested, depth+1) })
}

// CheckExtra rejects a user if the extra of the user or of one of the user's warrants has the key
// FormerClusterNameKey.
func CheckExtra(u user.Info) error {
	_, former := u.GetExtra()[FormerClusterNameKey]
	if former || slices.ContainsFunc(u.GetExtra()[WarrantKey], func(value string) bool { return hasFormerKey(value, 0) }) {
		return errors.New(formerKey)
	}
	return nil
}

// isImpersonation reports whether a is a check of the permission to impersonate.
func isImpersonation(a authorizer.Attributes) bool {
	return a.IsResourceRequest() && (a.GetVerb() == "impersonate" || strings.HasPrefix(a.GetVerb(), "impersonate:"))
}

// isGuarded reports whether only members may impersonate a group. The name of the group in policies of exports counts as the
// group.
func isGuarded(group string) bool { return guarded.Has(withoutPrefix(group)) }

// Administers reports whether one of the groups of a user has permissions in the whole installation, such as the groups of
// administrators and of the server itself.
func Administers(groups []string) bool {
	return slices.ContainsFunc(groups, func(group string) bool { return group != user.AllAuthenticated && guarded.Has(group) })
}

// Unguarded returns the groups of a user that grant no more than the permissions of ordinary users.
func Unguarded(groups []string) []string {
	return slices.DeleteFunc(slices.Clone(groups), func(group string) bool { return isGuarded(group) && group != user.AllAuthenticated })
}

func withoutPrefix(name string) string {
	for strings.HasPrefix(name, BindingPrefix) {
		name = name[len(BindingPrefix):]
	}
	return name
}

// impersonation denies impersonating a guarded group, or a warrant with one, to users who are not members of the
// group.
func (c chain) impersonation(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, bool, error) {
	if !isImpersonation(a) {
		return noOpinion, "", true, nil
	}
	if a.GetResource() == "userextras" &&
		(a.GetSubresource() == FormerClusterNameKey || (a.GetSubresource() == WarrantKey && hasFormerKey(a.GetName(), 0))) {
		return deny, formerKey, false, nil
	}
	held := GroupsIn(ctx, a.GetUser())
	if slices.Contains(held, user.SystemPrivilegedGroup) {
		return noOpinion, "", true, nil
	}
	var wanted []string
	switch a.GetResource() {
	case "groups":
		// The filter first checks "*" to avoid a check for each of many groups; if "*" is denied, it checks each group.
		if a.GetName() == "*" {
			return deny, "permission to impersonate groups is checked for each group", false, nil
		}
		wanted = []string{a.GetName()}
	case "userextras":
		if a.GetSubresource() == "*" || a.GetSubresource() == WarrantKey && a.GetName() == "*" {
			return deny, "permission to impersonate extra values is checked for each value", false, nil
		}
		if a.GetSubresource() == WarrantKey {
			wanted = warrantedGroups(a.GetName(), 0)
		}
	}
	for _, group := range wanted {
		if isGuarded(group) && !slices.Contains(held, withoutPrefix(group)) {
			return deny, "impersonation is not allowed for the requestor", false, nil
		}
	}
	return noOpinion, "", true, nil
}

// warrantedGroups returns the groups of a warrant and of those within it.
func warrantedGroups(value string, depth int) []string {
	var w warrant
	if depth > maxWarrantDepth || json.Unmarshal([]byte(value), &w) != nil {
		return nil
	}
	groups := w.Groups
	for _, nested := range w.Extra[WarrantKey] {
		groups = append(groups, warrantedGroups(nested, depth+1)...)
	}
	return groups
}
