package quickstart

import (
	"slices"
	"testing"
)

func TestTreeHasParentsBeforeChildren(t *testing.T) {
	for _, c := range []struct{ count, depth int }{{0, 1}, {1, 1}, {50, 3}, {20, 1}, {200, 5}} {
		tree := Tree(c.count, c.depth, 7)
		if len(tree) != c.count {
			t.Errorf("%d workspaces of depth %d: got %d", c.count, c.depth, len(tree))
		}
		known := map[string]bool{"": true}
		deepest := 0
		for _, path := range tree {
			parent, at := "", ""
			for _, name := range path {
				parent, at = at, at+":"+name
			}
			if !known[parent] || known[at] {
				t.Fatalf("%v precedes its parent or is a duplicate", path)
			}
			known[at], deepest = true, max(deepest, len(path))
		}
		if deepest > c.depth {
			t.Errorf("%d workspaces of depth %d have depth %d", c.count, c.depth, deepest)
		}
	}
	same := slices.EqualFunc(Tree(50, 3, 1), Tree(50, 3, 1), slices.Equal[[]string])
	other := slices.EqualFunc(Tree(50, 3, 1), Tree(50, 3, 2), slices.Equal[[]string])
	if !same || other {
		t.Error("want the same tree for the same seed only")
	}
}

func TestManifestsHaveTheirResources(t *testing.T) {
	objects, err := ProviderObjects()
	if err != nil {
		t.Fatal(err)
	}
	more, err := Samples()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range append(objects, more...) {
		got = append(got, o.Resource.Resource+"/"+o.GetName())
	}
	if want := []string{"apiresourceschemas/v1.cowboys.wildwest.dev", "apiexports/" + Export, "cowboys/lucky-luke"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
