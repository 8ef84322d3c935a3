package mapping

import (
	"strings"
	"testing"

	"github.com/kcplane/kcp/server/internal/frontproxy/identity"
)

const operators = `
- path: /clusters/
  backend: https://root:6443
  backend_server_ca: /ca.crt
  proxy_client_cert: /tls.crt
  proxy_client_key: /tls.key
- path: /services/
  backend: https://root:6443/
- path: /services/custom/{cluster}/things
  backend: https://custom
  user_header: X-User
- path: /services/custom/fixed/things
  backend: https://fixed
- path: /services/tail/clusters/
  backend: https://tail/base
- path: /
  backend: https://default
`

func parse(t *testing.T, text string) Mapping {
	t.Helper()
	m, err := Parse("mapping.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestTheLongestPrefixWins(t *testing.T) {
	m := parse(t, operators)
	for path, want := range map[string]struct{ backend, cluster string }{
		"/clusters/root:org/api":                     {"https://root:6443", "root:org"},
		"/clusters":                                  {"https://root:6443", ""},
		"/services/apiexport/a/b/clusters/c/api":     {"https://root:6443", ""},
		"/services/custom/root:a/things/x":           {"https://custom", "root:a"},
		"/services/custom/fixed/things":              {"https://fixed", ""},
		"/services/custom/root:a/others":             {"https://root:6443", ""},
		"/services/tail/clusters/root:b/api":         {"https://tail/base", "root:b"},
		"/services/tail/other":                       {"https://root:6443", ""},
		"/servicesX":                                 {"https://default", ""},
		"/api":                                       {"https://default", ""},
		"/":                                          {"https://default", ""},
		"/Clusters/root":                             {"https://default", ""},
		"/services/custom/fixed/things/clusters/x/y": {"https://fixed", ""},
	} {
		got, ok := m.Match(path)
		if !ok || got.Backend.String() != want.backend || got.Cluster != want.cluster {
			t.Errorf("%s: %v, %q, %t, want %+v", path, got.Entry, got.Cluster, ok, want)
		}
	}
	if got, ok := parse(t, "- {path: /clusters/, backend: https://root}").Match("/api"); ok {
		t.Errorf("/api has the backend %s", got.Backend)
	}
}

func TestTheClusterOfAPathIsReplaced(t *testing.T) {
	m := parse(t, operators)
	for path, want := range map[string]string{
		"/services/custom/root:a/things/root:a": "/services/custom/2x9k/things/root:a",
		"/services/tail/clusters/root:b":        "/services/tail/clusters/2x9k",
		"/clusters/root:b/api/":                 "/clusters/2x9k/api/",
	} {
		match, _ := m.Match(path)
		if got := match.Replace(path, "2x9k"); got != want {
			t.Errorf("%s became %s, want %s", path, got, want)
		}
	}
}

func TestErrorsHaveTheLine(t *testing.T) {
	for text, want := range map[string]string{
		"- path: /a\n  backend: https://a\n- path: /a/\n  backend: https://b": "mapping.yaml:3: path \"/a/\": another entry",
		"- path: /a\n  backend: https://a\n  bckend: x":                       "mapping.yaml:3: unknown field \"bckend\"",
		"- path: /a\n  path: /b\n  backend: https://a":                        "mapping.yaml:2: field \"path\" is set twice",
		"\n- path: /a":                          "mapping.yaml:2: backend is required",
		"- backend: https://a":                  "mapping.yaml:1: path is required",
		"- path: /a\n  backend: http://a":       "mapping.yaml:2: backend: \"http://a\" is not",
		"- path: /a\n  backend: https://user@a": "mapping.yaml:2: backend",
		"- path: /a\n  backend: https://a?x=y":  "mapping.yaml:2: backend",
		"- path: /a\n  backend: 7":              "mapping.yaml:2: backend: must be a string",
		"- path: [/a]\n  backend: https://a":    "mapping.yaml:1: path: must be a string",
		"- /a":                                  "mapping.yaml:1: an entry must be an object",
		"path: /a":                              "mapping.yaml:1: must be a list",
		"[]":                                    "mapping.yaml:1: must have an entry",
		"":                                      "mapping.yaml:1: must be a list",
		"- path: \"/a\n":                        "mapping.yaml:2: found unexpected end of stream",
		"- path: \"/a":                          "mapping.yaml:1: found unexpected end of stream",
		"- path: /a\n  backend: https://a\n\t- path: /b":                                      "mapping.yaml:2: found a tab character",
		"- path: /a\n  backend: https://a\n- path: {\n":                                       "mapping.yaml:3: did not find",
		"- path: /a\n  backend: https://\x00\n":                                               "mapping.yaml:2: control characters are not allowed",
		"- path: /a\n  backend: https://a\n- path: \xff":                                      "mapping.yaml:3: ",
		"- {path: /a, backend: https://a}\n---\n- path: \"/b\n":                               "mapping.yaml:3: found unexpected end of stream",
		"- {path: /a, backend: https://a}\n---\n- {path: /b}":                                 "mapping.yaml:2: must not have more than one document",
		"- {path: a, backend: https://a}":                                                     "must begin with /",
		"- {path: //a, backend: https://a}":                                                   "no empty segment",
		"- {path: /a/../b, backend: https://a}":                                               "relative segment",
		"- {path: /a%2fb, backend: https://a}":                                                "none of the characters",
		"- {path: '/{cluster}/{cluster}', backend: https://a}":                                "once at most",
		"- {path: '/{workspace}', backend: https://a}":                                        "only placeholder",
		"- {path: '/x{cluster}', backend: https://a}":                                         "whole segment",
		"- {path: /a, backend: https://a, proxy_client_cert: /x}":                             "must be set together",
		"- {path: /a, backend: https://a, user_header: 'X User'}":                             "user_header: \"X User\" cannot be",
		"- {path: /a, backend: https://a, user_header: X-Remote-Extra-User}":                  "must differ",
		"- {path: /a, backend: https://a, user_header: x-remote-group}":                       "must differ",
		"- {path: /a, backend: https://a, group_header: Authorization}":                       "cannot be",
		strings.Repeat("- {path: /a, backend: https://a}\n", 2):                               "mapping.yaml:2: path \"/a\": another",
		"- &a {path: /a, backend: https://a}\n- *a":                                           "mapping.yaml:2: an entry must be an object",
		"- {path: /a, backend: https://a, <<: {backend_server_ca: /x}}":                       "unknown field \"<<\"",
		"- {path: /a, backend: https://a}\n---\n- {path: /b, backend: https://b, unknown: 1}": "more than one document",
	} {
		if _, err := Parse("mapping.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

func TestNamesOfAllEntriesAreKnown(t *testing.T) {
	got := parse(t, operators).Names()
	if len(got) != 2 || got[0] != identity.DefaultNames || got[1].User != "X-User" || got[1].Group != "X-Remote-Group" {
		t.Errorf("got %+v", got)
	}
}

func FuzzAMappingNeverPanics(f *testing.F) {
	f.Add(operators, "/clusters/x")
	f.Fuzz(func(t *testing.T, text, path string) {
		m, err := Parse("mapping.yaml", []byte(text))
		if match, ok := m.Match(path); err == nil && ok && match.Cluster != "" {
			match.Replace("/"+strings.TrimLeft(path, "/"), "x")
		}
	})
}
