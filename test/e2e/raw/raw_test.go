package raw

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// page shows every difference.
var page = filepath.Join("..", "..", "..", "docs", "differences.md")

// least is the number of requests that must be compared.
const least = 190

func TestDifferencesFromKubernetesAreDocumented(t *testing.T) {
	cluster := server.Cluster(t)
	cluster.Kubectl(t, "create", "clusterrolebinding", "alice-enters", "--clusterrole="+kcptest.EntryRole, "--user="+kcptest.Alice.Name)
	kcp, err := newPeer(cluster.Config(kcptest.Anonymous), cluster.Name)
	if err != nil {
		t.Fatal(err)
	}
	kubernetes, err := newPeer(host, "")
	if err != nil {
		t.Fatal(err)
	}
	all := chapters(t)
	ours, theirs := map[*exchange][]string{}, map[*exchange][]string{}
	var both sync.WaitGroup
	both.Go(func() { askAll(t, kcp, all, ours) })
	both.Go(func() { askAll(t, kubernetes, all, theirs) })
	both.Wait()
	if dir := os.Getenv("RAW_ANSWERS"); dir != "" {
		dump(t, dir, all, ours, theirs)
	}

	var text bytes.Buffer
	names, sum, differing := map[string]bool{}, 0, 0
	for _, c := range all {
		var section bytes.Buffer
		for _, e := range c.exchanges {
			if names[e.name] {
				t.Errorf("two requests have the name %q", e.name)
			}
			names[e.name] = true
			sum++
			differences := compare(theirs[e], ours[e])
			switch {
			case len(differences) == 0 && e.differs != "":
				t.Errorf("%s: the responses are the same, but a reason for a difference is given: %s", e.name, e.differs)
			case len(differences) > 0 && e.differs == "":
				t.Errorf("%s: %s %s: the responses differ (- Kubernetes, + a workspace):\n%s", e.name, e.method, e.path, strings.Join(differences, "\n"))
			case len(differences) > 0:
				differing++
				fmt.Fprintf(&section, "\n### %s\n\n`%s %s`: %s\n\n```diff\n%s\n```\n", e.name, e.method, e.path, e.differs, strings.Join(differences, "\n"))
			}
		}
		if section.Len() > 0 {
			fmt.Fprintf(&text, "\n## %s\n%s", c.title, section.String())
		}
	}
	if sum < least {
		t.Errorf("compared %d requests, want %d or more", sum, least)
	}
	t.Logf("%d requests, %d of them with different responses", sum, differing)
	if !t.Failed() {
		golden(t, fmt.Sprintf(head, sum, differing)+text.String())
	}
}

const head = `# Differences from Kubernetes

A workspace responds to requests like a kube-apiserver. ` + "`test/e2e/raw`" + ` sends the same %d raw requests, one at a time, to a
workspace and to an unmodified kube-apiserver of the same version, and compares the status codes, the headers and each value of the bodies. %d of them are
different, for the reasons below. The test fails on any other difference, and writes this page with ` + "`UPDATE=1`" + `.
Lines with ` + "`-`" + ` are only in the response of Kubernetes, lines with ` + "`+`" + ` only in the response of the workspace.

Some things are not compared, because they differ in each response or by design:

- UIDs, times, resource versions, tokens and generated suffixes of names: only their presence is compared. The order of fields is not compared.
- The annotation ` + "`kcp.io/cluster`" + `, which each object of a workspace has, and the prefix ` + "`/clusters/<cluster>`" + ` of paths.
- The headers ` + "`X-Kubernetes-Pf-…`" + `: kcp shares its capacity between workspaces, and has no FlowSchemas.
- Kubernetes runs without its controller manager here. kcp runs the controllers that a workspace needs in the server.
`

func golden(t *testing.T, want string) {
	t.Helper()
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if differences := compare(strings.Split(string(have), "\n"), strings.Split(want, "\n")); len(differences) > 0 {
		t.Errorf("docs/differences.md is stale: check the difference and run the test with UPDATE=1:\n%s", strings.Join(differences, "\n"))
	}
}

// askAll sends all requests to a server, and stores the responses.
func askAll(t *testing.T, p *peer, all []chapter, answers map[*exchange][]string) {
	for _, c := range all {
		for _, e := range c.exchanges {
			lines, err := p.ask(context.Background(), e)
			if err != nil {
				t.Errorf("%s: at %s: %v", e.name, p.base, err)
				lines = []string{err.Error()}
			}
			answers[e] = lines
		}
	}
}

// dump writes the responses to files, for finding the reason of a difference.
func dump(t *testing.T, dir string, all []chapter, ours, theirs map[*exchange][]string) {
	for name, answers := range map[string]map[*exchange][]string{"kcp": ours, "kubernetes": theirs} {
		var text bytes.Buffer
		for _, c := range all {
			for _, e := range c.exchanges {
				fmt.Fprintf(&text, "### %s\n%s %s\n%s\n\n", e.name, e.method, e.path, strings.Join(answers[e], "\n"))
			}
		}
		if err := os.WriteFile(filepath.Join(dir, name+".txt"), text.Bytes(), 0o600); err != nil {
			t.Error(err)
		}
	}
}

// compare returns the lines that only one of two texts has: "-" those of the first, "+" those of the second.
func compare(first, second []string) []string {
	common := make([][]int, len(first)+1) // common[i][j] is the length of the longest common subsequence of first[i:] and second[j:]
	for i := range common {
		common[i] = make([]int, len(second)+1)
	}
	for i := len(first) - 1; i >= 0; i-- {
		for j := len(second) - 1; j >= 0; j-- {
			if first[i] == second[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var lines []string
	i, j := 0, 0
	for i < len(first) || j < len(second) {
		switch {
		case i < len(first) && j < len(second) && first[i] == second[j]:
			i, j = i+1, j+1
		case j == len(second) || i < len(first) && common[i+1][j] >= common[i][j+1]:
			lines = append(lines, "-"+first[i])
			i++
		default:
			lines = append(lines, "+"+second[j])
			j++
		}
	}
	return lines
}
