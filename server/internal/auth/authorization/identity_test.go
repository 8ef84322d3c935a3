package authorization

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kcplane/kcp/server/logicalcluster"
)

func person(extra map[string][]string) *user.DefaultInfo {
	return &user.DefaultInfo{Name: "alice", Groups: []string{"devs", user.AllAuthenticated}, Extra: extra}
}

// describe prints identities as "name[groups]".
func describe(identities []user.Info) string {
	var all []string
	for _, i := range identities {
		all = append(all, fmt.Sprintf("%s%v", i.GetName(), i.GetGroups()))
	}
	return strings.Join(all, " ")
}

func TestEffectiveIdentities(t *testing.T) {
	const sa = "system:serviceaccount:ns:bot"
	const outside = "system:anonymous[system:authenticated"
	for name, c := range map[string]struct {
		user user.Info
		want string
	}{
		"an unscoped user is itself":                         {person(nil), "alice[devs system:authenticated]"},
		"a scope of this cluster changes nothing":            {person(map[string][]string{ScopesKey: {"cluster:here"}}), "alice[devs system:authenticated]"},
		"clusters within one scope are alternatives":         {person(map[string][]string{ScopesKey: {"cluster:there,cluster:here"}}), "alice[devs system:authenticated]"},
		"a scope of another cluster leaves a member of that": {person(map[string][]string{ScopesKey: {"cluster:there"}}), outside + " system:cluster:there]"},
		"several scopes must all hold":                       {person(map[string][]string{ScopesKey: {"cluster:here,cluster:there", "cluster:there"}}), outside + " system:cluster:there]"},
		"disjoint scopes leave nothing":                      {person(map[string][]string{ScopesKey: {"cluster:here", "cluster:there"}}), outside + "]"},
		"a scope that cannot be read allows nothing":         {person(map[string][]string{ScopesKey: {"workspace:here"}}), outside + "]"},
		"an empty scope allows nothing":                      {person(map[string][]string{ScopesKey: {""}}), outside + "]"},
		"an unauthenticated user stays so": {&user.DefaultInfo{Name: "x", Extra: map[string][]string{ScopesKey: {"cluster:there"}}},
			"system:anonymous[system:unauthenticated system:cluster:there]"},
		"a service account of this cluster is itself": {&user.DefaultInfo{Name: sa, Groups: []string{user.AllAuthenticated}, Extra: map[string][]string{logicalcluster.UserExtraKey: {"here"}}},
			sa + "[system:authenticated]"},
		"a service account without a cluster is local": {&user.DefaultInfo{Name: sa, Groups: []string{user.AllAuthenticated}}, sa + "[system:authenticated]"},
		"a foreign service account is a member of its cluster and has a global name": {
			&user.DefaultInfo{Name: sa, Groups: []string{"system:serviceaccounts", user.AllAuthenticated}, Extra: map[string][]string{logicalcluster.UserExtraKey: {"there"}}},
			outside + " system:cluster:there] system:kcp:serviceaccount:there:ns:bot[system:authenticated]"},
		"a foreign service account leaves its groups at home": {
			&user.DefaultInfo{Name: sa, Groups: []string{AdminGroup, user.SystemPrivilegedGroup, user.AllAuthenticated}, Extra: map[string][]string{
				"authentication.kcp.io/cluster-name": {"there"}, WarrantKey: {`{"user":"bob","groups":["ops"]}`}}},
			outside + " system:cluster:there] system:kcp:serviceaccount:there:ns:bot[system:authenticated] bob[ops]"},
		"a service account with the former key is in no cluster": {
			&user.DefaultInfo{Name: sa, Groups: []string{user.AllAuthenticated}, Extra: map[string][]string{FormerClusterNameKey: {"here"}}}, outside + "]"},
		"a warrant with the former key is ignored": {person(map[string][]string{WarrantKey: {
			`{"user":"` + sa + `","extra":{"authentication.kubernetes.io/cluster-name":["here"],"authentication.kcp.io/cluster-name":["here"]}}`}}),
			"alice[devs system:authenticated]"},
		"a warrant adds an identity": {person(map[string][]string{WarrantKey: {`{"user":"bob","groups":["ops"]}`}}), "alice[devs system:authenticated] bob[ops]"},
		"a warrant has its own scope": {person(map[string][]string{WarrantKey: {`{"user":"bob","groups":["ops","system:authenticated"],"extra":{"authentication.kcp.io/scopes":["cluster:there"]}}`}}),
			"alice[devs system:authenticated] " + outside + " system:cluster:there]"},
		"a scope of the user does not disable warrants": {person(map[string][]string{ScopesKey: {"cluster:there"}, WarrantKey: {`{"user":"bob"}`}}),
			outside + " system:cluster:there] bob[]"},
		"a warrant of a service account without a cluster is ignored": {person(map[string][]string{WarrantKey: {`{"user":"` + sa + `"}`}}), "alice[devs system:authenticated]"},
		"a warrant that cannot be read is ignored":                    {person(map[string][]string{WarrantKey: {`{`, `[]`, `{}`}}), "alice[devs system:authenticated]"},
	} {
		if got := describe(EffectiveIdentities(c.user, "here")); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
	}
}

