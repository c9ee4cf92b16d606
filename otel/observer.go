package otellock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/lockkit/lockkit/core"
)

// An observer turns what Lockers do into metrics and spans.
type observer struct {
	conf   config
	in     instruments
	tracer trace.Tracer // nil where spans go nowhere

	names     lookup[string, *series]
	decisions lookup[core.Event, point]
	unnamed   lookup[core.Event, point] // decisions, without the names that are too many
	nodes     lookup[nodeID, *node]
	free      sync.Pool // of *operation
}

// New returns what turns the operations of Lockers into metrics and spans, for [core.WithObserver]. One serves any
// number of Lockers, and has nothing to close: make one for a process, since where two with one meter provider see the same
// name, the age of its oldest hold is what the later one knows. The error names every bad option and every instrument that the meter
// provider refuses.
func New(opts ...Option) (core.Observer, error) {
	o, err := newObserver(opts)
	if err != nil {
		return core.Observer{}, fmt.Errorf("otellock: %w", err)
	}
	return core.Observer{Start: o.start, Event: o.event, Node: o.reply, Hint: o.hint}, nil
}

func newObserver(opts []Option) (*observer, error) {
	conf, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	o := &observer{conf: conf}
	meter := conf.meters.Meter(ScopeName, metric.WithInstrumentationVersion(version()))
	if o.in, err = newInstruments(meter); err != nil {
		return nil, err
	}
	if _, none := conf.tracers.(tracenoop.TracerProvider); !none {
		o.tracer = conf.tracers.Tracer(ScopeName, trace.WithInstrumentationVersion(version()))
	}
	o.names = lookup[string, *series]{limit: maxNames, make: o.newSeries}
	o.decisions = lookup[core.Event, point]{limit: maxDecisions, make: newDecision}
	o.unnamed = lookup[core.Event, point]{limit: maxKinds, make: newDecision}
	o.nodes = lookup[nodeID, *node]{limit: maxNodes, make: o.newNode}
	o.free.New = func() any {
		op := &operation{o: o}
		op.end = op.finish // once: a method value allocates
		return op
	}
	return o, o.registerAges(meter)
}

// newSeries begins the series of a name. Losses start at 0, so that the first one is an increase, and hand-offs, so
// that the share of each kind can be told.
func (o *observer) newSeries(name string, other bool) *series {
	s := newSeries(name, other)
	for _, reason := range lossReasons {
		o.in.losses.Add(context.Background(), 0, s.losses.get(string(reason)).add...) //nolint:forbidigo // a count that begins belongs to no operation
	}
	for _, wake := range []core.Waited{core.WaitedTold, core.WaitedPolled, core.WaitedInLine} {
		o.in.handoffs.Add(context.Background(), 0, s.wakes.get(string(wake)).add...) //nolint:forbidigo // a count that begins belongs to no operation
	}
	return s
}

// An operation is one that has started. It is used again when it has ended.
type operation struct {
	o     *observer
	op    core.Op
	ctx   context.Context
	span  trace.Span // nil: none yet
	began time.Time
	s     *series
	older *operation // of a hold: its neighbours in the list of its name
	newer *operation
	lease trace.Span                // of a hold: the span that the lease was acquired under; of a release: that of its caller
	level metric.Int64UpDownCounter // that counts it; nil: none
	end   func(core.Outcome)
}

// start is [core.Observer.Start].
func (o *observer) start(ctx context.Context, op core.Op) (context.Context, func(core.Outcome)) {
	k := &o.in.kinds[op.Kind]
	if o.tracer == nil && !anyEnabled(ctx, k.all...) {
		return ctx, nil
	}
	p := o.free.Get().(*operation)
	p.op, p.ctx, p.began, p.s = op, ctx, time.Now(), o.names.get(op.Name)
	if o.tracer != nil && o.conf.threshold == 0 {
		p.ctx, p.span = o.startSpan(ctx, op, time.Time{})
	}
	if op.Kind == core.OpHold || op.Kind == core.OpRelease {
		p.lease = trace.SpanFromContext(ctx)
	}
	if op.Kind == core.OpHold {
		p.s.holds.add(p)
	}
	if k.level != nil && k.level.Enabled(ctx) { // now: a provider may come in between
		p.level = k.level
		k.level.Add(p.ctx, 1, p.s.plain.add...)
	}
	return p.ctx, p.end
}

// finish books the end. The context that measurements are made in has the operation's span if there is one:
// exemplars lead to it.
func (p *operation) finish(out core.Outcome) {
	o, in, took := p.o, &p.o.in, time.Since(p.began)
	k := &in.kinds[p.op.Kind]
	if p.op.Kind == core.OpHold {
		p.s.holds.remove(p)
	}
	e := endingOf(p.ctx, p.op, out, k.ok)
	contended := out.Contended || core.ClassOf(out.Err) == core.ClassHeld
	lost := e.outcome == "lost" && (p.op.Kind == core.OpHold || out.Unnoticed)
	ctx := p.ctx
	if o.tracer != nil {
		ctx = p.endSpan(out, e, contended, took)
		if lost {
			p.tellHolder(e)
		}
	}
	if p.level != nil {
		p.level.Add(ctx, -1, p.s.plain.add...)
	}
	if p.op.Kind != core.OpHold || e != closed { // else the Locker was closed before the lease was handed out
		k.took.Record(ctx, took.Seconds(), p.s.pointFor(p.op.Kind, contended, e).record...)
	}
	switch {
	case p.op.Kind == core.OpAcquire && out.Waited != "":
		in.handoffs.Add(ctx, 1, p.s.wakes.get(string(out.Waited)).add...)
	case p.op.Kind == core.OpRenew:
		in.margin.Record(ctx, max(out.Margin, 0).Seconds(), p.s.plain.record...)
	case lost:
		in.losses.Add(ctx, 1, p.s.losses.get(e.failure).add...)
	}
	p.op, p.ctx, p.span, p.s, p.lease, p.level = core.Op{}, nil, nil, nil, nil, nil
	o.free.Put(p)
}

// event is [core.Observer.Event].
func (o *observer) event(ctx context.Context, e core.Event) {
	if o.in.decisions.Enabled(ctx) {
		p, ok := o.decisions.find(e)
		if !ok { // what was decided stays told apart: alerts look for that
			e.Name = otherName
			p = o.unnamed.get(e)
		}
		o.in.decisions.Add(ctx, 1, p.add...)
	}
}
