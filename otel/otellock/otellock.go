package otellock

import (
	"context"
	"errors"
	"fmt"
	"time"

	metricnoop "go.opentelemetry.io/otel/metric/noop"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/lockkit/lockkit/core"
)

// New returns an observer for [core.WithObserver] that turns the operations of Lockers into metrics and spans. It
// serves any number of Lockers, and has nothing to close. Make one per process: of two with one meter provider that
// see the same name, only the later one reports the age of its oldest hold. The error names every invalid option and
// every instrument that the meter provider refuses.
func New(opts ...Option) (core.Observer, error) {
	o, err := newObserver(opts)
	if err != nil {
		return core.Observer{}, fmt.Errorf("otellock: %w", err)
	}
	observer := core.Observer{Start: o.start, Event: o.event, Node: o.node, Hint: o.hint}
	if o.unmeasured {
		observer.Node = nil // replies of nodes are in no span, and to be told of them costs allocations
	}
	return observer, nil
}

func newObserver(opts []Option) (*observer, error) {
	conf, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	o := &observer{threshold: conf.threshold, classes: map[string]*class{}, nodes: map[member]*nodeState{}, events: map[decision]bool{}, sizes: map[uint64]int{}}
	switch conf.tracers.(type) {
	case tracenoop.TracerProvider, *tracenoop.TracerProvider:
	default:
		o.tracer = conf.tracers.Tracer(ScopeName)
	}
	switch conf.meters.(type) {
	case metricnoop.MeterProvider, *metricnoop.MeterProvider:
		o.unmeasured = true
	}
	meter := conf.meters.Meter(ScopeName)
	if o.in, err = newInstruments(meter); err != nil {
		return nil, err
	}
	return o, errors.Join(o.registerAges(meter), o.registerNodes(meter))
}

// start is [core.Observer.Start].
func (o *observer) start(ctx context.Context, op core.Op) (context.Context, func(core.Outcome)) {
	k := &o.in.kinds[op.Kind]
	ages := op.Kind == core.OpHold && !o.unmeasured // a gauge of its own, whatever else is dropped
	if o.tracer == nil && !ages && !anyEnabled(ctx, k.all...) {
		return ctx, nil
	}
	p := &operation{Op: op, o: o, ctx: ctx, began: time.Now(), class: o.class(ctx, op.Name)}
	if op.Kind == core.OpHold {
		o.hold(p)
	}
	if k.level != nil && k.level.Enabled(ctx) { // asked once: a provider may be installed before the operation ends
		p.level = k.level
		p.level.Add(ctx, 1, o.series(named(p.class.name)))
	}
	return ctx, p.end
}

// end records how the operation ended. If it has a span, measurements are made in a context with that span, so that
// exemplars lead to it.
func (p *operation) end(out core.Outcome) {
	o, name, took := p.o, named(p.class.name), time.Since(p.began)
	k := &o.in.kinds[p.Kind]
	if p.Kind == core.OpHold {
		o.unhold(p)
	}
	r := result{Outcome: out, ending: endingOf(p.ctx, p.Op, out, k.ok), took: took}
	r.Contended = r.Contended || core.ClassOf(out.Err) == core.ClassHeld
	r.lost = r.outcome == "lost" && (p.Kind == core.OpHold || out.Unnoticed)
	ctx := p.trace(r)
	if p.level != nil {
		p.level.Add(ctx, -1, o.series(name))
	}
	if p.Kind != core.OpHold || r.ending != closed { // else the Locker was closed before it returned the lease
		k.took.Record(ctx, took.Seconds(), o.series(ended{name, r.ending, p.Kind, r.Contended}))
	}
	switch {
	case p.Kind == core.OpRenew:
		o.in.margin.Record(ctx, max(out.Margin, 0).Seconds(), o.series(name))
	case r.lost:
		o.in.losses.Add(ctx, 1, o.series(loss{name, r.failure}))
	}
}

// event is [core.Observer.Event].
func (o *observer) event(ctx context.Context, e core.Event) {
	if o.in.events.Enabled(ctx) {
		e.Name = o.class(ctx, e.Name).name
		o.in.events.Add(ctx, 1, o.series(o.counted(decision(e))))
	}
}

// counted returns the labels under which an event is counted.
func (o *observer) counted(d decision) decision {
	o.mu.Lock()
	defer o.mu.Unlock()
	if d.Name != "" && !o.events[d] && len(o.events) >= maxEvents {
		d.Name = otherName
	}
	o.events[d] = true
	return d
}
