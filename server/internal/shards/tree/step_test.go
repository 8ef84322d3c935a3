package tree

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAnAnswerLeadsAsFarAsItsShardHoldsThePath(t *testing.T) {
	toOrg, toTeam := Edge{Parent: "root", Name: "org", Cluster: "o", UID: UID{1}}, Edge{Parent: "o", Name: "team", Cluster: "t", Shard: "eu", Epoch: 2}
	here := Edge{Parent: "o", Name: "team", Cluster: "t"}
	mount, down := Edge{Parent: "o", Name: "team", URL: "https://example.org"}, Edge{Parent: "root", Name: "org", Cluster: "o", Unavailable: true}
	for name, c := range map[string]struct {
		path   string
		answer Answer
		want   Step
	}{
		"to its end": {"root:org", Answer{Edges: []Edge{toOrg}, Cluster: &Cluster{Name: "o"}},
			Step{Cluster: "o", Shard: "us", Edge: toOrg, Held: &Cluster{Name: "o"}}},
		"the cluster itself": {"o", Answer{Cluster: &Cluster{Name: "o"}}, Step{Cluster: "o", Shard: "us", Held: &Cluster{Name: "o"}}},
		"to another shard": {"root:org:team:below", Answer{Edges: []Edge{toOrg, toTeam}, Shard: "eu", Rest: "t:below"},
			Step{Cluster: "t", Shard: "eu", Edge: toTeam, Missing: "below"}},
		"to the end on another shard": {"o:team", Answer{Edges: []Edge{toTeam}, Shard: "eu", Rest: "t"}, Step{Cluster: "t", Shard: "eu", Edge: toTeam}},
		"to a cluster that has moved": {"o:team", Answer{Shard: "eu", Rest: "o:team"}, Step{Cluster: "o", Shard: "eu", Moved: true, Missing: "team"}},
		"to one that has just moved": {"o:team:below", Answer{Edges: []Edge{here}, Shard: "eu", Rest: "t:below"},
			Step{Cluster: "t", Shard: "eu", Edge: here, Moved: true, Missing: "below"}},
		"to a mount":        {"root:org:team", Answer{Edges: []Edge{toOrg, mount}}, Step{Cluster: "o", Shard: "us", Edge: toOrg, Mount: "team"}},
		"below a mount":     {"o:team:below", Answer{Edges: []Edge{mount}}, Step{Cluster: "o", Shard: "us", Mount: "team", Missing: "below", Absent: true}},
		"through a failure": {"root:org:team", Answer{Edges: []Edge{down, here}}, Step{Cluster: "t", Shard: "us", Edge: here, Unavailable: true}},
		"not further":       {"root:org:none", Answer{Edges: []Edge{toOrg}}, Step{Cluster: "o", Shard: "us", Edge: toOrg, Missing: "none", Absent: true}},
		"nowhere":           {"root:none", Answer{}, Step{Cluster: "root", Shard: "us", Missing: "none", Absent: true}},
	} {
		got, err := c.answer.Follow("us", c.path)
		if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v: %s", name, err, diff)
		}
	}
}

func TestAnAnswerAboutAnotherPathLeadsNowhere(t *testing.T) {
	toOrg := Edge{Parent: "root", Name: "org", Cluster: "o"}
	elsewhere, team := Edge{Parent: "root", Name: "org", Cluster: "o", Shard: "eu"}, Edge{Parent: "o", Name: "team", Cluster: "t"}
	mount := Edge{Parent: "root", Name: "org", URL: "https://example.org"}
	for name, answer := range map[string]Answer{
		"another parent":            {Edges: []Edge{{Parent: "other", Name: "org", Cluster: "o"}}},
		"another name":              {Edges: []Edge{{Parent: "root", Name: "other", Cluster: "o"}}},
		"a deleted workspace":       {Edges: []Edge{{Parent: "root", Name: "org", Deleted: true}}},
		"more than the path":        {Edges: []Edge{toOrg, team, {Parent: "t", Name: "more", Cluster: "m"}}},
		"without a name":            {Edges: []Edge{toOrg, team, {Parent: "t", Cluster: "m"}}},
		"of another shard's":        {Edges: []Edge{elsewhere, team}},
		"below a mount":             {Edges: []Edge{mount, {Parent: "root", Name: "team", Cluster: "t"}}},
		"another cluster":           {Edges: []Edge{toOrg, team}, Cluster: &Cluster{Name: "victim"}},
		"a cluster on the way":      {Edges: []Edge{toOrg}, Cluster: &Cluster{Name: "o"}},
		"a cluster of another's":    {Edges: []Edge{toOrg, {Parent: "o", Name: "team", Cluster: "t", Shard: "eu"}}, Cluster: &Cluster{Name: "t"}},
		"a cluster for a mount":     {Edges: []Edge{toOrg, {Parent: "o", Name: "team"}}, Cluster: &Cluster{Name: "o"}},
		"a question about another":  {Edges: []Edge{elsewhere}, Shard: "eu", Rest: "victim:team"},
		"a question about too much": {Edges: []Edge{elsewhere}, Shard: "eu", Rest: "o:team:more"},
	} {
		if got, err := answer.Follow("us", "root:org:team"); err == nil {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}
