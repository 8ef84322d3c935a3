package endpoints

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/internal/process/fairqueue/fairqueuetest"
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
		Holder: func(c logicalcluster.Name) (string, uint64, bool) {
			shard, known := map[logicalcluster.Name]string{"library": "other", "thief": "other"}[c]
			return shard, 0, known
		},
		Holds: func(logicalcluster.Name) bool { return false },
		Find: func(_ context.Context, c logicalcluster.Name) (string, error) {
			t.Errorf("the shard of %s is searched", c)
			return "", nil
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
		if u, _, err := e.URL(t.Context(), "library", slice); err != nil || u.Path != "/services/notes/elsewhere" {
			t.Errorf("got %v, %v", u, err)
		}
	}
	if *asked != 1 {
		t.Errorf("%d questions", *asked)
	}
}

func TestTheQuestionForASliceTakesNoSeat(t *testing.T) {
	var until <-chan struct{}
	e, _ := shared(t, notes, func(Question) (Answer, error) {
		select {
		case <-until:
		case <-time.After(time.Minute):
		}
		return Answer{Version: "1", Endpoints: all(notes + "/elsewhere")}, nil
	})
	fairqueuetest.WhileOthersWait(t, func(ctx context.Context, seated <-chan struct{}) {
		until = seated
		if _, _, err := e.URL(ctx, "library", slice); err != nil {
			t.Error(err)
		}
	})
}

