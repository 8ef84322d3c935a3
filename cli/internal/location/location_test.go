package location

import (
	"strings"
	"testing"
	"testing/quick"
)

func TestParse(t *testing.T) {
	for _, test := range []struct{ server, base, cluster, url string }{
		{"https://h:6443/clusters/root:a:b", "https://h:6443", "root:a:b", "https://h:6443/clusters/root:a:b"},
		{"https://h:6443/clusters/2abcdefghij0123x/", "https://h:6443", "2abcdefghij0123x", "https://h:6443/clusters/2abcdefghij0123x"},
		{"https://h/kcp/clusters/root", "https://h/kcp", "root", "https://h/kcp/clusters/root"},
		{"h:1/clusters/root", "https://h:1", "root", "https://h:1/clusters/root"},
		{"http://[::1]:80/clusters/root", "http://[::1]:80", "root", "http://[::1]:80/clusters/root"},
		{"https://h:6443", "https://h:6443", "", "https://h:6443"},
		{"https://h:6443/", "https://h:6443", "", "https://h:6443"},
		{"https://h/kcp/", "https://h/kcp", "", "https://h/kcp"},
		{"https://h/clusters/*", "https://h", "", "https://h/clusters/*"},
		{"https://h/clusters/", "https://h", "", "https://h/clusters"},
		{"https://h/clusters/root/api", "https://h", "", "https://h/clusters/root/api"},
		{"https://h/services/initializingworkspaces/root:t/clusters/abc", "https://h", "", "https://h/services/initializingworkspaces/root:t/clusters/abc"},
		{"https://h/kcp/services/x", "https://h/kcp", "", "https://h/kcp/services/x"},
	} {
		got, err := Parse(test.server)
		if err != nil || got.Base() != test.base || got.Cluster() != test.cluster || got.URL() != test.url {
			t.Errorf("%s: base %q, cluster %q, URL %q, %v", test.server, got.Base(), got.Cluster(), got.URL(), err)
		}
	}
	for _, server := range []string{"", "https://", "https://a b/clusters/root", "https://h:port/"} {
		if got, err := Parse(server); err == nil {
			t.Errorf("%q parsed as %v, want an error", server, got)
		}
	}
}

func TestResolve(t *testing.T) {
	for _, test := range []struct{ from, name, want string }{
		{"root", "a", "root:a"},
		{"root:a", "b:c", "root:a:b:c"},
		{"root:a", "b/c/", "root:a:b:c"},
		{"root:a:b", "..", "root:a"},
		{"root:a:b", "..:..", "root"},
		{"root:a:b", "../c", "root:a:c"},
		{"root:a:b", "..:..:c:.:d", "root:c:d"},
		{"root:a", ".", "root:a"},
		{"root:a", "x:..", "root:a"},
		{"root:a", ":", "root"},
		{"root:a", "/", "root"},
		{"root:a", ":root:x", "root:x"},
		{"root:a", "/root/x", "root:x"},
		{"root:a", ":root:x:..:y", "root:y"},
		{"root:a", ":user:alice:x", "user:alice:x"},
		{"user:alice:x", "..", "user:alice"},
		{"root", "root:a", "root:root:a"},
		{"2abcdefghij0123x", "a", "2abcdefghij0123x:a"},
		{"", ":root", "root"},
		{"", ":", "root"},
	} {
		from := Location{base: "https://h", cluster: test.from, host: "https://h"}
		got, err := from.Resolve(test.name)
		if err != nil || got.URL() != "https://h/clusters/"+test.want {
			t.Errorf("%s from %q is %v, %v; want %s", test.name, test.from, got, err, test.want)
		}
	}
}

