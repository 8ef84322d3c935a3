package feed

import (
	"context"
	"errors"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

const keptDeleted = "deleted/apiexports/org/widgets"

// list makes everything count as read from the cache server.
func (k *keeping) list() {
	for _, s := range k.sources {
		s.once.Do(func() { close(s.listed) })
	}
}

// follow decides, asks and writes once.
func (k *keeping) follow(t *testing.T) {
	t.Helper()
	k.decide()
	k.ask(t.Context())
	if err := k.settle(t); err != nil {
		t.Fatal(err)
	}
}

func deletedEverywhere(string) (ExportAnswer, error) { return ExportAnswer{Deleted: true}, nil }

func TestADeletedExportIsRememberedWhileItIsBound(t *testing.T) {
	k := newKeeping(t, unused, bindingToOrg())
	k.offerOrg()
	k.list()
	k.follow(t)
	k.Withdraw("east", widgets("org", "first"))
	k.follow(t)
	if k.Deleted("org", "widgets") {
		t.Error("it is deleted, and no shard has said so")
	}
	k.answers = deletedEverywhere
	k.follow(t)
	k.expect(t, keptWebhooks, keptCluster, keptRoot, keptDeleted, keptEdge)

	again := newKeeping(t, unused, bindingToOrg())
	again.store.KeptStore = k.store.KeptStore
	if again.Deleted("org", "widgets") {
		t.Error("it is deleted before Load")
	}
	if err := again.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	again.follow(t)
	if !again.Deleted("org", "widgets") || again.Deleted("org", "other") || len(again.store.writes) > 0 || len(again.asked) > 0 {
		t.Errorf("after a restart: deleted %t, another one %t, writes %v, asked %v", again.Deleted("org", "widgets"),
			again.Deleted("org", "other"), again.store.writes, again.asked)
	}

	k.Offer("east", widgets("org", "second"))
	k.follow(t)
	k.expect(t, keptWebhooks, keptExport, keptCluster, keptRoot, keptEdge)
	if k.Deleted("org", "widgets") {
		t.Error("an export that was created again is deleted")
	}

	k.Withdraw("east", widgets("org", "second"))
	k.follow(t)
	k.binds(exportOf(bindingToOrg()), informers.Key{})
	k.follow(t)
	if k.expect(t, keptRoot, keptEdge); k.Deleted("org", "widgets") {
		t.Error("it is remembered, and nothing binds it")
	}
}

func TestWhichShardsSayThatAnExportIsDeleted(t *testing.T) {
	deleted, moved, exists := ExportAnswer{Deleted: true}, ExportAnswer{Moved: "west"}, ExportAnswer{}
	type answers = map[string][]ExportAnswer // the last one is repeated
	all := []string{"root", "east", "west"}
	withdraw := func(k *keeping) { k.Withdraw("east", widgets("org", "first")) }
	vanish := func(k *keeping) { // with its cluster
		withdraw(k)
		k.Withdraw("root", orgWorkspace())
	}
	for name, test := range map[string]struct {
		change  func(k *keeping)
		answers answers
		want    bool
		asked   []string
	}{
		"none is asked about an export that exists": {func(*keeping) {}, nil, false, nil},
		"the holder":                        {withdraw, answers{"east": {deleted}}, true, []string{"east"}},
		"a holder that has it":              {withdraw, answers{"east": {exists}}, false, []string{"east"}},
		"a holder that does not respond":    {withdraw, nil, false, []string{"east"}},
		"all, without a holder":             {vanish, answers{"root": {deleted}, "east": {deleted}, "west": {deleted}}, true, all},
		"all but one that has it":           {vanish, answers{"root": {deleted}, "east": {deleted}, "west": {exists}}, false, all},
		"all but one that does not respond": {vanish, answers{"root": {deleted}, "east": {deleted}}, false, all},
		"all after it has moved once":       {vanish, answers{"root": {deleted}, "east": {moved}, "west": {deleted}}, true, append(all, all...)},
		"all while it moves to one that was asked": {vanish, answers{"root": {deleted, exists}, "east": {deleted}, "west": {{Moved: "root"}}}, false,
			append(all, "root")},
		"a holder from which it has moved":         {withdraw, answers{"east": {moved}}, false, []string{"east"}},
		"all but the one to which it has moved":    {vanish, answers{"root": {deleted}, "east": {{Moved: "north"}}, "west": {deleted}}, false, all},
		"all while it moves on":                    {vanish, answers{"root": {deleted}, "east": {moved}, "west": {deleted, {Moved: "root"}}}, false, append(all, all...)},
		"none, for what only another shard offers": {func(k *keeping) { k.Withdraw("evil", widgets("org", "forged")) }, nil, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKeeping(t, unused, bindingToOrg())
			k.offerOrg()
			test.change(k)
			k.answers = func(shard string) (ExportAnswer, error) {
				left := test.answers[shard]
				if len(left) == 0 {
					return ExportAnswer{}, errors.New("no response")
				}
				if len(left) > 1 {
					test.answers[shard] = left[1:]
				}
				return left[0], nil
			}
			k.decide()
			if k.ask(t.Context()); len(k.asked) > 0 {
				t.Error("a shard is asked before everything was read from the cache server")
			}
			k.list()
			if again := k.ask(t.Context()); again != (len(test.asked) > 0 && !test.want) {
				t.Errorf("it is asked again: %t", again)
			}
			k.decide()
			if got := k.Deleted("org", "widgets"); got != test.want {
				t.Errorf("deleted: %t, want %t", got, test.want)
			}
			if !slices.Equal(k.asked, test.asked) {
				t.Errorf("asked %v, want %v", k.asked, test.asked)
			}
		})
	}
}

