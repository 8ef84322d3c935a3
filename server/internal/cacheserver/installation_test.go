package cacheserver

import (
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

func TestACacheServerRefusesShardsOfOtherInstallations(t *testing.T) {
	s := start(t, nil)
	west, root := s.shard(t, "west"), s.shard(t, "root")
	const path = "/services/cache/shards/west/clusters/a/apis/apis.kcp.io/v1alpha2/apiexports"
	get := func(as *rest.Config, installation string) (int, string, string) {
		code, message, header := send(t, as, http.MethodGet, path, "", InstallationHeader, installation)
		return code, message, header.Get(InstallationHeader)
	}
	if code, _, owner := get(west, "theirs"); code != http.StatusOK || owner != "" {
		t.Errorf("before the root shard: got %d, installation %q", code, owner)
	}
	create(t, in(t, west, "west", "a").Resource(exports), object("kept", nil))
	if code, _, owner := get(root, "ours"); code != http.StatusOK || owner != "ours" {
		t.Errorf("the first root shard: got %d, installation %q", code, owner)
	}
	for name, tc := range map[string]struct {
		as           *rest.Config
		installation string
		want         int
	}{
		"a shard":                            {west, "ours", http.StatusOK},
		"a shard of another one":             {west, "theirs", http.StatusForbidden},
		"the root shard of another one":      {root, "theirs", http.StatusForbidden},
		"a shard that names none":            {west, "", http.StatusOK},
		"an administrator":                   {s.member(t, "system:masters"), "theirs", http.StatusOK},
		"a name without an end":              {west, strings.Repeat("x", maxInstallation+1), http.StatusBadRequest},
		"a user, who learns nothing from it": {s.member(t, "users"), "theirs", http.StatusForbidden},
	} {
		code, message, owner := get(tc.as, tc.installation)
		if code != tc.want {
			t.Errorf("%s: got %d %s, want %d", name, code, message, tc.want)
		}
		if strings.Contains(name, "another one") != strings.Contains(message, "correct --cache-kubeconfig") {
			t.Errorf("%s: got %s", name, message)
		}
		if strings.HasPrefix(name, "a user") && owner != "" {
			t.Errorf("%s: got the installation %q", name, owner)
		}
	}
	if code, _, _ := send(t, west, http.MethodDelete, path+"/kept", "", InstallationHeader, "theirs"); code != http.StatusForbidden {
		t.Errorf("a deletion by a shard of another installation: got %d", code)
	}
	if code, _, _ := send(t, west, http.MethodGet, path+"/kept", "", InstallationHeader, "ours"); code != http.StatusOK {
		t.Errorf("the object is lost: got %d", code)
	}
	again, err := New(s.handler.config)
	if err != nil {
		t.Fatal(err)
	}
	if owner, err := again.ownerOf(t.Context(), true, "theirs"); owner != "ours" || err != nil {
		t.Errorf("after a restart, the objects are those of %q, %v", owner, err)
	}
}
