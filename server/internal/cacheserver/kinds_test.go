package cacheserver

import (
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
)

// entering are all resources that may enter the cache server. The list repeats Kinds, so that a new kind is added to both: all shards may
// read it.
var entering = []string{
	"admissionregistration.k8s.io/v1/mutatingadmissionpolicies",
	"admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings",
	"admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
	"admissionregistration.k8s.io/v1/validatingadmissionpolicies",
	"admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
	"admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
	"apis.kcp.io/v1alpha1/apiconversions",
	"apis.kcp.io/v1alpha1/apiexportendpointslices",
	"apis.kcp.io/v1alpha1/apiresourceschemas",
	"apis.kcp.io/v1alpha2/apiexports",
	"cache.kcp.io/v1alpha1/clustercachedresourceendpointslices",
	"cache.kcp.io/v1alpha1/clustercachedresources",
	"core.kcp.io/v1alpha1/logicalclusters",
	"core.kcp.io/v1alpha1/shards",
	"migration.kcp.io/v1alpha1/logicalclustermigrations",
	"rbac.authorization.k8s.io/v1/clusterrolebindings",
	"rbac.authorization.k8s.io/v1/clusterroles",
	"tenancy.kcp.io/v1alpha1/workspaceauthenticationconfigurations",
	"tenancy.kcp.io/v1alpha1/workspaces",
	"tenancy.kcp.io/v1alpha1/workspacetypes",
}

func TestOnlyTheseKindsEnter(t *testing.T) {
	var got []string
	for _, k := range Kinds {
		got = append(got, k.Group+"/"+k.Version+"/"+k.Resource)
	}
	slices.Sort(got)
	if diff := cmp.Diff(entering, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	s := start(t, nil)
	config := s.shard(t, "alpha")
	config.Host += "/services/cache/shards/*/clusters/*"
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	_, lists, err := client.ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	var described []string
	for _, list := range lists {
		for _, r := range list.APIResources {
			described = append(described, list.GroupVersion+"/"+r.Name)
			if r.Namespaced || !slices.Contains(r.Verbs, "watch") || r.Kind == "" {
				t.Errorf("discovery describes %v", r)
			}
		}
	}
	slices.Sort(described)
	if diff := cmp.Diff(entering, described); diff != "" {
		t.Errorf("discovery (-want +got):\n%s", diff)
	}
	for _, name := range []string{"api", "apis/unknown.example.com", "apis/apis.kcp.io", "apis/apis.kcp.io/v9", "metrics", "version"} {
		want := map[string]int{"api": http.StatusOK, "apis/apis.kcp.io": http.StatusOK, "metrics": http.StatusNotImplemented}[name]
		if want == 0 {
			want = http.StatusNotFound
		}
		if code, message, _ := send(t, s.shard(t, "alpha"), http.MethodGet, "/services/cache/shards/alpha/clusters/one/"+name, ""); code != want {
			t.Errorf("%s: %d %s", name, code, message)
		}
	}
}

func TestNoSecretAndNoTokenEnters(t *testing.T) {
	s := start(t, nil)
	alpha := s.shard(t, "alpha")
	for path, body := range map[string]string{
		"api/v1/secrets":                          `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x"}}`,
		"api/v1/secrets:aa":                       `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x"}}`,
		"api/v1/namespaces/n/secrets:aa":          `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x","namespace":"n"}}`,
		"api/v1/configmaps:aa":                    `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"}}`,
		"apis/apps/v1/deployments:aa":             `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"x"}}`,
		"apis/authentication.k8s.io/v1/tokens:aa": `{"apiVersion":"authentication.k8s.io/v1","kind":"Token","metadata":{"name":"x"}}`,
		"apis/example.com/v1/secrets":             `{"apiVersion":"example.com/v1","kind":"Secret","metadata":{"name":"x"}}`,
		"apis/example.com/v1/widgets:":            `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"x"}}`,
		"apis/example.com/v1/widgets:AA":          `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"x"}}`,
		"apis/example.com/v1/widgets:a:b":         `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"x"}}`,
	} {
		path = "/services/cache/shards/alpha/clusters/one/" + path
		for _, method := range []string{http.MethodPost, http.MethodGet} {
			if code, message, _ := send(t, alpha, method, path, body); code != http.StatusNotFound {
				t.Errorf("%s %s: %d %s", method, path, code, message)
			}
		}
	}
	disguised := widget("x", "")
	disguised.SetAPIVersion("v1")
	disguised.SetKind("Secret")
	if _, err := cachedResource(in(t, alpha, "alpha", "one"), "aa").Create(t.Context(), disguised, metav1.CreateOptions{}); err == nil {
		t.Error("a Secret is stored as another resource")
	}
}
