package identity

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/google/go-cmp/cmp"

	"github.com/kcplane/kcp/server/internal/auth/authorization"
)

func TestHeadersOfClientsAboutUsersAreRemoved(t *testing.T) {
	guard := NewGuard(DefaultNames, Names{User: "X-Who", Group: "X-Team", ExtraPrefix: "X-More-"})
	for _, name := range []string{
		"X-Remote-User", "X-Remote-Group", "X-Remote-Extra-Scopes", "X-Remote-Uid", "x-remote-user", "X_Remote_User", "x-REMOTE_user", "X-Remote-Anything",
		"X-Kcp-Expect", "x-kcp-expect", "X_Kcp_Expect", "X-Kcp-Placement", "X-Kcp-Client-Certificate", "X-Kcp-Internal-Deep-SubjectAccessReview", "x_kcp_mount_hops",
		"X-Who", "x_who", "X-Team", "X-More-A", "x_more_a", "X-Real-Ip",
	} {
		header := http.Header{name: {"forged"}, "Authorization": {"kept"}, "X-Remoter": {"kept"}, "Impersonate-User": {"kept"}}
		guard.Clean(header)
		if want := (http.Header{"Authorization": {"kept"}, "X-Remoter": {"kept"}, "Impersonate-User": {"kept"}}); !cmp.Equal(header, want) {
			t.Errorf("%s: %v", name, header)
		}
	}
	kept := http.Header{"X-Kcp-Mount-Hops": {"3"}, "X-Kcp-Virtual-Resource-Hops": {"2"}}
	guard.Clean(kept)
	if len(kept) != 2 {
		t.Errorf("without its count, a request in a loop never ends: %v", kept)
	}
}

func TestAShardReadsTheUserThatTheProxySets(t *testing.T) {
	u := &user.DefaultInfo{Name: "alice", UID: "7", Groups: []string{"a,b", "system:authenticated"}, Extra: map[string][]string{
		"authentication.kcp.io/scopes": {"cluster:a,cluster:b", "cluster:c"}, "With%Percent": {"x"}, "UPPER": {"y"}, "ümlaut space": {"z"},
	}}
	header := http.Header{}
	DefaultNames.Set(header, u)
	reader, err := headerrequest.New([]string{"X-Remote-User"}, []string{"X-Remote-Uid"}, []string{"X-Remote-Group"}, []string{"X-Remote-Extra-"})
	if err != nil {
		t.Fatal(err)
	}
	got, ok, err := reader.AuthenticateRequest(&http.Request{Header: header})
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if diff := cmp.Diff(u, got.User); diff != "" {
		t.Error(diff)
	}
}

func TestGroupsAreDropped(t *testing.T) {
	all := []string{"system:masters", "system:kcp:initializer:root:x", "system:kcp:admin", "team-a", "team-b"}
	for name, tc := range map[string]struct {
		drop, pass, want []string
	}{
		"by default":            {DefaultDropped, nil, []string{"system:kcp:admin", "team-a", "team-b"}},
		"by name and prefix":    {[]string{"team-a", "system:*"}, nil, []string{"team-b"}},
		"all but a list":        {DefaultDropped, []string{"team-*", "system:masters"}, []string{"team-a", "team-b"}},
		"a list that is quoted": {[]string{`"system:masters,team-a"`}, nil, []string{"system:kcp:initializer:root:x", "system:kcp:admin", "team-b"}},
		"nothing":               {nil, nil, all},
		"everything":            {[]string{"*"}, nil, nil},
	} {
		got := NewFilter(tc.drop, tc.pass).Apply(&user.DefaultInfo{Name: "u", UID: "1", Groups: all})
		if !slices.Equal(got.GetGroups(), tc.want) || got.GetName() != "u" || got.GetUID() != "1" {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestAUserBringsNoWarrant(t *testing.T) {
	u := &user.DefaultInfo{Name: "u", Extra: map[string][]string{authorization.WarrantKey: {"{}"}, "kept": {"x"}}}
	got := NewFilter(nil, nil).Apply(u).GetExtra()
	if len(got) != 1 || len(u.Extra) != 2 {
		t.Errorf("got %v; the user of the request has %v", got, u.Extra)
	}
}

func FuzzNoSpellingOfAReservedHeaderPasses(f *testing.F) {
	f.Add("X-Remote-User")
	guard := NewGuard(DefaultNames)
	f.Fuzz(func(t *testing.T, name string) {
		header := http.Header{}
		header.Set(name, "x")
		guard.Clean(header)
		for left := range header {
			if strings.HasPrefix(strings.NewReplacer("_", "-").Replace(strings.ToLower(left)), "x-remote-") {
				t.Errorf("%q passes", left)
			}
		}
	})
}
