package otellock

import (
	"cmp"
	"runtime/debug"
	"strings"

	"go.opentelemetry.io/otel/attribute"
)

// ScopeName is the instrumentation scope of all metrics and spans.
const ScopeName = "github.com/lockkit/lockkit/otel"

// devel is the version where the program does not say which it has.
const devel = "(devel)"

// version is that of the module in this program, as the scope has it; never empty.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return devel
	}
	return versionIn(info)
}

func versionIn(info *debug.BuildInfo) string {
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path != strings.TrimSuffix(ScopeName, "/otel") {
			continue
		}
		if m.Replace != nil {
			m = m.Replace
		}
		return cmp.Or(m.Version, devel)
	}
	return devel
}

// Metrics. Durations are in seconds; docs/operations.md says what each means.
const (
	MetricAcquireDuration  = "lockkit.acquire.duration"  // from the call to the grant or the error
	MetricWaiting          = "lockkit.waiting"           // acquisitions under way
	MetricHandoffs         = "lockkit.handoffs"          // grants to callers that had to wait, by how their turn came
	MetricHoldDuration     = "lockkit.hold.duration"     // from the grant to the end of the lease
	MetricHeld             = "lockkit.held"              // leases held now
	MetricHoldAge          = "lockkit.hold.age"          // of the oldest of them
	MetricLosses           = "lockkit.losses"            // leases that ended before their holder was done
	MetricRenewDuration    = "lockkit.renew.duration"    // one round of renewal
	MetricRenewMargin      = "lockkit.renew.margin"      // trusted time that was left when it began
	MetricReleaseDuration  = "lockkit.release.duration"  // one release
	MetricCompleteDuration = "lockkit.complete.duration" // one completion
	MetricDecisions        = "lockkit.decisions"         // what cronlock, queuelock and httplock decided

	MetricNodeRequests    = "lockkit.node.requests"     // requests to a node, by what it made of them; touches of idle nodes included
	MetricNodeDuration    = "lockkit.node.duration"     // how long it took to answer, or to fail
	MetricNodeStatus      = "lockkit.node.status"       // 1 for the state that the node is in, 0 for the others
	MetricNodeClockOffset = "lockkit.node.clock.offset" // its clock minus this process's, request delay included
)

// Attributes of metrics and spans.
const (
	AttrName      = attribute.Key("lockkit.name")       // core.Name: job, task type, route template
	AttrOutcome   = attribute.Key("lockkit.outcome")    // how the operation ended
	AttrContended = attribute.Key("lockkit.contended")  // acquire: somebody else held the key
	AttrWake      = attribute.Key("lockkit.wake")       // how the turn of a caller came that waited: core.Waited
	AttrErrorType = attribute.Key("error.type")         // on failures only: "unavailable", or why a lease was lost
	AttrVerdict   = attribute.Key("lockkit.verdict")    // core.Verdict
	AttrNode      = attribute.Key("lockkit.node.index") // in the list given to core.New
	AttrNodeState = attribute.Key("lockkit.node.state")
	AttrAddress   = attribute.Key("server.address")
	AttrPort      = attribute.Key("server.port")
	AttrSource    = attribute.Key("lockkit.source") // of a decision: "cronlock", "queuelock", "httplock"
	AttrDecision  = attribute.Key("lockkit.decision")
)

// Attributes of spans alone.
const (
	AttrAttempts  = attribute.Key("lockkit.attempts")      // acquire: rounds it took
	AttrVotes     = attribute.Key("lockkit.votes")         // what each node said in the last of them, by node index
	AttrToken     = attribute.Key("lockkit.fencing_token") // of the lease
	AttrLocalWait = attribute.Key("lockkit.local_wait")    // acquire: seconds spent behind others of this process
	AttrMargin    = attribute.Key("lockkit.margin")        // acquire, renew: seconds of trusted time
	AttrKeyHash   = attribute.Key("lockkit.key.hash")      // only WithKeyHash
	AttrLink      = attribute.Key("lockkit.link")          // of a link: what the span is to this one
)

// Values of AttrLink.
const (
	linkBlockedBy = "blocked_by" // the span of the holder that was waited for
	linkHolder    = "holder"     // the span under which the lease was acquired, or is given back
)

// eventLost is the event on the span under which a lease was acquired that was lost.
const eventLost = "lockkit.lost"

// otherName stands for the names that come after so many others that they cannot all be told apart.
const otherName = "_other"

// Units as UCUM has them.
const (
	seconds   = "s"
	requests  = "{request}"
	leases    = "{lease}"
	decisions = "{decision}"
	handoffs  = "{handoff}"
	nodes     = "{node}" // not "1", for which Prometheus would call the metric a ratio
)

// Buckets, in seconds. Waits and round trips start at what a node in the same rack takes; holds go on for as
// long as jobs do.
var (
	waitBuckets   = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300}
	requestBucket = []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}
	holdBuckets   = []float64{0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 14400}
	marginBuckets = []float64{0, 0.1, 0.25, 0.5, 1, 2, 3, 5, 7.5, 10, 20, 40, 60, 300}
)
