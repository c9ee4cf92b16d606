// Package quorum counts what nodes vote, and judges what that comes to. It does no I/O and knows no clock: who has the votes
// of a round asks [Tally] whether more of them could change the outcome, and what the outcome is.
package quorum

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// A Vote is what one node answered in one round.
type Vote struct {
	wire.Reply
	Err     error
	Waited  time.Duration // for its turn, before it was sent
	Latency time.Duration
	Skew    time.Duration // node's wall clock minus ours at the answer
	Slept   bool          // renewed: shows that our clock stood still meanwhile
}

// Said is a vote of no more than a verdict, and why.
func Said(v wire.Verdict, err error) Vote { return Vote{Reply: wire.Reply{Verdict: v}, Err: err} }

// done reports whether the node holds a record. One in quarantine does too, whatever else it has forgotten: that
// it accepted the record once is enough.
func (v *Vote) done() bool {
	return v.Record != nil && (v.Verdict == wire.Done || v.Verdict == wire.Quarantined)
}

// A Set is a set of nodes, by their indexes.
type Set uint64

// MaxNodes fits a Set; nobody votes with more.
const MaxNodes = 64

// All are n nodes.
func All(n int) Set { return Set(1)<<n - 1 }

// Of is how many of n nodes are a quorum.
func Of(n int) int { return n/2 + 1 }

// Has reports whether a node is in the set.
func (s Set) Has(i int) bool { return s>>i&1 == 1 }

// With is the set with a node.
func (s Set) With(i int) Set { return s | 1<<i }

// Without is the set without a node.
func (s Set) Without(i int) Set { return s &^ (1 << i) }

// Len is how many nodes are in the set.
func (s Set) Len() int { return bits.OnesCount64(uint64(s)) }

// A Tally counts the votes of one round and knows when more of them cannot change the outcome.
type Tally struct {
	Q       int
	Asked   Set
	Votes   []Vote // by node; Pending where no answer has come, or none was asked for
	Pending int
}

// New is the tally of a round that asks some of n nodes. room is for the votes, if it is large enough.
func New(room []Vote, n int, asked Set) Tally {
	if cap(room) < n {
		room = make([]Vote, n)
	}
	t := Tally{Q: Of(n), Asked: asked, Votes: room[:n], Pending: asked.Len()}
	for i := range t.Votes {
		t.Votes[i].Verdict = wire.Pending
	}
	return t
}

// Take books the vote of a node.
func (t *Tally) Take(i int, v Vote) {
	t.Votes[i] = v
	t.Pending--
}

// Where are the nodes whose votes are so.
func (t *Tally) Where(so func(*Vote) bool) (s Set) {
	for i := range t.Votes {
		if so(&t.Votes[i]) {
			s = s.With(i)
		}
	}
	return s
}

// With are the nodes with one of these verdicts.
func (t *Tally) With(verdicts ...wire.Verdict) Set {
	return t.Where(func(v *Vote) bool { return slices.Contains(verdicts, v.Verdict) })
}

// Count is how many nodes have one of these verdicts.
func (t *Tally) Count(verdicts ...wire.Verdict) int { return t.With(verdicts...).Len() }

// AcquireDecided reports whether more votes cannot change the outcome of a round that acquires: a quorum granted, or
// agrees that the key is done; or neither can come about, and it is known whether the key is held or no quorum can be
// reached.
func (t *Tally) AcquireDecided() bool {
	granted := t.Count(wire.Granted)
	done, _ := t.DoneVotes()
	if max(granted, done) >= t.Q {
		return true
	}
	mayWin := t.couldReach(granted)
	mayBeDone := done > 0 && t.couldReach(done)
	if mayWin || mayBeDone {
		return false
	}
	known := t.Count(wire.Granted, wire.Done)
	maySettle := granted < known && known < t.Q && t.couldReach(known)
	if maySettle {
		return false
	}
	voters := t.Voters()
	return voters >= t.Q || !t.couldReach(voters)
}

func (t *Tally) couldReach(n int) bool { return n+t.Pending >= t.Q }

func (t *Tally) blocks(n int) bool { return n > len(t.Votes)-t.Q }

// RecoverDecided reports whether an attempt that came to settle a record is decided: a quorum without the record
// is not the one that it waits for.
func (t *Tally) RecoverDecided() bool { return t.AcquireDecided() && t.Record() != nil }

// Voters are the nodes that would grant the key if nobody had it, or had taken it meanwhile.
func (t *Tally) Voters() int {
	return t.Count(wire.Granted, wire.Held, wire.Reserved, wire.Done, wire.Gone)
}

// Split reports whether no attempt is known to hold a quorum, so that each of several contenders may have a part of
// the votes.
func (t *Tally) Split() bool {
	decided := t.Where(func(v *Vote) bool {
		taken := v.Verdict == wire.Held || v.Verdict == wire.Reserved
		same := t.Where(func(w *Vote) bool { return w.Verdict == v.Verdict && w.Owner == v.Owner })
		return taken && same.Len() >= t.Q
	})
	return decided == 0
}

