package otellock

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/trace"
)

// Carry implements [core.Carrier]: leases carry the trace context of the span they are acquired under, as a
// W3C traceparent. One that is not sampled would lead nowhere.
func (o *Observer) Carry(ctx context.Context) string {
	if o.tracer == nil || !o.conf.links {
		return ""
	}
	span := trace.SpanContextFromContext(ctx)
	if !span.IsValid() || !span.IsSampled() {
		return ""
	}
	return "00-" + span.TraceID().String() + "-" + span.SpanID().String() + "-01"
}

// parseTrace reads what Carry wrote, perhaps in another process. Anything else is nothing.
func parseTrace(s string) (span trace.SpanContext, ok bool) {
	f := strings.Split(s, "-")
	if len(f) != 4 || f[0] != "00" || f[3] != "01" {
		return span, false
	}
	id, err := trace.TraceIDFromHex(f[1])
	if err != nil {
		return span, false
	}
	of, err := trace.SpanIDFromHex(f[2])
	if err != nil {
		return span, false
	}
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: of, TraceFlags: trace.FlagsSampled, Remote: true}), true
}
