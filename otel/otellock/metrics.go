package otellock

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/metric"

	"github.com/lockkit/lockkit/core"
)

// Buckets, in seconds. Those of waits and requests begin at the latency of a node in the same rack; those of holds
// reach the duration of long jobs.
var (
	waitBuckets    = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300}
	requestBuckets = []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}
	holdBuckets    = []float64{0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 14400}
	marginBuckets  = []float64{0, 0.1, 0.25, 0.5, 1, 2, 3, 5, 7.5, 10, 20, 40, 60, 300}
)

// instruments are the instruments of all metrics.
type instruments struct {
	operations                [core.OpComplete + 1]operationInstruments // by core.OpKind
	renewMargin, nodeDuration metric.Float64Histogram
	losses, events            metric.Int64Counter
	nodeVoting, nodesSpare    metric.Int64ObservableGauge
	nodeClockOffset, holdAge  metric.Float64ObservableGauge
}

// operationInstruments measure the operations of one core.OpKind.
type operationInstruments struct {
	success    outcomeLabels // the outcome of an operation without an error
	duration   metric.Float64Histogram
	inProgress metric.Int64UpDownCounter // nil for kinds that are not counted while they run
	all        []enabler                 // every instrument that measures this kind
}

// newInstruments makes all instruments. The error names every instrument that the meter refuses.
func newInstruments(meter metric.Meter) (in instruments, err error) {
	var faults []error
	histogram := func(name, description string, buckets []float64) metric.Float64Histogram {
		h, err := meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description),
			metric.WithExplicitBucketBoundaries(buckets...))
		faults = append(faults, err)
		return h
	}
	counter := func(name, unit, description string) metric.Int64Counter {
		c, err := meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
		faults = append(faults, err)
		return c
	}
	upDownCounter := func(name, unit, description string) metric.Int64UpDownCounter {
		c, err := meter.Int64UpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
		faults = append(faults, err)
		return c
	}

	in.renewMargin = histogram(MetricRenewMargin, "Trusted time a lease had left when a renewal began.", marginBuckets)
	in.nodeDuration = histogram(MetricNodeDuration, "Time until a node answered a request or failed.", requestBuckets)
	in.losses = counter(MetricLosses, "{lease}", "Leases that ended before their holder was done.")
	in.events = counter(MetricEvents, "{event}", "Decisions of the packages on top of the locks.")

	// The unit is not "1": Prometheus would then call the metric a ratio.
	in.nodeVoting, err = meter.Int64ObservableGauge(MetricNodeVoting, metric.WithUnit("{node}"),
		metric.WithDescription("1 if a node votes, 0 if it does not."))
	faults = append(faults, err)
	in.nodesSpare, err = meter.Int64ObservableGauge(MetricNodesSpare, metric.WithUnit("{node}"),
		metric.WithDescription("Nodes that may fail before a Locker of this process cannot lock."))
	faults = append(faults, err)
	in.nodeClockOffset, err = meter.Float64ObservableGauge(MetricNodeClockOffset, metric.WithUnit("s"),
		metric.WithDescription("Clock of a node minus that of the process, request delay included."))
	faults = append(faults, err)
	in.holdAge, err = meter.Float64ObservableGauge(MetricHoldAge, metric.WithUnit("s"),
		metric.WithDescription("Age of the oldest lease that is held; 0 if none is."))
	faults = append(faults, err)

	acquire := histogram(MetricAcquireDuration, "Time from asking for a lock to the grant or the error.", waitBuckets)
	hold := histogram(MetricHoldDuration, "Time from the grant of a lock to its end.", holdBuckets)
	operation := histogram(MetricOperationDuration, "Time of one renewal, release or completion.", requestBuckets)
	waiters := upDownCounter(MetricWaiters, "{request}", "Acquisitions in progress.")
	leases := upDownCounter(MetricLeases, "{lease}", "Leases held.")

	in.operations = [...]operationInstruments{
		core.OpAcquire:  {outcomeAcquired, acquire, waiters, []enabler{acquire, waiters}},
		core.OpHold:     {outcomeReleased, hold, leases, []enabler{hold, leases, in.losses}},
		core.OpRenew:    {outcomeRenewed, operation, nil, []enabler{operation, in.renewMargin}},
		core.OpRelease:  {outcomeReleased, operation, nil, []enabler{operation, in.losses}},
		core.OpComplete: {outcomeCompleted, operation, nil, []enabler{operation}},
	}
	return in, errors.Join(faults...)
}

// An enabler is an instrument that reports whether its measurements are processed.
type enabler interface{ Enabled(context.Context) bool }

// anyEnabled reports whether any of the instruments is enabled.
func anyEnabled(ctx context.Context, instruments ...enabler) bool {
	for _, i := range instruments {
		if i.Enabled(ctx) {
			return true
		}
	}
	return false
}
