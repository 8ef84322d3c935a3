package storage

import (
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kcplane/kcp/server/logicalcluster"
)

func TestTheAccountOfAWatch(t *testing.T) {
	for _, c := range []struct {
		user    user.DefaultInfo
		cluster logicalcluster.Name
		want    string
	}{
		{user.DefaultInfo{Name: "alice"}, "a", "cluster a"},
		{user.DefaultInfo{Name: "alice"}, logicalcluster.Root, "user alice"},
		{user.DefaultInfo{Name: "alice", Extra: map[string][]string{logicalcluster.UserExtraKey: {"b"}}}, logicalcluster.Root, "cluster b"},
		{user.DefaultInfo{Name: "root", Groups: []string{user.SystemPrivilegedGroup}}, "a", ""},
	} {
		if got := accountOf(logicalcluster.WithName(request.WithUser(t.Context(), &c.user), c.cluster)); got != c.want {
			t.Errorf("%v in %s: got %q, want %q", c.user, c.cluster, got, c.want)
		}
	}
}
