package options

import (
	"cmp"
	"fmt"
	"net/url"
)

// completeURLs fills in the URLs of the shard that nobody named, and returns an error for one that is none.
func (o *Options) completeURLs(served string) error {
	o.ShardBaseURL = cmp.Or(o.ShardBaseURL, served)
	o.ShardExternalURL = cmp.Or(o.ShardExternalURL, o.ShardBaseURL)
	o.ShardVirtualWorkspaceURL = cmp.Or(o.ShardVirtualWorkspaceURL, o.ShardBaseURL)
	for _, named := range []struct{ flag, url string }{
		{"shard-base-url", o.ShardBaseURL}, {"shard-external-url", o.ShardExternalURL},
		{"shard-virtual-workspace-url", o.ShardVirtualWorkspaceURL},
	} {
		if u, err := url.Parse(named.url); err != nil || u.Scheme != "https" || u.Hostname() == "" {
			return fmt.Errorf("--%s: %q is no URL of a server: want one such as https://kcp.example.com:6443", named.flag, named.url)
		}
	}
	return nil
}
