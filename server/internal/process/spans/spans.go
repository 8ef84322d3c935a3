// Package spans adds the steps of kcp to the traces of requests. Upstream's filters start the span of a request, and upstream has spans for
// storage and admission webhooks.
package spans

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/component-base/tracing"
)

// scope is the instrumentation scope of spans that are not started by k8s.io/component-base/tracing.
const scope = "github.com/kcplane/kcp"

// The attributes of spans.
const (
	Cluster  = attribute.Key("kcp.cluster")
	Path     = attribute.Key("kcp.path")
	Decision = attribute.Key("kcp.decision")
)

// Span is a step of a traced request. The zero value is the span of a request that is not traced; it ignores all calls.
type Span struct{ span *tracing.Span }

// Start starts a span if ctx has one that is recorded. Otherwise it returns ctx and does not allocate.
func Start(ctx context.Context, name string) (context.Context, Span) {
	if !Recording(ctx) {
		return ctx, Span{}
	}
	ctx, span := tracing.Start(ctx, name)
	return ctx, Span{span}
}

// Recording reports whether the span of ctx is recorded. Check it before computing attributes.
func Recording(ctx context.Context) bool { return trace.SpanFromContext(ctx).IsRecording() }

// Set sets attributes of the span of ctx.
func Set(ctx context.Context, attributes ...attribute.KeyValue) {
	trace.SpanFromContext(ctx).SetAttributes(attributes...)
}

// Past adds a span for a step that has ended before the span of ctx started.
func Past(ctx context.Context, name string, began, ended time.Time) {
	if !Recording(ctx) {
		return
	}
	tracer := trace.SpanFromContext(ctx).TracerProvider().Tracer(scope)
	_, span := tracer.Start(ctx, name, trace.WithTimestamp(began))
	span.End(trace.WithTimestamp(ended))
}

// End ends the span; err is nil if the step succeeded.
func (s Span) End(err error) {
	if s.span == nil {
		return
	}
	if err != nil {
		s.span.RecordError(err)
	}
	s.span.End(slow)
}

// slow is the duration after which upstream logs a step that belongs to a request which it measures.
const slow = 500 * time.Millisecond
