package otellock

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockkit/lockkit/core"
)

// A result is what is known of an operation when it has ended.
type result struct {
	core.Outcome
	ending
	took time.Duration
	lost bool // its lease was lost, and nobody had noticed before
}

// trace makes the span of an operation that was worth one, with the times that it had. It returns the context with the
// span, or the operation's own.
//
// An acquisition belongs to what the caller does. Everything else may happen when that is long over: it has a trace of
// its own, with a link. A loss has a link too, but stays in the trace of the span under which the lease was acquired,
// even if that span has ended: a sampler decides on a trace of its own without knowing whom the loss hit.
func (p *operation) trace(r result) context.Context {
	slow := p.Kind != core.OpHold && r.took >= p.o.threshold || p.o.threshold == 0
	if p.o.tracer == nil || r.failure == "" && !slow && !r.Contended {
		return p.ctx
	}
	attrs := p.attributes(r)
	opts := []trace.SpanStartOption{trace.WithTimestamp(p.began), trace.WithAttributes(attrs...)}
	caller := trace.SpanFromContext(p.ctx)
	if p.Kind != core.OpAcquire {
		if caller.SpanContext().IsValid() {
			opts = append(opts, trace.WithLinks(linkTo(caller.SpanContext(), linkHolder)))
		}
		if !r.lost {
			opts = append(opts, trace.WithNewRoot())
		}
	}
	if holder, ok := parseTrace(r.HolderHint); ok {
		opts = append(opts, trace.WithLinks(linkTo(holder, linkBlockedBy)))
	}
	ctx, span := p.o.tracer.Start(p.ctx, "lockkit."+p.Kind.String(), opts...)
	if r.failure != "" {
		span.SetStatus(codes.Error, r.description())
	}
	span.End(trace.WithTimestamp(p.began.Add(r.took)))
	if r.lost && caller.IsRecording() {
		caller.AddEvent(eventLost, trace.WithAttributes(attrs...))
		caller.SetStatus(codes.Error, r.description())
	}
	return ctx
}

// attributes are those of the operation's span.
func (p *operation) attributes(r result) []attribute.KeyValue {
	attrs := append(named(p.Name).attrs(), r.ending.attrs()...)
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
	if p.Kind == core.OpRenew || p.Kind == core.OpAcquire && r.Err == nil {
		attrs = append(attrs, AttrMargin.Float64(r.Margin.Seconds()))
	}
	return exportable(attrs)
}

func linkTo(span trace.SpanContext, what string) trace.Link {
	return trace.Link{SpanContext: span, Attributes: []attribute.KeyValue{AttrLink.String(what)}}
}

// traceLen is the length of a trace context on the nodes: the ids as they are, and not the 55 bytes of a traceparent,
// for which Redis would spend twice the memory of the lease.
const traceLen = len(trace.TraceID{}) + len(trace.SpanID{})

// hint is [core.Observer.Hint]: a lease carries the trace context of the span under which it is acquired. If that span
// is not sampled, there would be nothing to see.
func (o *observer) hint(ctx context.Context) string {
	span := trace.SpanContextFromContext(ctx)
	if o.tracer == nil || !span.IsValid() || !span.IsSampled() {
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
	span = trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID([]byte(s[:16])), SpanID: trace.SpanID([]byte(s[16:])),
		TraceFlags: trace.FlagsSampled, Remote: true,
	})
	return span, span.IsValid()
}
