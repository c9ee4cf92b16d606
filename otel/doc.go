// Package otellock shows, by OpenTelemetry, who waits for locks, who holds them and what was lost.
//
//	observer, err := otellock.New()
//	locks, err := core.Open(nodes, core.WithObserver(observer))
//
// That is all: cronlock, queuelock and httplock on top of locks name what they lock (job, task type, route
// template), and handlers need not change. One observer serves any number of Lockers.
//
// # Guarantee
//
// Every acquisition, lease, renewal, release and completion is measured, however it ends, and what is waiting
// and held comes back to zero. The attributes of metrics are of low cardinality: keys never appear in them, and
// names are counted together from the 193rd on; what was decided stays told apart. A key appears in no span either,
// but for a keyed hash if [WithKeyHash] asks for it. With no-op providers nothing is allocated.
//
// # Non-guarantee
//
// Measurements are those of this process: what a process that died was holding or waiting for is not known
// any more, and nobody measures the holders that do not use lockkit. How a caller waited is known when its wait
// ends: until then only that it waits. The clock offset of a node includes the delay of the request. Links to
// holders are a hint, see below.
//
// # Metrics
//
// The Metric constants list them, and docs/operations.md in the repository says what each means and what to
// do about it. Beside it, otel/dashboards has a Grafana dashboard and alert rules for Prometheus. error.type is
// set on failures only; that somebody else holds a key is no failure but an outcome.
//
// # Spans
//
// An acquisition that had to wait, failed or was slow has a span, "lockkit.acquire", under that of the
// caller. A slow or failed renewal, release or completion, and a lease that was lost, have spans in traces of
// their own, since the caller's may long be over, with a link to it. Quick ones that nobody was in the way of
// have none; [WithSpanThreshold] changes that.
//
// A loss also shows in the trace of those who lost: the span under which the lease was acquired, if it is still open,
// gets the event "lockkit.lost" and the status Error.
//
// The span of an acquisition that had to wait links to the span under which the holder acquired the key, in
// whatever process: so a slow request leads to the one it waited for. For this a lease carries the trace
// context of its holder on the nodes; [WithHolderLinks] turns it off. The link is missing where the holder had
// no sampled span, or its lease was brought back by a renewal after nodes had lost it. A waiter that was
// behind several holders links to the last it saw.
package otellock
