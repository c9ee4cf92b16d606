// Package otellock reports locks to OpenTelemetry: waits, holds and losses, as metrics and spans.
//
//	observer, err := otellock.New()
//	locks, err := core.Open(nodes, core.WithObserver(observer))
//
// cronlock, queuelock and httplock name what they lock: by job, task type or route template. Locks taken with package
// core itself have no name unless you give one ([core.Name]). Handlers need not change. One observer serves any number
// of Lockers.
//
// # Guarantee
//
// Every acquisition, lease, renewal, release and completion is measured once, however it ends. The counters of waiters
// and leases return to zero: each increase has its decrease. Keys appear in no metric and no span. Of all attributes
// only the name can have many values: from the 129th name on, names are counted together as "_other". With no-op
// providers nothing is allocated.
//
// An acquisition of a semaphore (core/semaphore) is measured like one of a lock: once, under its name, however many slots
// it asks for. Requests for other slots that are cancelled, or granted and given back, are not measured. Each permit is
// a lease of its own, with its hold, its renewals, and perhaps its loss. The number of a slot is no attribute.
//
// # Non-guarantee
//
// Measurements cover this process only. Leases and waits of a crashed process are not known, and holders that do not
// use this package are not seen. The clock offset of a node (MetricNodeClockOffset) is measured by a request, and so
// includes the request's delay. Links to holders may be missing, see below.
//
// # Metrics
//
// The Metric constants list the metrics. docs/operations.md in the repository explains each, and what to do about
// it. The folder otel/dashboards has a Grafana dashboard and alert rules for Prometheus. The attribute error.type is
// set on failures only. If a caller does not get a key because another has it, that is no failure: the outcome is
// "held", or "timeout" after a wait.
//
// # Spans
//
// A span is made when an operation ends, with the operation's start and end times. An acquisition gets a span,
// "lockkit.acquire", if it had to wait, found the key held, failed or was slow. The span is a child of the caller's. A
// renewal, release or completion that failed or was slow gets a span in a new trace. That span links to the caller's
// span, which may have ended long before. [WithSpanThreshold] says what is slow.
//
// A lost lease always gets a span. Its name says when the loss was noticed:
//
//	lockkit.hold      before Release or Complete; a child of the span under which the key was acquired
//	lockkit.release   at Release; a child of the span that called Release, not in a new trace
//	lockkit.complete  at Complete; in a new trace
//
// The first two mark their parent, if it has not ended: the parent gets the event "lockkit.lost" and the status Error.
// The lease's context ends before the event is recorded, and no observer can delay that end.
//
// An acquisition that had to wait links to the span under which the holder, in whatever process, acquired the key. So
// from a slow request one finds the request that held the key. For this link, the nodes keep 24 bytes with each lease:
// the trace context of its holder. The link is missing if the holder had no sampled span, or if nodes lost the holder's
// lease and a renewal restored it. If the key changed hands during the wait, the link leads to the last holder that was
// seen.
package otellock
