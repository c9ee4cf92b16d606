package quorum

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core/internal/wire"
)

// A Tally counts the votes of one round.
type Tally struct {
	Q       int    // how many nodes are a quorum
	Asked   Set    // the nodes that the round is for; one that was not sent its request votes CircuitOpen
	Votes   []Vote // by node; the verdict is Pending if the node has not answered, or was not asked
	Pending int    // how many of the asked nodes have not answered
}

// New returns the tally of a round that asks some of n nodes. The votes are kept in room if it is large enough.
func New(room []Vote, n int, asked Set) Tally {
	if cap(room) < n {
		room = make([]Vote, n)
	}

	t := Tally{
		Q:       Of(n),
		Asked:   asked,
		Votes:   room[:n],
		Pending: asked.Len(),
	}

	for i := range t.Votes {
		t.Votes[i].Verdict = wire.Pending
	}

	return t
}

// Add adds the vote of node i.
func (t *Tally) Add(i int, v Vote) {
	t.Votes[i] = v
	t.Pending--
}

// Filter returns the nodes whose votes match.
func (t *Tally) Filter(match func(*Vote) bool) (s Set) {
	for i := range t.Votes {
		if match(&t.Votes[i]) {
			s = s.With(i)
		}
	}

	return s
}

// WithVerdict returns the nodes whose votes have one of the verdicts.
func (t *Tally) WithVerdict(verdicts ...wire.Verdict) Set {
	return t.Filter(func(v *Vote) bool {
		return slices.Contains(verdicts, v.Verdict)
	})
}

// Count returns how many votes have one of the verdicts.
func (t *Tally) Count(verdicts ...wire.Verdict) int {
	return t.WithVerdict(verdicts...).Len()
}

// AcquireDecided reports whether missing votes cannot change the outcome of a round that acquires a key. That is so
// in two cases: a quorum granted the key, or agrees that it is completed; or neither can happen any more, and it is
// known whether the key is held or no quorum can be reached.
func (t *Tally) AcquireDecided() bool {
	granted := t.Count(wire.Granted)
	done, _ := t.CountDone()
	if max(granted, done) >= t.Q {
		return true
	}

	mayWin := t.couldReach(granted)
	mayBeDone := done > 0 && t.couldReach(done)

	// A record that is on too few nodes to count can be completed if these and the granting nodes are a quorum.
	known := t.Count(wire.Granted, wire.Done)
	maySettle := granted < known && known < t.Q && t.couldReach(known)

	open := mayWin || mayBeDone || maySettle
	if open {
		return false
	}

	voters := t.Voters()
	return voters >= t.Q || !t.couldReach(voters)
}

// couldReach reports whether n votes and all that are missing make a quorum.
func (t *Tally) couldReach(n int) bool {
	return n+t.Pending >= t.Q
}

// blocks reports whether n votes against a request leave too few nodes for a quorum.
func (t *Tally) blocks(n int) bool {
	return n > len(t.Votes)-t.Q
}

// SettleDecided reports whether the outcome is decided of an attempt that completes an unfinished record. Such an
// attempt needs a node that shows the record: a quorum without it does not decide.
func (t *Tally) SettleDecided() bool {
	return t.AcquireDecided() && t.Record() != nil
}

// Voters returns how many nodes can vote: they granted the key, or would do so if it were free and the attempt were
// not over.
func (t *Tally) Voters() int {
	return t.Count(wire.Granted, wire.Held, wire.Reserved, wire.Done, wire.Gone)
}

// IsSplit reports whether no attempt is known to have the votes of a quorum. Then each of several contenders may have
// some of the votes.
func (t *Tally) IsSplit() bool {
	decided := t.Filter(func(v *Vote) bool {
		taken := v.Verdict == wire.Held || v.Verdict == wire.Reserved
		same := t.Filter(func(w *Vote) bool {
			return w.Verdict == v.Verdict && w.Owner == v.Owner
		})
		return taken && same.Len() >= t.Q
	})
	return decided == 0
}

// InCooldown returns the nodes on which the key is in cooldown: it has no holder, because the last one released it with a
// cooldown, or was revoked.
func (t *Tally) InCooldown() Set {
	return t.Filter(func(v *Vote) bool {
		return v.Verdict == wire.Held && strings.HasPrefix(v.Owner, wire.CooldownPrefix)
	})
}

// CooldownLeft returns the time during which no quorum can grant the key because of a cooldown, even if every node that has
// not answered would grant it. It returns 0 if there is no such time.
func (t *Tally) CooldownLeft() time.Duration {
	kept := t.InCooldown()
	mayRefuse := len(t.Votes) - t.Q // a quorum is possible if no more nodes than this refuse
	return t.nthRemaining(kept, kept.Len()-mayRefuse)
}

// nthRemaining returns the n-th shortest of the remaining times that the nodes in s reported. It returns 0 if s has
// fewer than n nodes.
func (t *Tally) nthRemaining(s Set, n int) time.Duration {
	if n < 1 || n > s.Len() {
		return 0
	}

	remaining := make([]time.Duration, 0, len(t.Votes))
	for i := range t.Votes {
		if s.Has(i) {
			remaining = append(remaining, t.Votes[i].Remaining)
		}
	}
	slices.Sort(remaining)
	return remaining[n-1]
}

// Queued returns the nodes that have the call in their queues.
func (t *Tally) Queued() Set {
	return t.Filter(func(v *Vote) bool {
		return v.Place > 0
	})
}

