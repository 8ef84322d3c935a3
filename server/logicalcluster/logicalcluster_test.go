package logicalcluster

import (
	"regexp"
	"strings"
	"testing"
)

func TestPathsAreLabelsJoinedByColons(t *testing.T) {
	want := regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(:[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	var try func(s string, n int)
	try = func(s string, n int) {
		if got := ValidPath(s); got != want.MatchString(s) {
			t.Errorf("%q is valid: %t", s, got)
		}
		for _, c := range "a0-:A" {
			if n > 0 {
				try(s+string(c), n-1)
			}
		}
	}
	try("", 6)
	for s, valid := range map[string]bool{
		"root:org:team": true, "system:admin": true, "a/b": false, "a.b": false, "\xff": false, "a\n": false, "z9": true,
		strings.Repeat("a", MaxPathLength): true, strings.Repeat("a", MaxPathLength+1): false,
	} {
		if ValidPath(s) != valid {
			t.Errorf("%q is valid: %t", s, !valid)
		}
	}
}
