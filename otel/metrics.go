package otellock

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/metric"

	"github.com/lockkit/lockkit/core"
)

// instruments are all metrics.
type instruments struct {
	kinds                                 [core.OpComplete + 1]kind
	margin, node                          metric.Float64Histogram
	handoffs, losses, decisions, requests metric.Int64Counter
	status                                metric.Int64Gauge
	offset                                metric.Float64Gauge
	age                                   metric.Float64ObservableGauge
}

// A kind is how operations of one core.OpKind are shown.
type kind struct {
	span  string
	ok    ending // of one without an error
	took  metric.Float64Histogram
	level metric.Int64UpDownCounter // of those under way; nil where that is of no interest
	all   []enabler                 // everything that they are measured by
}

// newInstruments names every instrument that cannot be made.
func newInstruments(m metric.Meter) (in instruments, err error) {
	var faults []error
	histogram := func(name, what string, buckets []float64) metric.Float64Histogram {
		h, err := m.Float64Histogram(name, metric.WithUnit(seconds), metric.WithDescription(what), metric.WithExplicitBucketBoundaries(buckets...))
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
	in = instruments{
		margin:    histogram(MetricRenewMargin, "Trusted time a lease had left when a round of renewal began.", marginBuckets),
		node:      histogram(MetricNodeDuration, "How long a node took to answer a request or to fail.", requestBucket),
		handoffs:  counter(MetricHandoffs, handoffs, "Locks granted to callers that had to wait for them, by how their turn came."),
		losses:    counter(MetricLosses, leases, "Locks that ended before their holder was done."),
		decisions: counter(MetricDecisions, decisions, "What the packages on top of the locks decided."),
		requests:  counter(MetricNodeRequests, requests, "Requests to a node, by what it made of them."),
	}
	in.status, err = m.Int64Gauge(MetricNodeStatus, metric.WithUnit(nodes), metric.WithDescription("1 for the state that a node is in, 0 for the others."))
	faults = append(faults, err)
	in.offset, err = m.Float64Gauge(MetricNodeClockOffset, metric.WithUnit(seconds), metric.WithDescription("Clock of a node minus that of the process, request delay included."))
	faults = append(faults, err)
	in.age, err = m.Float64ObservableGauge(MetricHoldAge, metric.WithUnit(seconds),
		metric.WithDescription("How long the oldest of the locks held has been held; 0 where none is."))
	faults = append(faults, err)

	acquire := histogram(MetricAcquireDuration, "From asking for a lock to the grant or the error, waiting included.", waitBuckets)
	hold := histogram(MetricHoldDuration, "From the grant of a lock to its end.", holdBuckets)
	renew := histogram(MetricRenewDuration, "One round of renewal.", requestBucket)
	release := histogram(MetricReleaseDuration, "One release.", requestBucket)
	complete := histogram(MetricCompleteDuration, "One completion.", requestBucket)
	waiting := level(MetricWaiting, requests, "Acquisitions under way.")
	held := level(MetricHeld, leases, "Locks held.")
	in.kinds = [...]kind{
		core.OpAcquire:  {"lockkit.acquire", acquired, acquire, waiting, []enabler{acquire, waiting, in.handoffs}},
		core.OpHold:     {"lockkit.hold", released, hold, held, []enabler{hold, held, in.losses}},
		core.OpRenew:    {"lockkit.renew", renewed, renew, nil, []enabler{renew, in.margin}},
		core.OpRelease:  {"lockkit.release", released, release, nil, []enabler{release, in.losses}},
		core.OpComplete: {"lockkit.complete", completed, complete, nil, []enabler{complete}},
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
