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

// Impersonator remembers who made a request that impersonates somebody. User is nil until it is authenticated.
type Impersonator struct{ User *user.DefaultInfo }

type impersonatorKey struct{}

// WithImpersonator returns the context of a request that impersonates somebody. With nil the request does not, or what
// follows from it is done.
func WithImpersonator(ctx context.Context, i *Impersonator) context.Context {
	return context.WithValue(ctx, impersonatorKey{}, i)
}

// ImpersonatorFrom returns the impersonator of a request, nil if there is none.
func ImpersonatorFrom(ctx context.Context) *Impersonator {
	i, _ := ctx.Value(impersonatorKey{}).(*Impersonator)
	return i
}

// impersonated is an identity that somebody else has taken on.
type impersonated struct {
	*user.DefaultInfo
	by user.Info
}

// impersonatorOf returns who has taken on the identity of u, nil if u is somebody, or a member of system:masters has.
func impersonatorOf(u user.Info) user.Info {
	if i, ok := u.(impersonated); ok {
		return i.by
	}
	return nil
}

// ImpersonatedUser returns the impersonated identity of a request, limited to the cluster of the request and to the policies that the
// impersonator is under, unless a member of system:masters impersonates. It returns nil if the request impersonates nobody, or not yet.
func ImpersonatedUser(ctx context.Context) user.Info {
	i := ImpersonatorFrom(ctx)
	u, ok := request.UserFrom(ctx)
	if i == nil || !ok {
		return nil
	}
	if i.User != nil {
		if same, isDefault := u.(*user.DefaultInfo); isDefault && same == i.User {
			return nil // still the impersonator, whose right to impersonate is being asked
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

// InClusterOnly returns u as somebody in one cluster, without what its warrants open elsewhere.
func InClusterOnly(u user.Info, cluster logicalcluster.Name) user.Info {
	return scoped(u, scopePrefix+string(cluster))
}

// scoped returns u with one more scope. Whomever u has a warrant of gets it too: a warrant does not follow the scopes of
// its holder, so that an impersonator could otherwise write himself one that reaches further than he does.
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
			continue // nobody would read it
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

// As returns the attributes of a request as if another user made it.
func As(u user.Info, a authorizer.Attributes) authorizer.Attributes { return attributesOf{a, u} }

// guarded are the groups that nobody may take on who is not a member.
var guarded = sets.New(user.SystemPrivilegedGroup, LogicalClusterAdminGroup, ExternalAdminGroup, WorkspaceBootstrapper,
	AdminGroup, user.AllAuthenticated)

// isMaster tells whether u acts as a member of system:masters in the cluster of ctx.
func isMaster(ctx context.Context, u user.Info) bool {
	return u != nil && slices.Contains(GroupsIn(ctx, u), user.SystemPrivilegedGroup)
}

const formerKey = "extra " + FormerClusterNameKey + " is not accepted: use " + logicalcluster.UserExtraKey

// hasFormerKey tells whether a warrant, or one within it, has the extra FormerClusterNameKey.
func hasFormerKey(value string, depth int) bool {
	var w warrant
	if depth > maxWarrantDepth || json.Unmarshal([]byte(value), &w) != nil {
		return false
	}
	_, former := w.Extra[FormerClusterNameKey]
	return former || slices.ContainsFunc(w.Extra[WarrantKey], func(nested string) bool { return hasFormerKey(nested, depth+1) })
}

// CheckExtra refuses a user whose extra, or that of whose warrants, has the key FormerClusterNameKey.
func CheckExtra(u user.Info) error {
	_, former := u.GetExtra()[FormerClusterNameKey]
	if former || slices.ContainsFunc(u.GetExtra()[WarrantKey], func(value string) bool { return hasFormerKey(value, 0) }) {
		return errors.New(formerKey)
	}
	return nil
}

// isImpersonation tells whether a asks for the right to take on an identity.
func isImpersonation(a authorizer.Attributes) bool {
	return a.IsResourceRequest() && (a.GetVerb() == "impersonate" || strings.HasPrefix(a.GetVerb(), "impersonate:"))
}

// isGuarded tells whether nobody may take on a group who is not a member. The name by which policies of exports speak of a group is
// as good as the group.
func isGuarded(group string) bool { return guarded.Has(withoutPrefix(group)) }

// Administers tells whether one of the groups of a user has rights in the whole installation, as an administrator or as the server
// itself has.
func Administers(groups []string) bool {
	return slices.ContainsFunc(groups, func(group string) bool { return group != user.AllAuthenticated && guarded.Has(group) })
}

// Unguarded returns those of the groups of a user that let nobody do more than users do.
func Unguarded(groups []string) []string {
	return slices.DeleteFunc(slices.Clone(groups), func(group string) bool { return isGuarded(group) && group != user.AllAuthenticated })
}

func withoutPrefix(name string) string {
	for strings.HasPrefix(name, BindingPrefix) {
		name = name[len(BindingPrefix):]
	}
	return name
}

// impersonation refuses to impersonate a guarded group, or a warrant of one, to everybody who does not hold the group.
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
		// The filter asks for "*" to spare itself a question for each of many groups; it asks those when this is refused.
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
