package authentication_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"

	"github.com/kcplane/kcp/server/internal/auth/authentication"
)

func TestIdentityHeadersStateNoPrivileges(t *testing.T) {
	names := &authenticatorfactory.RequestHeaderConfig{
		GroupHeaders: headerrequest.StaticStringSlice{"x-remote-group"}, ExtraHeaderPrefixes: headerrequest.StaticStringSlice{"X-Remote-Extra-"},
	}
	sent := http.Header{
		"X-Remote-User": {"mallory"},
		"X-Remote-Group": {
			"system:masters", "system:authenticated", "system:kcp:admin", "system:kcp:logical-cluster-admin",
			"system:kcp:external-logical-cluster-admin", "system:kcp:tenancy:workspace-bootstrapper", "apis.kcp.io:binding:system:masters",
			"system:kcp:initializer:root:universal", "system:kcp:terminator:root:universal", "team-a",
		},
		"X-Remote-Extra-Authorization.kcp.io%2fwarrant": {`{"user":"admin","groups":["system:masters"]}`},
		"x-remote-extra-AUTHORIZATION.kcp.io%2Fwarrant": {`{"user":"admin","groups":["system:masters"]}`},
		"X-Remote-Extra-Authorization.kcp.io/warrant":   {`{"user":"admin","groups":["system:masters"]}`},
		"X-Remote-Extra-Authentication.kcp.io%2fscopes": {"cluster:one"},
		"Accept": {"application/json"},
	}
	want := http.Header{
		"X-Remote-User":  {"mallory"},
		"X-Remote-Group": {"system:authenticated", "team-a"},
		"X-Remote-Extra-Authentication.kcp.io%2fscopes": {"cluster:one"},
		"Accept": {"application/json"},
	}
	var got http.Header
	inner := authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		got = r.Header
		return nil, false, nil
	})
	if _, _, err := authentication.WithoutPrivilegedHeaders(inner, names).AuthenticateRequest(&http.Request{Header: sent}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}
