package options

import (
	"cmp"
	"fmt"
	"net/url"
)

// completeURLs sets the URLs of the shard that no flag sets, and returns an error if one is invalid.
func (o *Options) completeURLs(served string) error {
	o.ShardBaseURL = cmp.Or(o.ShardBaseURL, served)
	o.ShardExternalURL = cmp.Or(o.ShardExternalURL, o.ShardBaseURL)
	o.ShardVirtualWorkspaceURL = cmp.Or(o.ShardVirtualWorkspaceURL, o.ShardBaseURL)
	for _, named := range []struct{ flag, url string }{
		{"shard-base-url", o.ShardBaseURL}, {"shard-external-url", o.ShardExternalURL},
		{"shard-virtual-workspace-url", o.ShardVirtualWorkspaceURL},
	} {
		if u, err := url.Parse(named.url); err != nil || u.Scheme != "https" || u.Hostname() == "" {
			return fmt.Errorf("--%s: %q is not the URL of a server: use a URL such as https://kcp.example.com:6443", named.flag, named.url)
		}
	}
	return nil
}
