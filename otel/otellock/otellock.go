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
// serves any number of Lockers and need not be closed. Make one per process: if two observers share a meter provider
// and see the same name, only the later one reports the age of its oldest hold. The error names every invalid option
// and every instrument that the meter provider refuses.
func New(opts ...Option) (core.Observer, error) {
	o, err := newObserver(opts)
	if err != nil {
		return core.Observer{}, fmt.Errorf("otellock: %w", err)
	}

	observer := core.Observer{Start: o.start, Event: o.event, Node: o.node, Hint: o.hint}
	if o.noMetrics {
		observer.Node = nil // spans do not show replies of nodes, and each call of Node costs allocations
	}
	return observer, nil
}

func newObserver(opts []Option) (*observer, error) {
	conf, err := newConfig(opts)
	if err != nil {
		return nil, err
	}

	o := &observer{
		spanThreshold: conf.spanThreshold,
		classes:       map[string]*class{},
		nodes:         map[lockerNode]*nodeState{},
		events:        map[eventLabels]bool{},
		lockerSizes:   map[uint64]int{},
	}

	// Work for a provider that discards everything is skipped: no tracer is made, and hold ages and replies of nodes
	// are not kept. The other instruments of such a provider are disabled anyway.
	switch conf.tracers.(type) {
	case tracenoop.TracerProvider, *tracenoop.TracerProvider:
	default:
		o.tracer = conf.tracers.Tracer(ScopeName)
	}
	switch conf.meters.(type) {
	case metricnoop.MeterProvider, *metricnoop.MeterProvider:
		o.noMetrics = true
	}

	meter := conf.meters.Meter(ScopeName)
	o.instruments, err = newInstruments(meter)
	if err != nil {
		return nil, err
	}
	return o, errors.Join(o.registerHoldAge(meter), o.registerNodes(meter))
}

// start implements [core.Observer.Start].
func (o *observer) start(ctx context.Context, op core.Op) (context.Context, func(core.Outcome)) {
	in := &o.instruments.operations[op.Kind]

	// The gauge of hold ages needs every hold, even if all other instruments of holds are disabled.
	needsAge := op.Kind == core.OpHold && !o.noMetrics
	isObserved := o.tracer != nil || needsAge || anyEnabled(ctx, in.all...)
	if !isObserved {
		return ctx, nil
	}

	p := &operation{
		Op:       op,
		observer: o,
		ctx:      ctx,
		started:  time.Now(),
		class:    o.classFor(ctx, op.Name),
	}
	if op.Kind == core.OpHold {
		o.addHold(p)
	}

	// Whether the counter is enabled may change before the operation ends, so the operation keeps the counter that it
	// increased.
	if in.inProgress != nil && in.inProgress.Enabled(ctx) {
		p.inProgress = in.inProgress
		p.inProgress.Add(ctx, 1, o.series(nameLabel(p.class.name)))
	}
	return ctx, p.end
}

// end records how the operation ended. If the operation gets a span, its measurements are made in a context with that
// span, so that exemplars refer to the span.
func (p *operation) end(out core.Outcome) {
	o := p.observer
	in := &o.instruments.operations[p.Kind]
	name := nameLabel(p.class.name)
	duration := time.Since(p.started)

	if p.Kind == core.OpHold {
		o.removeHold(p)
	}

	r := result{
		Outcome:       out,
		outcomeLabels: outcomeOf(p.ctx, p.Op, out, in.success),
		duration:      duration,
	}
	r.Contended = r.Contended || core.ClassOf(out.Err) == core.ClassHeld
	r.firstReport = r.outcome == "lost" && (p.Kind == core.OpHold || out.Unnoticed)

	ctx := p.recordSpan(r)

	if p.inProgress != nil {
		p.inProgress.Add(ctx, -1, o.series(name))
	}

	// If the Locker was closed before the acquisition returned the lease, the caller held nothing.
	neverHeld := p.Kind == core.OpHold && r.outcomeLabels == outcomeClosed
	if !neverHeld {
		labels := operationLabels{name, r.outcomeLabels, p.Kind, r.Contended}
		in.duration.Record(ctx, duration.Seconds(), o.series(labels))
	}

	switch {
	case p.Kind == core.OpRenew:
		o.instruments.renewMargin.Record(ctx, max(out.Margin, 0).Seconds(), o.series(name))
	case r.firstReport:
		o.instruments.losses.Add(ctx, 1, o.series(lossLabels{name, r.errorType}))
	}
}

// event implements [core.Observer.Event].
func (o *observer) event(ctx context.Context, e core.Event) {
	if !o.instruments.events.Enabled(ctx) {
		return
	}

	e.Name = o.classFor(ctx, e.Name).name
	labels := o.limitEvents(eventLabels(e))
	o.instruments.events.Add(ctx, 1, o.series(labels))
}
