package otellock

import (
	"context"

	"go.opentelemetry.io/otel/trace"
)

// traceLen is what a trace context takes on the nodes: the ids as they are, and not the 55 bytes of a
// traceparent, with which Redis would not pack the lease any more, but spend twice the memory on it.
const traceLen = len(trace.TraceID{}) + len(trace.SpanID{})

// hint is [core.Observer.Hint]: leases carry the trace context of the span they are acquired under. One
// that is not sampled would lead nowhere.
func (o *observer) hint(ctx context.Context) string {
	if o.tracer == nil || !o.conf.links {
		return ""
	}
	span := trace.SpanContextFromContext(ctx)
	if !span.IsValid() || !span.IsSampled() {
		return ""
	}
	id, of := span.TraceID(), span.SpanID()
	return string(append(id[:], of[:]...))
}

// parseTrace reads what hint wrote, perhaps in another process. Anything else is nothing.
func parseTrace(s string) (span trace.SpanContext, ok bool) {
	if len(s) != traceLen {
		return span, false
	}
	span = trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID([]byte(s[:16])), SpanID: trace.SpanID([]byte(s[16:])),
		TraceFlags: trace.FlagsSampled, Remote: true})
	return span, span.IsValid()
}
