package options

import (
	"strings"
	"testing"
)

func TestURLsOfTheShardMustBeURLsOfServers(t *testing.T) {
	for _, row := range []struct {
		given Options
		want  string
	}{
		{Options{}, ""},
		{Options{ShardBaseURL: "https://[::1]:6443"}, ""},
		{Options{ShardBaseURL: "kcp.example.com:6443"}, "--shard-base-url"},
		{Options{ShardExternalURL: "http://kcp.example.com"}, "--shard-external-url"},
		{Options{ShardVirtualWorkspaceURL: "https://:6443"}, "--shard-virtual-workspace-url"},
	} {
		err := row.given.completeURLs("https://localhost:6443")
		if (err == nil) != (row.want == "") || err != nil && !strings.HasPrefix(err.Error(), row.want+": ") {
			t.Errorf("%+v: %v", row.given, err)
		}
	}
	o := Options{ShardBaseURL: "https://shard"}
	if err := o.completeURLs("https://localhost"); err != nil || o.ShardExternalURL != "https://shard" || o.ShardVirtualWorkspaceURL != "https://shard" {
		t.Errorf("%s, %s, %v", o.ShardExternalURL, o.ShardVirtualWorkspaceURL, err)
	}
}
