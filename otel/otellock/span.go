package otellock

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockkit/lockkit/core"
)

// A result describes an operation that has ended.
type result struct {
	core.Outcome
	outcomeLabels
	duration    time.Duration
	firstReport bool // the operation is the first to report that its lease was lost
}

// recordSpan makes the span of the operation, with the operation's start and end times, if the operation failed, found
// the key held or was slow. It returns a context with the span, or else the operation's own context.
//
// The span of an acquisition is a child of the caller's span. The caller's span may be over when another operation
// ends, so the span of that operation begins a new trace, with a link to the caller's span. The span of a loss has the
// link, but stays in the trace in which the lease was acquired, even if the caller's span is over: for a new trace, a
// sampler would decide without knowing which trace the loss affects.
func (p *operation) recordSpan(r result) context.Context {
	if !p.needsSpan(r) {
		return p.ctx
	}

	attrs := p.spanAttributes(r)
	opts := []trace.SpanStartOption{trace.WithTimestamp(p.started), trace.WithAttributes(attrs...)}

	caller := trace.SpanFromContext(p.ctx)
	if p.Kind != core.OpAcquire {
		if caller.SpanContext().IsValid() {
			opts = append(opts, trace.WithLinks(linkTo(caller.SpanContext(), linkHolder)))
		}
		if !r.firstReport {
			opts = append(opts, trace.WithNewRoot())
		}
	}
	if holder, ok := parseHint(r.HolderHint); ok {
		opts = append(opts, trace.WithLinks(linkTo(holder, linkBlockedBy)))
	}

	ctx, span := p.observer.tracer.Start(p.ctx, "lockkit."+p.Kind.String(), opts...)
	if r.errorType != "" {
		span.SetStatus(codes.Error, r.description())
	}
	span.End(trace.WithTimestamp(p.started.Add(r.duration)))

	// The caller may still be at work under the lost lease, so its own span shows the loss, too.
	if r.firstReport && caller.IsRecording() {
		caller.AddEvent(eventLost, trace.WithAttributes(attrs...))
		caller.SetStatus(codes.Error, r.description())
	}
	return ctx
}

// needsSpan reports whether the operation gets a span.
func (p *operation) needsSpan(r result) bool {
	if p.observer.tracer == nil {
		return false
	}
	if r.errorType != "" || r.Contended {
		return true
	}

	// Leases may be held for long, so a long hold is not slow.
	isSlow := p.Kind != core.OpHold && r.duration >= p.observer.spanThreshold
	return isSlow || p.observer.spanThreshold == 0
}

// spanAttributes returns the attributes of the operation's span.
func (p *operation) spanAttributes(r result) []attribute.KeyValue {
	attrs := append(nameLabel(p.Name).attrs(), r.outcomeLabels.attrs()...)
	if p.Keys > 1 {
		attrs = append(attrs, AttrKeys.Int(p.Keys))
	}
	if token := max(p.Token, r.Token); token != 0 {
		attrs = append(attrs, AttrToken.Int64(int64(token)))
	}

	if len(r.Nodes) > 0 {
		votes := make([]string, len(r.Nodes))
		for i, n := range r.Nodes {
			votes[i] = n.Verdict.String()
		}
		attrs = append(attrs, AttrVotes.StringSlice(votes))
	}

	if p.Kind == core.OpAcquire {
		attrs = append(attrs, AttrContended.Bool(r.Contended), AttrAttempts.Int(r.Attempts))
	}
	hasMargin := p.Kind == core.OpRenew || p.Kind == core.OpAcquire && r.Err == nil
	if hasMargin {
		attrs = append(attrs, AttrMargin.Float64(r.Margin.Seconds()))
	}
	return exportable(attrs)
}

func linkTo(span trace.SpanContext, relation string) trace.Link {
	return trace.Link{SpanContext: span, Attributes: []attribute.KeyValue{AttrLink.String(relation)}}
}

// hintLen is the length of a hint: the bytes of a trace id and a span id. The 55 bytes of a traceparent would double
// the memory that Redis needs for a lease.
const hintLen = len(trace.TraceID{}) + len(trace.SpanID{})

// hint implements [core.Observer.Hint]: a lease carries the trace context of the span under which it is acquired. It
// returns an empty hint if the span is not sampled, because a link to it would lead nowhere.
func (o *observer) hint(ctx context.Context) string {
	span := trace.SpanContextFromContext(ctx)
	if o.tracer == nil || !span.IsValid() || !span.IsSampled() {
		return ""
	}
	traceID := span.TraceID()
	spanID := span.SpanID()
	return string(append(traceID[:], spanID[:]...))
}

// parseHint returns the span context in a hint, which another process may have written. ok is false if s is no such
// hint.
func parseHint(s string) (span trace.SpanContext, ok bool) {
	if len(s) != hintLen {
		return span, false
	}

	span = trace.NewSpanContext(trace.SpanContextConfig{
		TraceID:    trace.TraceID([]byte(s[:16])),
		SpanID:     trace.SpanID([]byte(s[16:])),
		TraceFlags: trace.FlagsSampled,
		Remote:     true,
	})
	return span, span.IsValid()
}