func TestWarrantsAreLimited(t *testing.T) {
	nested := `{"user":"w"}`
	for range 20 {
		nested = fmt.Sprintf(`{"user":"w","extra":{%q:[%q,%q]}}`, WarrantKey, nested, `{"user":"v"}`)
		if len(nested) > 1<<20 {
			break
		}
	}
	if got := len(EffectiveIdentities(person(map[string][]string{WarrantKey: {nested}}), "here")); got > maxIdentities+1 {
		t.Errorf("got %d identities, want at most %d", got, maxIdentities+1)
	}
}

func FuzzScopesAndWarrantsNeverWidenAScope(f *testing.F) {
	f.Add("cluster:a", `{"user":"b"}`)
	f.Add("cluster:here,", `{"user":"system:serviceaccount:a:b","extra":{"authentication.kcp.io/cluster-name":["x"]}}`)
	f.Fuzz(func(t *testing.T, scope, warrant string) {
		u := person(map[string][]string{ScopesKey: {scope}, WarrantKey: {warrant}})
		identities := EffectiveIdentities(u, logicalcluster.Name("here"))
		if !strings.Contains(scope, "cluster:here") && identities[0].GetName() == "alice" {
			t.Errorf("scope %q lets alice act here", scope)
		}
	})
}

func TestGroupsApplyWhereTheirMemberActs(t *testing.T) {
	bot := &user.DefaultInfo{Name: "system:serviceaccount:ns:bot", Groups: []string{AdminGroup}, Extra: map[string][]string{logicalcluster.UserExtraKey: {"there"}}}
	scoped := &user.DefaultInfo{Name: "alice", Groups: []string{AdminGroup}, Extra: map[string][]string{ScopesKey: {"cluster:there"}}}
	warranted := person(map[string][]string{WarrantKey: {`{"user":"bob","groups":["` + AdminGroup + `"]}`}})
	there, here := logicalcluster.WithName(context.Background(), "there"), logicalcluster.WithName(context.Background(), "here")
	everywhere := logicalcluster.WithWildcard(context.Background())
	for name, c := range map[string]struct {
		ctx  context.Context
		user user.Info
		want bool
	}{
		"a service account in its cluster":              {there, bot, true},
		"... in another one":                            {here, bot, false},
		"... in all of them":                            {everywhere, bot, false},
		"... outside of all of them":                    {context.Background(), bot, false},
		"a scoped user in scope":                        {there, scoped, true},
		"a scoped user in another cluster":              {here, scoped, false},
		"a scoped user in all of them":                  {everywhere, scoped, false},
		"a user without a scope":                        {everywhere, &user.DefaultInfo{Name: "x", Groups: []string{AdminGroup}}, true},
		"a warrant, which changes nothing about a user": {here, warranted, false},
	} {
		if got := Administers(GroupsIn(c.ctx, c.user)); got != c.want {
			t.Errorf("%s: administers the installation: %t, want %t", name, got, c.want)
		}
	}
}
