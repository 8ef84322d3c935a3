package mount

import (
	"strings"
	"testing"
)

func TestMountsUseOnlyKnownHosts(t *testing.T) {
	hosts, err := NewHosts([]string{"https://kcp.example.com:6443", "https://kcp.example.com"}, []string{"Prod.example.org", "dev.example.org:8443", "*.clusters.example.net", "10.0.0.1:6443"})
	if err != nil {
		t.Fatal(err)
	}
	for url, own := range map[string]bool{
		"https://kcp.example.com:6443/clusters/root:org": true, "https://kcp.example.com/services/view/clusters/x": true,
		"https://KCP.example.com/clusters/2x9k/": true,
		"https://prod.example.org":               false, "https://PROD.example.org:443/below": false, "https://dev.example.org:8443": false,
		"https://a.clusters.example.net": false, "https://b.a.clusters.example.net": false, "https://10.0.0.1:6443": false,
	} {
		if _, got, err := hosts.Check(url); err != nil || got != own {
			t.Errorf("%s: own %t, %v", url, got, err)
		}
	}
	for url, want := range map[string]string{
		"":                                                          "https://",
		"http://prod.example.org":                                   "https://",
		"https://":                                                  "https://",
		"https:prod.example.org":                                    "https://",
		"file:///etc/passwd":                                        "https://",
		"https://elsewhere.example.org":                             "may not use the host elsewhere.example.org:443",
		"https://prod.example.org:22":                               "may not use the host prod.example.org:22",
		"https://prod.example.org.evil.com":                         "may not use the host",
		"https://evilprod.example.org":                              "may not use the host",
		"https://clusters.example.net":                              "may not use the host",
		"https://evilclusters.example.net":                          "may not use the host",
		"https://10.0.0.1":                                          "may not use the host",
		"https://110.0.0.1:6443":                                    "may not use the host",
		"https://[::1]:6443":                                        "may not use the host",
		"https://169.254.169.254/latest":                            "may not use the host",
		"https://user@prod.example.org":                             "more than a host and a path",
		"https://prod.example.org@evil.com":                         "more than a host and a path",
		"https://prod.example.org?a=b":                              "more than a host and a path",
		"https://prod.example.org?":                                 "more than a host and a path",
		"https://prod.example.org#a":                                "more than a host and a path",
		"https://prod.example.org/a/../b":                           "relative segment",
		"https://prod.example.org/a/..":                             "relative segment",
		"https://prod.example.org/a%2fb":                            "escape",
		"https://prod.example.org//a":                               "empty",
		"https://a\x00b":                                            "not a URL",
		"https://kcp.example.com":                                   "neither that of a workspace",
		"https://kcp.example.com/metrics":                           "neither that of a workspace",
		"https://kcp.example.com/clusters/*":                        "neither that of a workspace",
		"https://kcp.example.com/clusters/root/api/v1/namespaces/x": "neither that of a workspace",
	} {
		if _, _, err := hosts.Check(url); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", url, err, want)
		}
	}
}

func TestInvalidHostsAreRefused(t *testing.T) {
	for _, host := range []string{"", "*", "*.", "a.*.b", "*a.example.org", "https://a.example.org", "a.example.org/path", "a.example.org?x", "u@a.example.org", "a:b:c"} {
		if _, err := NewHosts(nil, []string{host}); err == nil {
			t.Errorf("%q was accepted", host)
		}
	}
	if _, err := NewHosts([]string{"not a URL"}, nil); err == nil {
		t.Error("an installation without a host was accepted")
	}
}

func FuzzNoURLLeadsToAnUnknownHost(f *testing.F) {
	hosts, err := NewHosts([]string{"https://kcp.example.com"}, []string{"prod.example.org", "*.clusters.example.net"})
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{"https://prod.example.org/a", "https://kcp.example.com/clusters/root", "https://a.clusters.example.net", "https://u@b/c?d#e"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, _, err := hosts.Check(text)
		if err != nil {
			return
		}
		host := strings.ToLower(u.Hostname())
		if u.Scheme != "https" || (host != "kcp.example.com" && host != "prod.example.org" && !strings.HasSuffix(host, ".clusters.example.net")) || (u.Port() != "" && u.Port() != "443") {
			t.Errorf("%q leads to %s", text, u)
		}
	})
}
