package wire

// A Verdict is the answer of one node to one request. See core.Verdict for their meanings.
type Verdict uint8

const (
	Failed Verdict = iota
	Pending
	Granted
	Healed
	Passed
	Unconfirmed
	Held
	Reserved
	Done
	Gone
	Forgotten
	Quarantined
	ClockSkewed
	TooLate
	Replica
	Unguarded
	TimedOut
	CircuitOpen
)

var verdictNames = [...]string{
	"failed",
	"pending",
	"granted",
	"healed",
	"passed",
	"unconfirmed",
	"held",
	"reserved",
	"done",
	"gone",
	"forgotten",
	"quarantined",
	"clock_skewed",
	"too_late",
	"replica",
	"unguarded",
	"timed_out",
	"circuit_open",
}

// String returns the verdict in snake_case.
func (v Verdict) String() string {
	if int(v) < len(verdictNames) {
		return verdictNames[v]
	}
	return "unknown"
}

// An Op is the operation of a request.
type Op uint8

const (
	OpAcquire Op = iota
	OpRenew
	OpRelease
	OpComplete
	OpTouch
	OpProvision
	OpLower
	OpRevoke
	OpForget
	OpProbe
)

// Alone reports whether requests of this operation are never sent together with others.
func (o Op) Alone() bool {
	return o > OpComplete
}
