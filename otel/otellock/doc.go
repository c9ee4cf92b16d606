// Package otellock reports locks to OpenTelemetry: waits, holds and losses, as metrics and spans.
//
//	observer, err := otellock.New()
//	locks, err := core.Open(nodes, core.WithObserver(observer))
//
// Nothing else is needed: cronlock, queuelock and httplock name what they lock (job, task type, route template), and
// handlers need not change. One observer serves any number of Lockers.
//
// # Guarantee
//
// Every acquisition, lease, renewal, release and completion is measured once, however it ends. The numbers of
// waiters and leases return to zero. Keys appear in no metric and no span. Only names can be many: from the 129th on, names are
// counted together as "_other". With no-op providers nothing is allocated.
//
// # Non-guarantee
//
// Measurements are those of this process. Leases and waits of a crashed process are not known, and holders that do not
// use this package are not seen. The clock offset of a node includes the delay of the request.
// Links to holders are a hint, see below.
//
// # Metrics
//
// The Metric constants list the metrics. docs/operations.md in the repository says what each means and what to do
// about it. The folder otel/dashboards has a Grafana dashboard and alert rules for Prometheus. The attribute
// error.type is set on failures only. A held key is not a failure but an outcome.
//
// # Spans
//
// A span is made when an operation ends, with the times that the operation had. An acquisition gets a span,
// "lockkit.acquire", under the caller's if it had to wait, failed or was slow. A renewal, release or completion gets
// a span if it failed or was slow; the span is the root of a trace of its own and links to the caller's, which may
// have ended long before. [WithSpanThreshold] says what is slow.
//
// A lost lease always gets a span, "lockkit.hold", under the span under which the lease was acquired, and with a link
// to it, even if that span has ended. If it is still open, it also gets the event "lockkit.lost" and the status
// Error. The lease's context ends first, and waits for no observer.
//
// The span of an acquisition that had to wait links to the span under which the holder acquired the key, in any
// process: a slow request leads to the one it waited for. For this a lease carries the trace context of its holder on
// the nodes, 24 bytes. The link is missing if the holder had no sampled span, or if a renewal brought its lease back
// after nodes had lost it. If there were several holders, the link leads to the last one that was seen.
package otellock
