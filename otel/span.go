package otellock

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockkit/lockkit/core"
)

// startSpan starts the span of an operation that began at that time (zero = now). An acquisition belongs to
// what the caller does. All else may happen when that is long over: it has a trace of its own, with a link.
func (o *observer) startSpan(ctx context.Context, op core.Op, began time.Time) (context.Context, trace.Span) {
	opts := []trace.SpanStartOption{trace.WithAttributes(o.identity(op)...)}
	if !began.IsZero() {
		opts = append(opts, trace.WithTimestamp(began))
	}
	if op.Kind != core.OpAcquire {
		opts = append(opts, trace.WithNewRoot())
		if holder := trace.SpanContextFromContext(ctx); holder.IsValid() {
			opts = append(opts, trace.WithLinks(linkTo(holder, linkHolder)))
		}
	}
	return o.tracer.Start(ctx, o.in.kinds[op.Kind].span, opts...)
}

// identity are the attributes that tell which lease an operation is about.
func (o *observer) identity(op core.Op) []attribute.KeyValue {
	attrs := make([]attribute.KeyValue, 0, 4)
	if op.Name != "" {
		attrs = append(attrs, AttrName.String(op.Name))
	}
	if op.Token != 0 {
		attrs = append(attrs, AttrToken.Int64(int64(op.Token)))
	}
	if o.conf.secret != nil {
		attrs = append(attrs, AttrKeyHash.String(o.hash(op.Key)))
	}
	return attrs
}

func linkTo(span trace.SpanContext, what string) trace.Link {
	return trace.Link{SpanContext: span, Attributes: []attribute.KeyValue{AttrLink.String(what)}}
}

// endSpan ends the operation's span, which it makes now if the operation is worth one. It returns the
// context with the span, or the operation's own.
func (p *operation) endSpan(out core.Outcome, e ending, contended bool, took time.Duration) context.Context {
	ctx, span, o := p.ctx, p.span, p.o
	if span == nil {
		slow := p.op.Kind != core.OpHold && took >= o.conf.threshold
		if e.failure == "" && !slow && !(p.op.Kind == core.OpAcquire && contended) {
			return ctx
		}
		ctx, span = o.startSpan(ctx, p.op, p.began)
	}
	if span.IsRecording() {
		span.SetAttributes(p.attributes(out, e, contended)...)
		if holder, ok := parseTrace(out.HolderHint); ok {
			span.AddLink(linkTo(holder, linkBlockedBy))
		}
		if e.failure != "" {
			span.SetStatus(codes.Error, e.description())
		}
	}
	if p.span == nil {
		span.End(trace.WithTimestamp(p.began.Add(took)))
	} else {
		span.End()
	}
	return ctx
}

// tellHolder has a loss show in the trace of what was done under the lease. The span of the loss is in a trace of its
// own, to which nothing leads from there, and which a sampler may have left out.
func (p *operation) tellHolder(e ending) {
	if !p.lease.IsRecording() {
		return
	}
	p.lease.AddEvent(eventLost, trace.WithAttributes(append(p.o.identity(p.op), AttrErrorType.String(e.failure))...))
	p.lease.SetStatus(codes.Error, e.description())
}

// attributes are those known at the end.
func (p *operation) attributes(out core.Outcome, e ending, contended bool) []attribute.KeyValue {
	attrs := e.attrs()
	if len(out.Nodes) > 0 {
		votes := make([]string, len(out.Nodes))
		for i, n := range out.Nodes {
			votes[i] = n.Verdict.String()
		}
		attrs = append(attrs, AttrVotes.StringSlice(votes))
	}
	switch p.op.Kind {
	case core.OpAcquire:
		attrs = append(attrs, AttrContended.Bool(contended), AttrAttempts.Int(out.Attempts))
		if out.LocalWait > 0 {
			attrs = append(attrs, AttrLocalWait.Float64(out.LocalWait.Seconds()))
		}
		if out.Waited != "" {
			attrs = append(attrs, AttrWake.String(string(out.Waited)))
		}
		if out.Err == nil {
			attrs = append(attrs, AttrToken.Int64(int64(out.Token)), AttrMargin.Float64(out.Margin.Seconds()))
		}
	case core.OpRenew:
		attrs = append(attrs, AttrMargin.Float64(out.Margin.Seconds()))
	default: // no attributes of its own
	}
	return attrs
}

// hash tells keys apart without naming them.
func (o *observer) hash(key string) string {
	mac := hmac.New(sha256.New, o.conf.secret)
	mac.Write([]byte(key))
	return hex.EncodeToString(mac.Sum(nil)[:8])
}
