package otellock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/lockkit/lockkit/core"
)

// An Observer turns what Lockers do into metrics and spans. One serves any number of Lockers; it is safe for
// concurrent use and has nothing to close.
type Observer struct {
	conf   config
	in     instruments
	tracer trace.Tracer // nil where spans go nowhere

	names     lookup[string, *series]
	decisions lookup[core.Event, point]
	nodes     lookup[nodeID, *node]
	free      sync.Pool // of *operation
}

var (
	_ core.EventObserver = (*Observer)(nil)
	_ core.NodeObserver  = (*Observer)(nil)
	_ core.Carrier       = (*Observer)(nil)
)

// New returns an Observer for [core.WithObserver]. The error names every bad option and every instrument
// that the meter provider refuses.
func New(opts ...Option) (*Observer, error) {
	conf, err := newConfig(opts)
	if err != nil {
		return nil, fmt.Errorf("otellock: %w", err)
	}
	o := &Observer{conf: conf}
	o.in, err = newInstruments(conf.meters.Meter(ScopeName))
	if err != nil {
		return nil, fmt.Errorf("otellock: %w", err)
	}
	if _, none := conf.tracers.(tracenoop.TracerProvider); !none {
		o.tracer = conf.tracers.Tracer(ScopeName)
	}
	o.names = lookup[string, *series]{limit: maxNames, make: o.newSeries}
	o.decisions = lookup[core.Event, point]{limit: maxDecisions, make: newDecision}
	o.nodes = lookup[nodeID, *node]{limit: maxNodes, make: o.newNode}
	o.free.New = func() any {
		op := &operation{o: o}
		op.end = op.finish // once: a method value allocates
		return op
	}
	return o, nil
}

// newSeries begins the series of a name. Losses start at 0, so that the first one is an increase, and hand-offs, so
// that the share of each kind can be told.
func (o *Observer) newSeries(name string, other bool) *series {
	s := newSeries(name, other)
	for _, at := range s.losses {
		o.in.losses.Add(context.Background(), 0, at.add...)
	}
	for _, at := range s.wakes {
		o.in.handoffs.Add(context.Background(), 0, at.add...)
	}
	return s
}

// An operation is one that has started. It is used again when it has ended.
type operation struct {
	o     *Observer
	op    core.Op
	ctx   context.Context
	span  trace.Span // nil: none yet
	began time.Time
	s     *series
	level metric.Int64UpDownCounter // that counts it; nil: none
	end   func(core.Outcome)
}

// Start implements [core.Observer].
func (o *Observer) Start(ctx context.Context, op core.Op) (context.Context, func(core.Outcome)) {
	if o.tracer == nil && !o.measures(ctx, op.Kind) {
		return ctx, nil
	}
	p := o.free.Get().(*operation)
	p.op, p.ctx, p.began, p.s = op, ctx, time.Now(), o.names.get(op.Name)
	if o.tracer != nil && o.conf.threshold == 0 {
		p.ctx, p.span = o.startSpan(ctx, op, time.Time{})
	}
	if level := o.level(op.Kind); level != nil && level.Enabled(ctx) { // now: a provider may come in between
		p.level = level
		level.Add(p.ctx, 1, p.s.plain.add...)
	}
	return p.ctx, p.end
}

// measures: somebody looks at the metrics of such operations.
func (o *Observer) measures(ctx context.Context, kind core.OpKind) bool {
	in := &o.in
	switch kind {
	case core.OpAcquire:
		return in.acquire.Enabled(ctx) || in.waiting.Enabled(ctx) || in.handoffs.Enabled(ctx) || in.wakeups.Enabled(ctx) || in.queue.Enabled(ctx)
	case core.OpHold:
		return in.hold.Enabled(ctx) || in.held.Enabled(ctx) || in.losses.Enabled(ctx)
	case core.OpRenew:
		return in.renew.Enabled(ctx) || in.margin.Enabled(ctx)
	case core.OpRelease:
		return in.release.Enabled(ctx)
	}
	return in.complete.Enabled(ctx)
}

// level counts the operations of a kind that are under way; nil where that is of no interest.
func (o *Observer) level(kind core.OpKind) metric.Int64UpDownCounter {
	switch kind {
	case core.OpAcquire:
		return o.in.waiting
	case core.OpHold:
		return o.in.held
	}
	return nil
}

// finish books the end. The context that measurements are made in has the operation's span if there is one:
// exemplars lead to it.
func (p *operation) finish(out core.Outcome) {
	o, took := p.o, time.Since(p.began)
	e := endingOf(p.ctx, p.op, out)
	contended := out.Contended || errors.Is(out.Err, core.ErrHeld)
	ctx := p.ctx
	if o.tracer != nil {
		ctx = p.endSpan(out, e, contended, took)
	}
	if p.level != nil {
		p.level.Add(ctx, -1, p.s.plain.add...)
	}
	at := p.s.of(p.op, contended, e)
	switch in := &o.in; p.op.Kind {
	case core.OpAcquire:
		in.acquire.Record(ctx, took.Seconds(), at.record...)
		p.finishWait(ctx, out)
	case core.OpHold:
		if e == closed { // the Locker was closed before the lease was handed out
			break
		}
		in.hold.Record(ctx, took.Seconds(), at.record...)
		if e.outcome == "lost" {
			in.losses.Add(ctx, 1, p.s.losses[e.failure].add...)
		}
	case core.OpRenew:
		in.renew.Record(ctx, took.Seconds(), at.record...)
		in.margin.Record(ctx, max(out.Margin, 0).Seconds(), p.s.plain.record...)
	case core.OpRelease:
		in.release.Record(ctx, took.Seconds(), at.record...)
	case core.OpComplete:
		in.complete.Record(ctx, took.Seconds(), at.record...)
	}
	p.op, p.ctx, p.span, p.s, p.level = core.Op{}, nil, nil, nil, nil
	o.free.Put(p)
}

// Event implements [core.EventObserver].
func (o *Observer) Event(ctx context.Context, e core.Event) {
	if o.in.decisions.Enabled(ctx) {
		o.in.decisions.Add(ctx, 1, o.decisions.get(e).add...)
	}
}
