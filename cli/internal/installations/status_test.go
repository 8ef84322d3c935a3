package installations

import (
	"slices"
	"strings"
	"testing"
)

func TestComponentsOfNoInstallationAreShownWithTheReason(t *testing.T) {
	c, _, _ := clusterWith(t, example+`
---
apiVersion: operator.kcp.io/v1alpha1
kind: VirtualWorkspace
metadata: {name: lost}
spec: {target: {shardRef: {name: north}}}
---
apiVersion: operator.kcp.io/v1alpha1
kind: FrontProxy
metadata: {name: empty}`)
	o, err := c.Read(t.Context(), "team")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range Astray(o) {
		got = append(got, w.Kind+"/"+w.Name+" "+w.Message)
	}
	want := "Shard/elsewhere spec.rootShard.ref: there is no RootShard other in this namespace: create it, or correct the name; " +
		"VirtualWorkspace/lost spec.target.shardRef: there is no Shard north in this namespace: create it, or correct the name; " +
		"FrontProxy/empty spec.rootShard.ref is empty: set it"
	if strings.Join(got, "; ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, "; "), want)
	}
}

func TestTheStatusHasTheNextStepOfADrainAndAURLThatExists(t *testing.T) {
	c, _, _ := clusterWith(t, strings.Replace(example, `Drained, status: "False", reason: NoDestination, message: add a Shard`,
		`Drained, status: "True", reason: Empty, message: delete the Shard`, 1)+`
---
apiVersion: operator.kcp.io/v1alpha1
kind: FrontProxy
metadata: {name: starting}
spec: {rootShard: {ref: {name: main}}}`)
	o, err := c.Read(t.Context(), "team")
	if err != nil {
		t.Fatal(err)
	}
	in := Summarize("team", "main", o)[0]
	if in.URL != "https://public.example.com" {
		t.Errorf("the URL is %q", in.URL)
	}
	if !slices.ContainsFunc(in.Waiting, func(w Waiting) bool { return w.Name == "west" && w.Message == "delete the Shard" }) {
		t.Errorf("the next step of a drained Shard is not in %v", in.Waiting)
	}
}