func TestWorkspacesWithoutAnAllowedURLCauseNoQuestions(t *testing.T) {
	e, asked := shared(t, notes, func(Question) (Answer, error) { return Answer{Version: "1", Endpoints: all(notes)}, nil })
	if u, _, err := e.URL(t.Context(), "thief", slice); err == nil {
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
		"another kind":   {answer: Answer{Invalid: true}, want: "refers to kind Slice, but no stored"},
		"another form":   {answer: Answer{Version: "1", Malformed: "no list"}, want: "cannot be decoded: no list"},
		"does not reply": {err: errors.New("cut"), want: "asking shard other for Slice books of the provider: cut: retry the request"},
	} {
		e, asked := shared(t, notes, func(Question) (Answer, error) { return test.answer, test.err })
		for range 2 {
			if u, _, err := e.URL(t.Context(), "library", slice); err == nil || !strings.Contains(err.Error(), test.want) {
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

func TestAnotherShardGetsOnlySlicesThatAnExportRefersTo(t *testing.T) {
	e, _ := shared(t, notes, nil)
	if got, err := e.Slice(t.Context(), Question{"library", slice}); err != nil || got.Version == "" || len(got.Endpoints) != 1 {
		t.Errorf("got %+v, %v", got, err)
	}
	exported := e.config.Exports
	e.config.Exports = func(c logicalcluster.Name) ([]*apisv1alpha2.APIExport, error) {
		found, err := exported(c)
		for _, export := range found {
			export.Spec.Resources[1].Storage.Virtual.Reference.Name = "others"
		}
		return found, err
	}
	for _, cluster := range []logicalcluster.Name{"library", "thief"} {
		if got, err := e.Slice(t.Context(), Question{cluster, slice}); err != nil || !reflect.DeepEqual(got, Answer{}) {
			t.Errorf("in %s: got %+v, %v", cluster, got, err)
		}
	}
	e.config.Exports = func(logicalcluster.Name) ([]*apisv1alpha2.APIExport, error) { return nil, errors.New("not read yet") }
	if _, err := e.Slice(t.Context(), Question{"library", slice}); err == nil {
		t.Error("an error of the exports is no error")
	}
}

func TestASliceHasALimitedNumberOfEndpoints(t *testing.T) {
	e, _ := shared(t, notes, nil)
	slices := e.config.Dynamic.Resource(sliceResource)
	stored, err := slices.Get(t.Context(), "books", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stored.Object["status"] = map[string]any{"endpoints": make([]any, maxEndpoints+1)}
	for n := range maxEndpoints + 1 {
		stored.Object["status"].(map[string]any)["endpoints"].([]any)[n] = map[string]any{"url": notes}
	}
	if _, err := slices.Update(t.Context(), stored, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, err := e.Slice(t.Context(), Question{"library", slice}); err != nil || len(got.Endpoints) != maxEndpoints {
		t.Errorf("got %d endpoints, %v", len(got.Endpoints), err)
	}
}

func TestLargeAnswersOfAnotherShardAreRefused(t *testing.T) {
	for want, answer := range map[string]Answer{
		"65 endpoints":             {Version: "1", Endpoints: make([]endpoint, maxEndpoints+1)},
		"bytes, and 32768 are all": {Version: "1", Endpoints: all(notes + strings.Repeat("/x", maxAnswerBytes/2))},
		"bytes, and 32768":         {Version: strings.Repeat("1", maxAnswerBytes)},
	} {
		e, _ := shared(t, notes, func(Question) (Answer, error) { return answer, nil })
		if _, _, err := e.URL(t.Context(), "library", slice); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		if len(e.answers.Keys()) != 0 {
			t.Errorf("%s: the answer is kept", want)
		}
	}
}

func TestRequestsEndWhenAnotherShardDoesNotAnswerForLong(t *testing.T) {
	down, failed := false, 0
	e, _ := shared(t, notes, func(Question) (Answer, error) {
		if down {
			failed++
			return Answer{}, errors.New("cut")
		}
		down = true
		return Answer{Version: "1", Endpoints: all(notes)}, nil
	})
	e.poll = time.Millisecond
	changed, err := e.Changed(t.Context(), "library", slice)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range e.answers.Keys() {
		e.answers.Remove(key) // instead of waiting until it expires
	}
	<-changed
	if failed != maxFailures {
		t.Errorf("it ended after %d errors", failed)
	}
}

func TestOnlyUnknownClustersAreSearched(t *testing.T) {
	e, _ := shared(t, notes, nil)
	e.config.Is = func(string, logicalcluster.Name) bool { return true }
	searched := 0
	e.config.Elsewhere = &Elsewhere{
		Shard:  "own",
		Holder: func(c logicalcluster.Name) (string, uint64, bool) { return "other", 1, c == "known" },
		Holds:  func(c logicalcluster.Name) bool { return c == "created" },
		Find: func(context.Context, logicalcluster.Name) (string, error) {
			searched++
			return "found", nil
		},
	}
	for cluster, want := range map[logicalcluster.Name]string{"known": "other", "created": "", "system:admin": "", "new": "found"} {
		if got, err := e.holder(t.Context(), cluster); got != want || err != nil {
			t.Errorf("%s is on shard %q, %v, want %q", cluster, got, err, want)
		}
	}
	if searched != 1 {
		t.Errorf("%d searches", searched)
	}
}

func TestAnErrorOfTheKindsIsNotAnInvalidReference(t *testing.T) {
	e, _ := shared(t, notes, nil)
	e.config.Elsewhere = nil
	e.config.RESTMapper = func(context.Context) (meta.RESTMapper, error) { return nil, errors.New("not read yet") }
	if _, _, err := e.URL(t.Context(), "library", slice); err == nil || err.Error() != "not read yet" {
		t.Errorf("got %v", err)
	}
}

func TestARequestThatEndsDoesNotEndTheQuestionOfOthers(t *testing.T) {
	began, proceed := make(chan struct{}), make(chan struct{})
	e, asked := shared(t, notes, func(Question) (Answer, error) {
		close(began)
		<-proceed
		return Answer{Version: "1", Endpoints: all(notes)}, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, _, err := e.URL(ctx, "library", slice)
		ended <- err
	}()
	<-began
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	close(proceed)
	if _, _, err := e.URL(t.Context(), "library", slice); err != nil || *asked != 1 {
		t.Errorf("%d questions, %v", *asked, err)
	}
}
