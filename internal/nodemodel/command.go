package nodemodel

// A Command is a command: the settings of the client, and requests that the node executes at one instant.
type Command struct {
	Guarded             bool
	MaxTTL, Window, Lag int64
	Wall                int64 // the client's clock, µs
	Requests            []Request
}

// A Request is a request, with the arguments of its operation.
type Request struct {
	Op           Op
	Key, Attempt string
	Lease        int64

	Acquire  Acquire
	Renew    Renew
	Complete Complete
	Release  Release

	Claim, Found string // of Provision
	Step, Mark   string // of an operator's step to lower the longest lease
	To           int64
	Token        int64 // of Forget
}

// An Op is the operation of a request.
type Op string

// The operations.
const (
	OpAcquire   Op = "acquire"
	OpRenew     Op = "renew"
	OpRelease   Op = "release"
	OpComplete  Op = "complete"
	OpTouch     Op = "touch"
	OpProvision Op = "provision"
	OpLower     Op = "lower"
	OpRevoke    Op = "revoke"
	OpForget    Op = "forget"
)

// An Acquire has the arguments of a request for the key.
type Acquire struct {
	Settle   bool   // the attempt completes an unfinished completion record
	Proposed int64  // the proposed token
	Carried  string // texts of the holder
	Wait     Wait   // the call that waits; zero if none does
}

// A Renew has the arguments of a renewal, or of a write-back.
type Renew struct {
	Token     int64
	Confirmed int64  // the expiry that the node last confirmed
	Granted   int64  // of a write-back: the token that the node granted; otherwise 0
	Memory    string // of a write-back: the node's memory when it granted that
	Turn      int64  // how long a node that refuses the renewal refuses others
	Carried   string // stored if the lease is brought back
}

// A Release has the arguments of a request that ends an attempt.
type Release struct {
	TombstoneLife  int64
	Arrived        bool // no tombstone is needed if the node has the lease
	Cooldown       int64
	DropBelow      int64 // drops a completion record with a smaller ballot
	Repeated       bool  // another release of the attempt was sent before
	RestoreCounter bool  // no caller has seen the token
	Wait           Wait  // goes on waiting if it has a ticket, otherwise leaves the queue; zero if no call waits
}

// A Complete has the arguments of a request that stores a completion record.
type Complete struct {
	Ballot        int64
	Memory        string // the node's memory when it last confirmed the lease
	Retention     int64
	Token         int64 // of the lease that completed the key
	Result        string
	TombstoneLife int64
	Decided       bool   // a quorum holds the record
	Leaving       string // the member of a call that leaves the queue; "" if there is none
}

// isJudged reports whether clock and guard decide about the request before anything else does. A release, a revocation
// and a dropped record only end something; operators' requests about the guard have rules of their own.
func (q Request) isJudged() bool {
	return q.Op == OpAcquire || q.Op == OpRenew || q.Op == OpComplete || q.Op == OpTouch
}

// A Notice is a message to a waiting call.
type Notice struct {
	Sharded       bool
	Channel, Text string
}

// A Reply is the answer to a request. Its verdict and the operation say which fields it has.
type Reply struct {
	Verdict   Verdict
	Clock     int64 // the node's clock, µs; truncated to ms, except if the verdict is ClockSkewed; 0 if the reply has none
	Longest   int64 // the longest lease in use, if the node knows of a longer one than the client
	Token     int64
	Expiry    int64
	Remaining int64
	Memory    string
	Place     int
	Owner     string
	Carried   string // held: texts of the holder
	Claim     string
	Record    *ShownRecord
	Revoked   bool
	Refused   bool
}

// A ShownRecord is a completion record in a reply.
type ShownRecord struct {
	Ballot, Retention, Token int64
	Result                   string
}

// A Verdict is the first word of a node's reply to a request.
type Verdict string

// The verdicts.
const (
	Granted     Verdict = "granted"
	Healed      Verdict = "healed"
	Passed      Verdict = "passed"
	Unconfirmed Verdict = "unconfirmed"
	Held        Verdict = "held"
	Reserved    Verdict = "reserved"
	Done        Verdict = "done"
	Gone        Verdict = "gone"
	Forgotten   Verdict = "forgotten"
	Quarantined Verdict = "quarantined"
	ClockSkewed Verdict = "clock_skewed"
	TooLate     Verdict = "too_late"
	Replica     Verdict = "replica"
	Unguarded   Verdict = "unguarded"
)
