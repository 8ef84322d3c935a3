package endpoints

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// shared returns endpoints whose providers are on another shard, which answers with a function, and the number of questions.
func shared(t *testing.T, url string, answer func(Question) (Answer, error)) (*Endpoints, *int) {
	t.Helper()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	e, asked := newEndpoints(t, server, url), 0
	allowed, err := ParseAllowed("root:library=" + notes)
	if err != nil {
		t.Fatal(err)
	}
	e.config.Allowed = []Allowed{allowed}
	e.config.Elsewhere = &Elsewhere{
		Shard: "own",
		Holder: func(_ context.Context, c logicalcluster.Name) (string, error) {
			return map[logicalcluster.Name]string{"library": "other", "thief": "other"}[c], nil
		},
		Ask: func(_ context.Context, shard string, q Question) (Answer, error) {
			asked++
			if shard != "other" {
				t.Errorf("shard %s is asked", shard)
			}
			return answer(q)
		},
	}
	return e, &asked
}

func TestASliceOnAnotherShardIsResolvedWithOneQuestion(t *testing.T) {
	e, asked := shared(t, notes, func(q Question) (Answer, error) {
		if q.Cluster != "library" || q.Slice != slice {
			t.Errorf("the question is about %v", q)
		}
		return Answer{Version: "1", Endpoints: all(notes + "/elsewhere")}, nil
	})
	for range 3 {
		if u, err := e.URL(t.Context(), "library", slice); err != nil || u.Path != "/services/notes/elsewhere" {
			t.Errorf("got %v, %v", u, err)
		}
	}
	if *asked != 1 {
		t.Errorf("%d questions", *asked)
	}
}

func TestWorkspacesWithoutAnAllowedURLCauseNoQuestions(t *testing.T) {
	e, asked := shared(t, notes, func(Question) (Answer, error) { return Answer{Version: "1", Endpoints: all(notes)}, nil })
	if u, err := e.URL(t.Context(), "thief", slice); err == nil {
		t.Errorf("it resolves to %s", u)
	}
	if *asked != 0 {
		t.Errorf("%d questions", *asked)
	}
}

func TestAnswersOfAnotherShardAreNotTrustedWithOtherURLs(t *testing.T) {
	for name, test := range map[string]struct {
		answer Answer
		err    error
		want   string
	}{
		"another URL":    {answer: Answer{Version: "1", Endpoints: all("https://internal.example.org/services/notes")}, want: "no URL that an administrator"},
		"no such slice":  {want: "does not exist"},
		"another kind":   {answer: Answer{Invalid: "its virtual storage refers to kind Secret"}, want: "kind Secret"},
		"does not reply": {err: errors.New("cut"), want: "asking shard other for Slice books of the provider: cut: retry the request"},
	} {
		e, asked := shared(t, notes, func(Question) (Answer, error) { return test.answer, test.err })
		for range 2 {
			if u, err := e.URL(t.Context(), "library", slice); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: got %v, %v", name, u, err)
			}
		}
		if want := 1; test.err == nil && *asked != want || test.err != nil && *asked != 2 {
			t.Errorf("%s: %d questions", name, *asked)
		}
	}
}

func TestRequestsEndWhenASliceOnAnotherShardChanges(t *testing.T) {
	answers := make(chan Answer, 1)
	current := Answer{Version: "1", Endpoints: all(notes)}
	e, _ := shared(t, notes, func(Question) (Answer, error) {
		select {
		case current = <-answers:
		default:
		}
		return current, nil
	})
	e.poll = time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	changed, err := e.Changed(ctx, "library", slice)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-changed:
		t.Fatal("the slice has not changed")
	default:
	}
	answers <- Answer{Version: "2"}
	for _, key := range e.answers.Keys() {
		e.answers.Remove(key) // instead of waiting until it expires
	}
	<-changed
}
