package otellock

import "go.opentelemetry.io/otel/attribute"

// ScopeName is the instrumentation scope of all metrics and spans.
const ScopeName = "github.com/lockkit/lockkit/otel/otellock"

// Metrics. Durations are in seconds; docs/operations.md explains each.
const (
	MetricAcquireDuration   = "lockkit.acquire.duration"   // from the call to the grant or the error
	MetricHoldDuration      = "lockkit.hold.duration"      // from the grant to the end of the lease
	MetricOperationDuration = "lockkit.operation.duration" // one renewal, release or completion
	MetricRenewMargin       = "lockkit.renew.margin"       // trusted time that was left when a renewal began
	MetricWaiters           = "lockkit.waiters"            // acquisitions in progress
	MetricLeases            = "lockkit.leases"             // leases held now
	MetricHoldAge           = "lockkit.hold.age"           // age of the oldest lease that is held
	MetricLosses            = "lockkit.losses"             // leases that ended before their holder was done
	MetricEvents            = "lockkit.events"             // decisions of cronlock, queuelock and httplock

	MetricNodeDuration    = "lockkit.node.request.duration" // one request to a node, until it answers or fails
	MetricNodeVoting      = "lockkit.node.voting"           // 1 if the node votes, 0 if it does not
	MetricNodesSpare      = "lockkit.nodes.spare"           // nodes that may fail before a Locker of three or more cannot lock
	MetricNodeClockOffset = "lockkit.node.clock.offset"     // the clock of the node minus the clock of this process, request delay included
)

// Attributes of metrics and spans.
const (
	AttrName      = attribute.Key("lockkit.name")       // core.Name: job, task type, route template
	AttrOperation = attribute.Key("lockkit.operation")  // "renew", "release" or "complete"
	AttrOutcome   = attribute.Key("lockkit.outcome")    // how the operation ended
	AttrContended = attribute.Key("lockkit.contended")  // acquire: another holder had the key
	AttrErrorType = attribute.Key("error.type")         // on failures only: "unavailable", or the reason of a loss
	AttrNode      = attribute.Key("lockkit.node.index") // index in the list passed to core.New
	AttrAddress   = attribute.Key("server.address")
	AttrPort      = attribute.Key("server.port")
	AttrVerdict   = attribute.Key("lockkit.verdict") // core.Verdict of a node on a request
	AttrSource    = attribute.Key("lockkit.source")  // of an event: "cronlock", "leader", "queuelock", "httplock"
	AttrEvent     = attribute.Key("lockkit.event")   // core.EventKind
)

// Attributes of spans only.
const (
	AttrKeys     = attribute.Key("lockkit.keys")          // number of keys, if there are several (core.AcquireAll)
	AttrAttempts = attribute.Key("lockkit.attempts")      // acquire: number of rounds
	AttrVotes    = attribute.Key("lockkit.votes")         // verdicts of the nodes in the last round, by node index
	AttrToken    = attribute.Key("lockkit.fencing_token") // of the lease
	AttrMargin   = attribute.Key("lockkit.margin")        // acquire, renew: seconds of trusted time
	AttrLink     = attribute.Key("lockkit.link")          // of a link: how the linked span relates to this one
)

// Values of AttrLink.
const (
	linkBlockedBy = "blocked_by" // the span of the holder for which the caller waited
	linkHolder    = "holder"     // the span under which the lease was acquired, or is released
)

// eventLost is the name of the event on the span under which a lost lease was acquired.
const eventLost = "lockkit.lost"
