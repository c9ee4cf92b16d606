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
	operations [core.OpComplete + 1]operationInstruments // by core.OpKind

	renewMargin metric.Float64Histogram
	losses      metric.Int64Counter
	holdAge     metric.Float64ObservableGauge
	events      metric.Int64Counter

	nodeDuration    metric.Float64Histogram
	nodeVoting      metric.Int64ObservableGauge
	nodesSpare      metric.Int64ObservableGauge
	nodeClockOffset metric.Float64ObservableGauge
}

// operationInstruments measure the operations of one core.OpKind.
type operationInstruments struct {
	success    outcomeLabels // the outcome of an operation without an error
	duration   metric.Float64Histogram
	inProgress metric.Int64UpDownCounter // nil for kinds that are not counted while they run
	all        []enabler                 // every instrument that measures this kind
}

// newInstruments makes all instruments. The error names every instrument that the meter refuses.
func newInstruments(meter metric.Meter) (instruments, error) {
	m := maker{meter: meter}
	in := instruments{
		renewMargin:  m.histogram(MetricRenewMargin, "Trusted time a lease had left when a renewal began.", marginBuckets),
		nodeDuration: m.histogram(MetricNodeDuration, "Time until a node answered a request or failed.", requestBuckets),
		losses:       m.counter(MetricLosses, "{lease}", "Leases that ended before their holder was done."),
		events:       m.counter(MetricEvents, "{event}", "Decisions of the packages on top of the locks."),

		// The unit is not "1": Prometheus would then call the metric a ratio.
		nodeVoting: m.intGauge(MetricNodeVoting, "{node}",
			"1 if a node votes, 0 if it does not."),
		nodesSpare: m.intGauge(MetricNodesSpare, "{node}",
			"Nodes that may fail before a Locker of this process cannot lock."),

		nodeClockOffset: m.floatGauge(MetricNodeClockOffset, "s",
			"Clock of a node minus that of the process, request delay included."),
		holdAge: m.floatGauge(MetricHoldAge, "s",
			"Age of the oldest lease that is held; 0 if none is."),
	}

	acquire := m.histogram(MetricAcquireDuration, "Time from asking for a lock to the grant or the error.", waitBuckets)
	hold := m.histogram(MetricHoldDuration, "Time from the grant of a lock to its end.", holdBuckets)
	operation := m.histogram(MetricOperationDuration, "Time of one renewal, release or completion.", requestBuckets)
	waiters := m.upDownCounter(MetricWaiters, "{request}", "Acquisitions in progress.")
	leases := m.upDownCounter(MetricLeases, "{lease}", "Leases held.")

	in.operations = [...]operationInstruments{
		core.OpAcquire: {
			success: outcomeAcquired, duration: acquire, inProgress: waiters,
			all: []enabler{acquire, waiters},
		},
		core.OpHold: {
			success: outcomeReleased, duration: hold, inProgress: leases,
			all: []enabler{hold, leases, in.losses},
		},
		core.OpRenew: {
			success: outcomeRenewed, duration: operation,
			all: []enabler{operation, in.renewMargin},
		},
		core.OpRelease: {
			success: outcomeReleased, duration: operation,
			all: []enabler{operation, in.losses},
		},
		core.OpComplete: {
			success: outcomeCompleted, duration: operation,
			all: []enabler{operation},
		},
	}
	return in, errors.Join(m.errs...)
}

// A maker makes instruments and collects the errors of the meter.
type maker struct {
	meter metric.Meter
	errs  []error
}

// histogram makes a histogram of seconds.
func (m *maker) histogram(name, description string, buckets []float64) metric.Float64Histogram {
	h, err := m.meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description),
		metric.WithExplicitBucketBoundaries(buckets...))
	m.errs = append(m.errs, err)
	return h
}

func (m *maker) counter(name, unit, description string) metric.Int64Counter {
	c, err := m.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
	m.errs = append(m.errs, err)
	return c
}

func (m *maker) upDownCounter(name, unit, description string) metric.Int64UpDownCounter {
	c, err := m.meter.Int64UpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
	m.errs = append(m.errs, err)
	return c
}

func (m *maker) intGauge(name, unit, description string) metric.Int64ObservableGauge {
	g, err := m.meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))
	m.errs = append(m.errs, err)
	return g
}

func (m *maker) floatGauge(name, unit, description string) metric.Float64ObservableGauge {
	g, err := m.meter.Float64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))
	m.errs = append(m.errs, err)
	return g
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
