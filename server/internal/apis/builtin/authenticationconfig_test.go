package builtin

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/kubernetes/pkg/controlplane/controller/clusterauthenticationtrust"
)

// authority is a bundle of certificates that is never verified.
type authority struct {
	dynamiccertificates.CAContentProvider
	content string
}

func (a authority) CurrentCABundleContent() []byte { return []byte(a.content) }

func TestTheAuthenticationConfigMapHasUpstreamsFormat(t *testing.T) {
	names := headerrequest.StaticStringSlice{"front-proxy"}
	headers := clusterauthenticationtrust.ClusterAuthenticationInfo{
		RequestHeaderUsernameHeaders: headerrequest.StaticStringSlice{"X-Remote-User"}, RequestHeaderUIDHeaders: headerrequest.StaticStringSlice{},
		RequestHeaderGroupHeaders: headerrequest.StaticStringSlice{"X-Remote-Group"}, RequestHeaderExtraHeaderPrefixes: headerrequest.StaticStringSlice{"X-Remote-Extra-"},
		RequestHeaderAllowedNames: names,
	}
	with := func(client, front dynamiccertificates.CAContentProvider) clusterauthenticationtrust.ClusterAuthenticationInfo {
		trust := headers
		trust.ClientCA, trust.RequestHeaderCA = client, front
		return trust
	}
	for name, c := range map[string]struct {
		trust clusterauthenticationtrust.ClusterAuthenticationInfo
		want  map[string]string
	}{
		"nothing":              {clusterauthenticationtrust.ClusterAuthenticationInfo{}, map[string]string{}},
		"clients":              {with(authority{content: "clients"}, nil), map[string]string{"client-ca-file": "clients"}},
		"an empty front proxy": {with(nil, authority{}), map[string]string{}},
		"both": {with(authority{content: "clients"}, authority{content: "proxies"}), map[string]string{
			"client-ca-file": "clients", "requestheader-client-ca-file": "proxies", "requestheader-allowed-names": `["front-proxy"]`,
			"requestheader-username-headers": `["X-Remote-User"]`, "requestheader-group-headers": `["X-Remote-Group"]`, "requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`,
		}},
	} {
		got, err := trustData(c.trust)
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
}