// CountDone returns the completion record that most nodes hold under one ballot, and how many they are. Of several
// such records it returns the one that beats the others. A record counts only if a quorum holds it under one ballot.
func (t *Tally) CountDone() (most int, rec *wire.Record) {
	for i := range t.Votes {
		v := &t.Votes[i]
		if !v.hasRecord() {
			continue
		}

		same := t.Filter(func(w *Vote) bool {
			return w.hasRecord() && w.Record.Ballot == v.Record.Ballot
		}).Len()
		better := same > most || same == most && v.Record.Beats(rec)
		if better {
			most = same
			rec = v.Record
		}
	}

	return most, rec
}

// Record returns the completion record with the greatest ballot that a node showed, or nil if no node showed one.
func (t *Tally) Record() *wire.Record {
	var best *wire.Record
	for i := range t.Votes {
		r := t.Votes[i].Record
		if r != nil && r.Beats(best) {
			best = r
		}
	}

	return best
}

// Hint returns the hint of a holder that blocked this attempt, or "" if no node reported one.
func (t *Tally) Hint() (hint string) {
	for i := range t.Votes {
		hint = cmp.Or(hint, t.Votes[i].Hint)
	}

	return hint
}

// Unanswered returns the nodes that were asked and have not answered.
func (t *Tally) Unanswered() Set {
	return t.Asked & t.WithVerdict(wire.Pending)
}

// Token returns the greatest token that a node granted, and the nodes that granted it and so store it already.
func (t *Tally) Token() (token uint64, stored Set) {
	granted := t.WithVerdict(wire.Granted)
	for i := range t.Votes {
		if granted.Has(i) {
			token = max(token, t.Votes[i].Token)
		}
	}

	return token, granted & t.Filter(func(v *Vote) bool {
		return v.Token == token
	})
}

// Lacking returns the asked nodes that do not hold the record: they never had it, have forgotten it, or have granted
// the key to the attempt that asked. It leaves out nodes to which no request was sent because of an open circuit.
func (t *Tally) Lacking(rec *wire.Record) Set {
	return t.Asked &^ t.Filter(func(v *Vote) bool {
		return v.Verdict == wire.CircuitOpen || v.hasRecord() && v.Record.Ballot == rec.Ballot
	})
}

// SameServer returns two nodes that granted under the same replication history, if there are any: they are one
// server, or a server and its replica.
func (t *Tally) SameServer() (a, b int, found bool) {
	granted := t.WithVerdict(wire.Granted) & t.Filter(func(v *Vote) bool {
		return v.Memory != wire.NoMemory
	})
	for b := range t.Votes {
		if !granted.Has(b) {
			continue
		}

		history := historyOf(t.Votes[b].Memory)
		for a := range b {
			same := granted.Has(a) && historyOf(t.Votes[a].Memory) == history
			if same {
				return a, b, true
			}
		}
	}

	return 0, 0, false
}

// historyOf returns the replication history in the name of a node's memory.
func historyOf(memory string) string {
	history, _, _ := strings.Cut(memory, ".")
	return history
}

// RetryAfter returns the earliest time at which a quorum could grant the key, by the answers: the time until enough
// of the nodes that refuse for a while become free to complete a quorum with the nodes that granted. It returns 0 if
// that time is unknown.
func (t *Tally) RetryAfter() time.Duration {
	refusing := t.WithVerdict(wire.Held, wire.Reserved, wire.Quarantined)
	missing := t.Q - t.Count(wire.Granted)
	return t.nthRemaining(refusing, max(missing, 1))
}

// MayHold returns the nodes on which the attempt may own the key, now or when a late request arrives. The other nodes
// refused, or were sent no request.
//
// A client that repeats requests may have sent a request before that arrived too late. The node may have granted the key to
// the first copy, and the reply to it may be lost.
func (t *Tally) MayHold() Set {
	return t.WithVerdict(wire.Granted, wire.Pending, wire.TimedOut, wire.Failed, wire.TooLate)
}

// Revoked reports whether a node says that the attempt was revoked.
func (t *Tally) Revoked() bool {
	return t.Filter(func(v *Vote) bool {
		return v.Revoked
	}) != 0
}

// Outvoted reports whether too many nodes do not have the lease for a quorum to have it.
func (t *Tally) Outvoted() bool {
	return t.blocks(t.Count(wire.Gone))
}

// Confirmed reports whether a quorum confirmed the request.
func (t *Tally) Confirmed() bool {
	return t.Count(wire.Granted, wire.Healed, wire.Passed) >= t.Q
}

// LeaseDecided reports whether a quorum confirmed the request, or cannot confirm it any more.
func (t *Tally) LeaseDecided() bool {
	return t.Confirmed() || t.Outvoted()
}

// RecordDecided reports whether missing votes cannot change the outcome of a completion.
func (t *Tally) RecordDecided() bool {
	done, _ := t.CountDone()
	if max(t.Count(wire.Granted), done) >= t.Q {
		return true
	}

	mayBeDone := done > 0 && t.couldReach(done)
	return t.RecordRefused() && !mayBeDone
}

// RecordRefused reports whether too many nodes refused the record for a quorum to accept it.
func (t *Tally) RecordRefused() bool {
	return t.blocks(t.Count(wire.Gone, wire.Forgotten, wire.Done))
}

// CountClockStopped returns on how many nodes more time has passed since the last round than on this machine.
func (t *Tally) CountClockStopped() int {
	return t.Filter(func(v *Vote) bool {
		return v.ClockStopped
	}).Len()
}