// Kept are the nodes that keep the key for nobody: its last holder left it taken.
func (t *Tally) Kept() Set {
	return t.Where(func(v *Vote) bool { return v.Verdict == wire.Held && strings.HasPrefix(v.Owner, wire.KeptTaken) })
}

// Rests is for how long no quorum can grant the key to anybody, whatever the nodes say that have not answered.
func (t *Tally) Rests() time.Duration {
	kept := t.Kept()
	mayRefuse := len(t.Votes) - t.Q
	return t.rest(kept, kept.Len()-mayRefuse)
}

// rest is when the n-th of some nodes has what it waits for behind it; 0 where there are not so many.
func (t *Tally) rest(of Set, n int) time.Duration {
	if n < 1 || n > of.Len() {
		return 0
	}
	rests := make([]time.Duration, 0, len(t.Votes))
	for i := range t.Votes {
		if of.Has(i) {
			rests = append(rests, t.Votes[i].Rest)
		}
	}
	slices.Sort(rests)
	return rests[n-1]
}

// Queued are the nodes that have the call in their queues.
func (t *Tally) Queued() Set { return t.Where(func(v *Vote) bool { return v.Place > 0 }) }

// DoneVotes is the most nodes that hold the same completion record, and that record. Only a record that a
// quorum holds under one ballot is decided.
func (t *Tally) DoneVotes() (most int, rec *wire.Record) {
	for i := range t.Votes {
		v := &t.Votes[i]
		if !v.done() {
			continue
		}
		same := t.Where(func(w *Vote) bool { return w.done() && w.Record.Ballot == v.Record.Ballot }).Len()
		better := same > most || same == most && v.Record.Beats(rec)
		if better {
			most = same
			rec = v.Record
		}
	}
	return most, rec
}

// Record is the completion record with the greatest ballot that any node showed, nil if none did.
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

// Hint is that of the holder that kept this attempt from the key; empty where no node told.
func (t *Tally) Hint() (hint string) {
	for i := range t.Votes {
		hint = cmp.Or(hint, t.Votes[i].Hint)
	}
	return hint
}

// Unanswered are the nodes that have not answered.
func (t *Tally) Unanswered() Set { return t.Asked & t.With(wire.Pending) }

// Token is the greatest token granted, and the nodes that store it already.
func (t *Tally) Token() (token uint64, stored Set) {
	granted := t.With(wire.Granted)
	for i := range t.Votes {
		if granted.Has(i) {
			token = max(token, t.Votes[i].Token)
		}
	}
	return token, granted & t.Where(func(v *Vote) bool { return v.Token == token })
}

// Lacking are the nodes that were asked and do not hold the record: they never had it, or have forgotten it, or
// may own the key for the attempt that asked.
func (t *Tally) Lacking(rec *wire.Record) Set {
	return t.Asked &^ t.Where(func(v *Vote) bool {
		return v.Verdict == wire.CircuitOpen || v.done() && v.Record.Ballot == rec.Ballot
	})
}

// SameServer finds two nodes that granted out of one replication history: they are one server, or a server
// and its replica.
func (t *Tally) SameServer() (a, b int, found bool) {
	granted := t.With(wire.Granted) & t.Where(func(v *Vote) bool { return v.Memory != wire.NoMemory })
	for b := range t.Votes {
		if !granted.Has(b) {
			continue
		}
		history := historyOf(t.Votes[b].Memory)
		for a := range b {
			if granted.Has(a) && historyOf(t.Votes[a].Memory) == history {
				return a, b, true
			}
		}
	}
	return 0, 0, false
}

// historyOf is the replication history in the name of what a node remembers.
func historyOf(memory string) string {
	history, _, _ := strings.Cut(memory, ".")
	return history
}

// RetryAfter is when a quorum could grant at the earliest, from what the nodes said: as many of those that will grant
// by themselves as it takes, beside those that granted. Zero when it is not known.
func (t *Tally) RetryAfter() time.Duration {
	refusing := t.With(wire.Held, wire.Reserved, wire.Quarantined)
	missing := t.Q - t.Count(wire.Granted)
	return t.rest(refusing, max(missing, 1))
}

// MayHold are the nodes on which the attempt may own the key, now or when a late request arrives. All others have
// refused, or were not asked.
func (t *Tally) MayHold() Set { return t.With(wire.Granted, wire.Pending, wire.TimedOut, wire.Failed) }

// Revoked reports whether a node knows that the attempt was revoked.
func (t *Tally) Revoked() bool { return t.Where(func(v *Vote) bool { return v.Revoked }) != 0 }

// Outvoted reports whether so many nodes do not have the lease that no quorum can.
func (t *Tally) Outvoted() bool { return t.blocks(t.Count(wire.Gone)) }

// Confirmed reports whether a quorum confirmed what it was asked for.
func (t *Tally) Confirmed() bool { return t.Count(wire.Granted, wire.Healed, wire.Passed) >= t.Q }

