package authorization

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// Keys of extra values of a user.
const (
	// ScopesKey limits an identity to logical clusters: each value is "cluster:a,cluster:b", and all values must hold.
	ScopesKey = "authentication.kcp.io/scopes"
	// WarrantKey adds further identities: each value is the JSON of one, which may have scopes and warrants of its own.
	WarrantKey = "authorization.kcp.io/warrant"
	// FormerClusterNameKey is the former name of logicalcluster.UserExtraKey. A user with this key is rejected, and a warrant with this key
	// is ignored.
	FormerClusterNameKey = "authentication.kubernetes.io/cluster-name"
)

const (
	scopePrefix = "cluster:"
	// maxWarrantDepth limits nested warrants, maxIdentities all identities of one request.
	maxWarrantDepth = 4
	maxIdentities   = 32
)

// warrant is the JSON form of an identity in WarrantKey.
type warrant struct {
	User   string              `json:"user,omitempty"`
	UID    string              `json:"uid,omitempty"`
	Groups []string            `json:"groups,omitempty"`
	Extra  map[string][]string `json:"extra,omitempty"`
}

// EffectiveIdentities returns the identities under which u acts in a logical cluster. A binding applies to u if it
// applies to any of them. The first is u itself, reduced to an anonymous member of its own clusters when it is out of
// scope; the others come from warrants.
func EffectiveIdentities(u user.Info, cluster logicalcluster.Name) []user.Info {
	return appendIdentities(nil, u, cluster, 0)
}

func appendIdentities(identities []user.Info, u user.Info, cluster logicalcluster.Name, depth int) []user.Info {
	if len(identities) >= maxIdentities {
		return identities
	}
	identities = append(identities, inScope(u, cluster))
	if global := globalServiceAccount(u, cluster); global != nil {
		identities = append(identities, global)
	}
	if depth == maxWarrantDepth {
		return identities
	}
	for _, value := range u.GetExtra()[WarrantKey] {
		var w warrant
		if json.Unmarshal([]byte(value), &w) != nil || w.User == "" {
			continue
		}
		if isServiceAccount(w.User) && len(w.Extra[logicalcluster.UserExtraKey]) == 0 {
			continue // the cluster of the service account is unknown
		}
		if _, former := w.Extra[FormerClusterNameKey]; former {
			continue
		}
		identities = appendIdentities(identities, &user.DefaultInfo{Name: w.User, UID: w.UID, Groups: w.Groups, Extra: w.Extra}, cluster, depth+1)
	}
	return identities
}

// EffectiveGroups returns the groups of all effective identities.
func EffectiveGroups(u user.Info, cluster logicalcluster.Name) []string {
	var groups []string
	for _, identity := range EffectiveIdentities(u, cluster) {
		groups = append(groups, identity.GetGroups()...)
	}
	return groups
}

// inScope returns u, or its reduced form in a cluster that its scopes do not cover.
func inScope(u user.Info, cluster logicalcluster.Name) user.Info {
	scopes, limited := scopesOf(u)
	if !limited || slices.Contains(scopes, cluster) {
		return u
	}
	groups := []string{user.AllUnauthenticated}
	if slices.Contains(u.GetGroups(), user.AllAuthenticated) {
		groups = []string{user.AllAuthenticated}
	}
	for _, scope := range scopes {
		groups = append(groups, "system:cluster:"+string(scope))
	}
	return &user.DefaultInfo{Name: user.Anonymous, Groups: groups}
}

// scopesOf returns the clusters in which u may act as itself; limited is false if there is no restriction.
func scopesOf(u user.Info) (scopes []logicalcluster.Name, limited bool) {
	scopes, limited = declaredScopes(u)
	clusters := u.GetExtra()[logicalcluster.UserExtraKey]
	_, former := u.GetExtra()[FormerClusterNameKey]
	if !isServiceAccount(u.GetName()) || (len(clusters) == 0 && !former) {
		return scopes, limited
	}
	own := make([]logicalcluster.Name, len(clusters))
	for i, c := range clusters {
		own[i] = logicalcluster.Name(c)
	}
	if limited {
		own = intersection(scopes, own)
	}
	return own, true
}