func TestResolveErrors(t *testing.T) {
	for _, test := range []struct{ from, name, want string }{
		{"root", "", "is empty"},
		{"root", "..", `invalid path "..": root has no parent`},
		{"root:a", "..:..:b", "root has no parent"},
		{"user:alice", "..", "user:alice has no parent"},
		{"root", "A", `segment "A" must be`},
		{"root", "a::b", `segment "" must be`},
		{"root", "-a", `segment "-a" must be`},
		{"root", "a:*", `segment "*" must be`},
		{"root", "a?b", `segment "a?b" must be`},
		{"root", "::", `invalid path`},
		{"root", ":.", "has no segments"},
		{"", "a", `https://h is not a workspace (the URL has no /clusters/ path), so the relative path "a" cannot be resolved; pass an absolute path, such as :root:a`},
	} {
		from := Location{base: "https://h", cluster: test.from, host: "https://h"}
		if got, err := from.Resolve(test.name); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q from %q: %v, %v; want %q", test.name, test.from, got, err, test.want)
		}
	}
}

func TestParent(t *testing.T) {
	for cluster, want := range map[string]string{"root:a:b": "root:a", "root:a": "root", "user:bob:x": "user:bob"} {
		if got, ok := (Location{cluster: cluster}).Parent(); !ok || got.Cluster() != want {
			t.Errorf("the parent of %s is %v", cluster, got)
		}
	}
	for _, cluster := range []string{"", "root", "user:bob", "system:admin", "2abcdefghij0123x"} {
		if got, ok := (Location{cluster: cluster}).Parent(); ok {
			t.Errorf("the parent of %q is %v", cluster, got)
		}
	}
}

// path returns a valid path below root that is derived from numbers.
func path(numbers []uint16) string {
	names := []string{Root}
	for _, n := range numbers {
		name := []byte{"abcdefghijklmnopqrstuvwxyz0123456789"[n%36]}
		if n > 1<<15 {
			name = append(name, '-', name[0])
		}
		names = append(names, string(name))
	}
	return strings.Join(names, ":")
}

func TestResolveDownAndUpReturnsToTheStart(t *testing.T) {
	check := func(from, down []uint16) bool {
		here := Location{base: "https://h", cluster: path(from)}
		relative := strings.TrimPrefix(path(down), Root)
		if relative == "" {
			return true
		}
		there, err := here.Resolve(relative[1:])
		if err != nil || there.Cluster() != here.Cluster()+relative {
			return false
		}
		back, err := there.Resolve(strings.TrimSuffix(strings.Repeat("..:", len(down)), ":"))
		if err != nil || back != here {
			return false
		}
		absolute, err := back.Resolve(":" + there.Cluster())
		parsed, parseErr := Parse(there.URL())
		return err == nil && absolute == there && parseErr == nil && parsed.Cluster() == there.Cluster() && parsed.Base() == there.Base()
	}
	if err := quick.Check(check, nil); err != nil {
		t.Error(err)
	}
}

func FuzzResolve(f *testing.F) {
	for _, name := range []string{"a", "..", ".:a", ":root:a", "/", "::", "a:..:..:..", "~", "-", "\x00", "a/b:c/"} {
		f.Add("root:org:team", name)
		f.Add("", name)
	}
	f.Fuzz(func(t *testing.T, from, name string) {
		if from != "" && !ValidPath(from) {
			return
		}
		here := Location{base: "https://h", cluster: from, host: "https://h"}
		got, err := here.Resolve(name)
		if err != nil {
			return
		}
		if !ValidPath(got.Cluster()) {
			t.Fatalf("%q from %q is %q", name, from, got.Cluster())
		}
		parsed, err := Parse(got.URL())
		if err != nil || parsed.Cluster() != got.Cluster() || parsed.Base() != got.Base() {
			t.Fatalf("%q parsed as %q, %v", got.URL(), parsed, err)
		}
		if IsAbsolute(name) {
			if other, err := here.At("root:elsewhere").Resolve(name); err != nil || other != got {
				t.Fatalf("%q is %v and %v", name, got, other)
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add("https://h:6443/clusters/root:a")
	f.Add("h/services/x/clusters/y")
	f.Add("https://h/clusters/a/clusters/b")
	f.Fuzz(func(t *testing.T, server string) {
		got, err := Parse(server)
		if err != nil {
			return
		}
		if got.IsWorkspace() != ValidPath(got.Cluster()) {
			t.Fatalf("%q has the cluster %q", server, got.Cluster())
		}
		if again, err := Parse(got.At(Root).URL()); err == nil && again.Cluster() != Root {
			t.Fatalf("root of %q parsed as %v", server, again)
		}
	})
}
