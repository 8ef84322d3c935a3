package frontproxy

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/kcplane/kcp/server/internal/shards/tree"
)

const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: None
  resources: [{group: "", resources: [events]}]
- level: Metadata
`

func TestRefusalsAreAudited(t *testing.T) {
	directory := t.TempDir()
	policy, log := filepath.Join(directory, "policy.yaml"), filepath.Join(directory, "audit.log")
	replace(t, policy, auditPolicy)
	w := newWorld(t)
	f := w.start(func(o *Options) { o.Audit.PolicyFile, o.Audit.LogOptions.Path = policy, log })
	alice := f.client("alice", "team-a")
	f.ask(alice, http.MethodGet, "/clusters/root:org:team/api/v1/namespaces/default/secrets", nil, nil) // shard two audits it
	_, response, _ := f.ask(alice, http.MethodGet, "/clusters/root:absent/api/v1/namespaces/default/secrets?watch=1", nil, nil)
	f.ask(alice, http.MethodGet, "/clusters/root:absent/api/v1/events", nil, nil) // excluded by the policy
	f.ask(f.client(""), http.MethodDelete, "/clusters/*/api/v1/pods", nil, nil)
	f.stop()
	events := readEvents(t, log)
	if len(events) != 2 {
		t.Fatalf("got %d events", len(events))
	}
	first := events[0]
	got := []string{first.User.Username, strings.Join(first.User.Groups, " "), first.Verb, first.ObjectRef.Resource, first.RequestURI,
		string(first.ResponseStatus.Reason), string(first.AuditID)}
	want := []string{"alice", "team-a system:authenticated", "watch", "secrets", "/clusters/root:absent/api/v1/namespaces/default/secrets?watch=1",
		"Forbidden", response.Header.Get("Audit-Id")}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if second := events[1]; second.User.Username != "" || second.Verb != "deletecollection" || second.ResponseStatus.Code != http.StatusForbidden {
		t.Errorf("got %+v", second)
	}
}

func readEvents(t *testing.T, file string) (events []auditv1.Event) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var e auditv1.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		events = append(events, e)
	}
	return events
}

func TestRequestsThatAShardDoesNotHoldAreAudited(t *testing.T) {
	w := newWorld(t)
	two := w.shards["two"]
	two.set(func() { two.markers["team0"] = tree.Marker{Shard: "two", Incarnation: "x", Verdict: tree.Never} })
	directory := t.TempDir()
	policy, log := filepath.Join(directory, "policy.yaml"), filepath.Join(directory, "audit.log")
	replace(t, policy, auditPolicy)
	f := w.start(func(o *Options) { o.Audit.PolicyFile, o.Audit.LogOptions.Path = policy, log })
	f.ask(f.client("alice"), http.MethodPost, "/clusters/root:org:team/api/v1/namespaces", nil, strings.NewReader("{}"))
	f.stop()
	if events := readEvents(t, log); len(events) != 1 || events[0].User.Username != "alice" || events[0].Verb != "create" ||
		events[0].RequestURI != "/clusters/root:org:team/api/v1/namespaces" {
		t.Errorf("got %+v", events)
	}
}