// declaredScopes returns the clusters that all values of ScopesKey allow; limited is false if there are no values.
func declaredScopes(u user.Info) (scopes []logicalcluster.Name, limited bool) {
	for i, value := range u.GetExtra()[ScopesKey] {
		if i == 0 {
			scopes = parseScope(value)
		} else {
			scopes = intersection(scopes, parseScope(value))
		}
		limited = true
	}
	return scopes, limited
}

func intersection(a, b []logicalcluster.Name) []logicalcluster.Name {
	return slices.DeleteFunc(slices.Clone(a), func(c logicalcluster.Name) bool { return !slices.Contains(b, c) })
}

// parseScope returns the clusters of one value of ScopesKey. An invalid value allows no cluster.
func parseScope(value string) []logicalcluster.Name {
	var allowed []logicalcluster.Name
	for _, part := range strings.Split(value, ",") {
		if name, ok := strings.CutPrefix(part, scopePrefix); ok && name != "" {
			allowed = append(allowed, logicalcluster.Name(name))
		}
	}
	return allowed
}

// ServiceAccountCluster returns the logical cluster of a service account; false for users and for accounts without a single
// cluster.
func ServiceAccountCluster(u user.Info) (logicalcluster.Name, bool) {
	clusters := u.GetExtra()[logicalcluster.UserExtraKey]
	if !isServiceAccount(u.GetName()) || len(clusters) != 1 {
		return "", false
	}
	return logicalcluster.Name(clusters[0]), true
}

// IssuedIn returns the logical cluster whose issuer or client certificate authenticated a user; false for all other users. Such a user
// is scoped to that cluster.
func IssuedIn(u user.Info) (logicalcluster.Name, bool) {
	clusters := u.GetExtra()[logicalcluster.UserExtraKey]
	if isServiceAccount(u.GetName()) || len(clusters) != 1 {
		return "", false
	}
	scopes, limited := declaredScopes(u)
	foreign := func(c logicalcluster.Name) bool { return string(c) != clusters[0] }
	return logicalcluster.Name(clusters[0]), limited && !slices.ContainsFunc(scopes, foreign)
}

// CertificateIDPrefix is the prefix of the credential ID of a user who presents a client certificate.
const CertificateIDPrefix = "X509SHA256="

// certified reports whether a user was authenticated by a client certificate.
func certified(u user.Info) bool {
	return slices.ContainsFunc(u.GetExtra()[user.CredentialIDKey], func(id string) bool { return strings.HasPrefix(id, CertificateIDPrefix) })
}

// IsReserved reports whether a name of a user or group is reserved for the server.
func IsReserved(name string) bool {
	return strings.HasPrefix(name, "system:") || strings.HasPrefix(name, BindingPrefix)
}

// GroupsIn returns the groups of u in the cluster of ctx, without those of its warrants. A user that is limited to clusters has no
// groups of its own in requests across all clusters, or outside of all clusters.
func GroupsIn(ctx context.Context, u user.Info) []string {
	cluster, _ := logicalcluster.From(ctx)
	return inScope(u, cluster.Name).GetGroups()
}

// globalServiceAccount returns the identity by which role bindings can refer to a service account of another cluster. It
// returns nil if u is not a service account of one cluster, or is limited to other clusters.
func globalServiceAccount(u user.Info, cluster logicalcluster.Name) user.Info {
	home, ok := ServiceAccountCluster(u)
	if !ok || home == cluster {
		return nil
	}
	if scopes, limited := declaredScopes(u); limited && !slices.Contains(scopes, cluster) {
		return nil
	}
	namespace, name, err := serviceaccount.SplitUsername(u.GetName())
	if err != nil {
		return nil
	}
	return &user.DefaultInfo{Name: globalName(home, namespace, name), Groups: []string{user.AllAuthenticated}}
}

// globalName returns the name of a service account outside of its cluster.
func globalName(cluster logicalcluster.Name, namespace, name string) string {
	return "system:kcp:serviceaccount:" + string(cluster) + ":" + namespace + ":" + name
}

func isServiceAccount(name string) bool {
	return strings.HasPrefix(name, serviceaccount.ServiceAccountUsernamePrefix)
}