// Settled reports whether enough nodes confirmed, or enough cannot.
func (t *Tally) Settled() bool { return t.Confirmed() || t.Outvoted() }

// RecordDecided reports whether further votes cannot change the outcome of a completion.
func (t *Tally) RecordDecided() bool {
	done, _ := t.DoneVotes()
	if max(t.Count(wire.Granted), done) >= t.Q {
		return true
	}
	mayBeDone := done > 0 && t.couldReach(done)
	return t.RecordRefused() && !mayBeDone
}

// RecordRefused reports whether no quorum can accept the record.
func (t *Tally) RecordRefused() bool {
	return t.blocks(t.Count(wire.Gone, wire.Forgotten, wire.Done))
}

// Slept is on how many nodes more time has passed since the last round than on this machine.
func (t *Tally) Slept() int { return t.Where(func(v *Vote) bool { return v.Slept }).Len() }

// An Outcome is what the votes of a round come to that asked for a key.
type Outcome uint8

const (
	Held        Outcome = iota // somebody holds it
	Queued                     // likewise, and a quorum has the call in its queue, and tells when it is its turn
	SharedTurn                 // it was the turn of this call and of another
	Split                      // several contenders have a part of the votes each
	Unsettled                  // there is a record that is not decided, and may be settled
	Quarantined                // too few nodes vote yet
	OutOfReach                 // too few nodes answer, or can vote
	Done                       // a quorum holds one completion record
	Won                        // a quorum granted the key
)

// A Fate is what the votes of a round come to that was about a lease.
type Fate uint8

const (
	Undecided Fate = iota // too few nodes answered
	Confirmed             // a quorum confirmed it
	Slept                 // likewise, and shows that this machine's clock stood still
	Taken                 // so many nodes do not have the lease that no quorum can
	Revoked               // somebody has ended it
	Forgotten             // so many nodes lost their memory that no quorum can tell
)

// Acquired says what came of a round that asked for a key.
func (t *Tally) Acquired() Outcome {
	granted := t.Count(wire.Granted)
	queued := t.Queued().Len()
	voters := t.Voters()
	done, _ := t.DoneVotes()
	switch {
	case done >= t.Q:
		return Done
	case t.Record() != nil && granted+t.Count(wire.Done) >= t.Q:
		return Unsettled
	case granted >= t.Q:
		return Won
	case voters < t.Q && voters+t.Count(wire.Quarantined) >= t.Q:
		return Quarantined
	case voters < t.Q:
		return OutOfReach
	}
	mayBeMyTurn := granted > 0 && queued+granted >= t.Q
	switch {
	case mayBeMyTurn && t.Split():
		return SharedTurn
	case queued >= t.Q:
		return Queued
	case t.Split():
		return Split
	}
	return Held
}

// Renewed says what came of a renewal.
func (t *Tally) Renewed() Fate {
	switch {
	case t.Confirmed() && t.Slept() >= t.Q:
		return Slept
	case t.Confirmed():
		return Confirmed
	case t.Outvoted() && t.Revoked():
		return Revoked
	case t.Outvoted():
		return Taken
	}
	return Undecided
}

// Released says what came of a release.
func (t *Tally) Released() Fate {
	switch {
	case t.Revoked():
		return Revoked
	case t.Outvoted():
		return Taken
	case t.Confirmed():
		return Confirmed
	}
	return Undecided
}

// Recorded says what came of offering a record with that token. A quorum that holds the same record under another ballot,
// because somebody settled it, is as good as one that accepted it.
func (t *Tally) Recorded(token uint64) Fate {
	done, rec := t.DoneVotes()
	recorded := done >= t.Q
	refused := t.RecordRefused()
	switch {
	case t.Count(wire.Granted) >= t.Q, recorded && rec.Token == token:
		return Confirmed
	case t.Revoked() && (recorded || refused):
		return Revoked
	case recorded, t.blocks(t.Count(wire.Gone, wire.Done)):
		return Taken
	case refused:
		return Forgotten
	}
	return Undecided
}

// Why is what the node said, in plain words.
func (v *Vote) Why() string {
	switch v.Verdict {
	case wire.Held:
		return fmt.Sprintf("held for another %v", v.Rest.Round(time.Millisecond))
	case wire.Quarantined:
		return fmt.Sprintf("quarantined for another %v, because it may have lost its memory", v.Rest.Round(time.Millisecond))
	case wire.Forgotten:
		return "has lost its memory since it confirmed the lease"
	case wire.Unconfirmed:
		return "was promoted a moment ago, and does not count yet"
	case wire.ClockSkewed:
		return fmt.Sprintf("its clock is off by %v: check NTP on both machines", v.Skew.Round(time.Millisecond))
	case wire.TooLate:
		return "the request arrived too late"
	case wire.Replica:
		return "is a replica, not a master"
	case wire.Unguarded:
		return "does not report its replication history"
	default:
		if v.Err != nil {
			return cmp.Or(goredis.Lasting(v.Err), v.Err).Error() // with how to mend it, where that is known
		}
	}
	return v.Verdict.String()
}
