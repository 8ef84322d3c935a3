package spans

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

func TestStepsOfATracedRequestAreItsSpans(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	ctx, request := provider.Tracer("test").Start(t.Context(), "request")
	began := time.Now().Add(-time.Second)
	Past(ctx, "Resolve path", began, began.Add(time.Millisecond))
	inner, step := Start(ctx, "Authorize")
	Set(inner, Decision.String("Denied"))
	step.End(errors.New("refused"))
	request.End()

	var names []string
	for _, span := range recorder.Ended() {
		names = append(names, span.Name())
		if span.Name() != "request" && span.Parent().SpanID() != request.SpanContext().SpanID() {
			t.Errorf("%s is not a step of the request", span.Name())
		}
		switch span.Name() {
		case "Resolve path":
			if !span.StartTime().Equal(began) || span.EndTime().Sub(began) != time.Millisecond {
				t.Errorf("a past step took place from %s to %s", span.StartTime(), span.EndTime())
			}
		case "Authorize":
			if len(span.Events()) != 1 || len(span.Attributes()) != 1 {
				t.Errorf("the failed step has events %v and attributes %v", span.Events(), span.Attributes())
			}
		}
	}
	if want := []string{"Resolve path", "Authorize", "request"}; !slices.Equal(names, want) {
		t.Errorf("got spans %q, want %q", names, want)
	}
}

// requestKey is a key of a context.
type requestKey struct{}

func TestARequestWithoutTraceAllocatesNothing(t *testing.T) {
	ctx := context.WithValue(t.Context(), requestKey{}, "as in a request")
	var err error
	if n := testing.AllocsPerRun(1000, func() {
		inner, span := Start(ctx, "Authorize")
		Past(inner, "Resolve path", time.Time{}, time.Time{})
		span.End(err)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkARequestWithoutTrace(b *testing.B) {
	ctx := context.WithValue(b.Context(), requestKey{}, "as in a request")
	b.ReportAllocs()
	for b.Loop() {
		_, span := Start(ctx, "Authorize")
		span.End(nil)
	}
}
