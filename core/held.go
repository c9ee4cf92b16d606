package core

// A HeldKind says what keeps a key from who asks for it, as far as the nodes that answered tell.
type HeldKind uint8

const (
	HeldUnknown   HeldKind = iota // the error is not ErrHeld, or nobody can tell
	HeldByOther                   // somebody else has it on a quorum of nodes, or in this process
	HeldSplit                     // others ask for it at the same time, and none is known to have a quorum: try again soon
	HeldRests                     // nobody has it: it stays taken after its release or revocation for OpError.RetryAfter (Cooldown, Revoke)
	HeldByCaller                  // the caller itself: its context runs under a lease on the key
	HeldForWaiter                 // it may be free, but it is the turn of somebody who has waited for longer
)

// String says it in plain words, as an error does after "held".
func (k HeldKind) String() string {
	if words := [...]string{"unknown", "by another holder", "by several that ask for it, none with a quorum", "by nobody: the key rests after its last holder",
		"by the caller itself", "for somebody who has waited for longer"}; int(k) < len(words) {
		return words[k]
	}
	return "unknown"
}
