package otellock

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/metric"

	"github.com/lockkit/lockkit/core"
)

// Buckets, in seconds. Waits and requests start at what a node in the same rack takes; holds last as long as jobs do.
var (
	waitBuckets    = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300}
	requestBuckets = []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}
	holdBuckets    = []float64{0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 14400}
	marginBuckets  = []float64{0, 0.1, 0.25, 0.5, 1, 2, 3, 5, 7.5, 10, 20, 40, 60, 300}
)

// instruments are all metrics.
type instruments struct {
	kinds          [core.OpComplete + 1]kind
	margin, node   metric.Float64Histogram
	losses, events metric.Int64Counter
	voting, spare  metric.Int64ObservableGauge
	offset, age    metric.Float64ObservableGauge
}

// A kind is how operations of one core.OpKind are measured.
type kind struct {
	ok    ending // of one without an error
	took  metric.Float64Histogram
	level metric.Int64UpDownCounter // of those in progress; nil if that is of no interest
	all   []enabler                 // everything that they are measured by
}

// newInstruments names every instrument that cannot be made.
func newInstruments(m metric.Meter) (in instruments, err error) {
	var faults []error
	histogram := func(name, what string, buckets []float64) metric.Float64Histogram {
		h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(what),
			metric.WithExplicitBucketBoundaries(buckets...))
		faults = append(faults, err)
		return h
	}
	counter := func(name, unit, what string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(what))
		faults = append(faults, err)
		return c
	}
	level := func(name, unit, what string) metric.Int64UpDownCounter {
		c, err := m.Int64UpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(what))
		faults = append(faults, err)
		return c
	}
	in.margin = histogram(MetricRenewMargin, "Trusted time a lease had left when a renewal began.", marginBuckets)
	in.node = histogram(MetricNodeDuration, "Time until a node answered a request or failed.", requestBuckets)
	in.losses = counter(MetricLosses, "{lease}", "Leases that ended before their holder was done.")
	in.events = counter(MetricEvents, "{event}", "Decisions of the packages on top of the locks.")
	// The unit is not "1", for which Prometheus would call the metric a ratio.
	in.voting, err = m.Int64ObservableGauge(MetricNodeVoting, metric.WithUnit("{node}"),
		metric.WithDescription("1 if a node votes, 0 if it does not."))
	faults = append(faults, err)
	in.spare, err = m.Int64ObservableGauge(MetricNodesSpare, metric.WithUnit("{node}"),
		metric.WithDescription("Nodes that may fail before a Locker of this process cannot lock."))
	faults = append(faults, err)
	in.offset, err = m.Float64ObservableGauge(MetricNodeClockOffset, metric.WithUnit("s"),
		metric.WithDescription("Clock of a node minus that of the process, request delay included."))
	faults = append(faults, err)
	in.age, err = m.Float64ObservableGauge(MetricHoldAge, metric.WithUnit("s"),
		metric.WithDescription("Age of the oldest lease that is held; 0 if none is."))
	faults = append(faults, err)

	acquire := histogram(MetricAcquireDuration, "Time from asking for a lock to the grant or the error.", waitBuckets)
	hold := histogram(MetricHoldDuration, "Time from the grant of a lock to its end.", holdBuckets)
	operation := histogram(MetricOperationDuration, "Time of one renewal, release or completion.", requestBuckets)
	waiters := level(MetricWaiters, "{request}", "Acquisitions in progress.")
	leases := level(MetricLeases, "{lease}", "Leases held.")
	in.kinds = [...]kind{
		core.OpAcquire:  {acquired, acquire, waiters, []enabler{acquire, waiters}},
		core.OpHold:     {released, hold, leases, []enabler{hold, leases, in.losses}},
		core.OpRenew:    {renewed, operation, nil, []enabler{operation, in.margin}},
		core.OpRelease:  {released, operation, nil, []enabler{operation, in.losses}},
		core.OpComplete: {completed, operation, nil, []enabler{operation}},
	}
	return in, errors.Join(faults...)
}

// An enabler is an instrument that knows whether anybody looks at it.
type enabler interface{ Enabled(context.Context) bool }

// anyEnabled reports whether anybody looks at one of the instruments.
func anyEnabled(ctx context.Context, instruments ...enabler) bool {
	for _, i := range instruments {
		if i.Enabled(ctx) {
			return true
		}
	}
	return false
}