func TestWithoutKnownShardsNoExportIsDeleted(t *testing.T) {
	k := newKeeping(t, unused, bindingToOrg())
	k.offerOrg()
	k.Withdraw("east", widgets("org", "first"))
	k.Withdraw("root", orgWorkspace()) // there is no holder
	k.Kept.in.Shards = func() []string { return nil }
	k.list()
	k.decide()
	if again := k.ask(t.Context()); !again {
		t.Error("it is not asked again")
	}
	k.decide()
	if k.Deleted("org", "widgets") {
		t.Error("the export is deleted although no shard has said so")
	}
}

func TestAnswerAboutAnExport(t *testing.T) {
	absent := apierrors.NewNotFound(schema.GroupResource{}, "")
	down := errors.New("etcd is down")
	for name, test := range map[string]struct {
		before, after   string // what the fence says
		cluster, export error
		want            ExportAnswer
		err             bool
	}{
		"it exists":                        {want: ExportAnswer{}},
		"it was deleted":                   {export: absent, want: ExportAnswer{Deleted: true}},
		"its cluster was deleted":          {cluster: absent, want: ExportAnswer{Deleted: true}},
		"its cluster has moved":            {before: "west", cluster: absent, want: ExportAnswer{Moved: "west"}},
		"its cluster moves at that time":   {after: "west", cluster: absent, want: ExportAnswer{Moved: "west"}},
		"its cluster is moving":            {before: "moving", err: true},
		"its cluster begins to move":       {after: "moving", cluster: absent, err: true},
		"its cluster cannot be read":       {cluster: down, err: true},
		"the export itself cannot be read": {export: down, err: true},
	} {
		t.Run(name, func(t *testing.T) {
			fences := []string{test.before, test.after}
			got, err := StoredExports{
				Moved: func(context.Context, logicalcluster.Name) (string, error) {
					fence := fences[0]
					if fences = fences[1:]; fence == "moving" {
						return "", errors.New("it is moving")
					}
					return fence, nil
				},
				Cluster: func(context.Context) error { return test.cluster },
				Export:  func(context.Context, string) error { return test.export },
			}.Answer(t.Context(), ExportQuestion{Cluster: "org", Export: "widgets"})
			if (err != nil) != test.err || err == nil && got != test.want {
				t.Errorf("got %+v, %v, want %+v, error %t", got, err, test.want, test.err)
			}
		})
	}
	for _, q := range []ExportQuestion{{}, {Cluster: "org"}, {Export: "a"}, {Cluster: "org", Export: "a/b"}, {Cluster: "system:admin", Export: "a"}} {
		if _, err := (StoredExports{}).Answer(t.Context(), q); !apierrors.IsBadRequest(err) {
			t.Errorf("%+v: got %v, want BadRequest", q, err)
		}
	}
}
