package command

import (
	"strings"
	"testing"
)

func TestTheCurrentWorkspaceIsASentence(t *testing.T) {
	for want, a := range map[string]about{
		`Current workspace is "root:org" (type root:universal).`:                 {Path: "root:org", Type: "root:universal"},
		`Current workspace is "root:org".`:                                       {Path: "root:org"},
		`Current workspace is "root:org:mounted", a mount of "root:other:prod".`: {Path: "root:org:mounted", Mounts: "root:other:prod", Type: "root:universal"},
		`Current workspace is the URL "https://kcp.test/services/x".`:            {URL: "https://kcp.test/services/x"},
	} {
		var out strings.Builder
		if err := a.announce(&out); err != nil || out.String() != want+"\n" {
			t.Errorf("got %q, %v, want %q", out.String(), err, want)
		}
	}
}
