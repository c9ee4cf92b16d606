package core

import (
	"slices"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core/internal/wire"
)

// A tally counts the votes of one round and knows when more of them cannot change the outcome.
type tally struct {
	q       int
	asked   nodeSet
	votes   []vote // by node; Pending where no answer has come, or none was asked for
	pending int
}

func newTally(room []vote, n int, asked nodeSet) tally {
	if cap(room) < n {
		room = make([]vote, n)
	}
	t := tally{q: quorum(n), asked: asked, votes: room[:n], pending: asked.len()}
	for i := range t.votes {
		t.votes[i].Verdict = wire.Pending
	}
	return t
}

// take books the vote of a node.
func (t *tally) take(i int, v vote) {
	t.votes[i] = v
	t.pending--
}

// where are the nodes whose votes are so.
func (t *tally) where(so func(*vote) bool) (s nodeSet) {
	for i := range t.votes {
		if so(&t.votes[i]) {
			s = s.with(i)
		}
	}
	return s
}

// of are the nodes with one of these verdicts.
func (t *tally) of(verdicts ...wire.Verdict) (s nodeSet) {
	for i := range t.votes {
		if slices.Contains(verdicts, t.votes[i].Verdict) {
			s = s.with(i)
		}
	}
	return s
}

// count is how many nodes have one of these verdicts.
func (t *tally) count(verdicts ...wire.Verdict) int { return t.of(verdicts...).len() }

// acquireDecided reports whether more votes cannot change the outcome of a round that acquires: a quorum granted, or
// agrees that the key is done; or neither can come about, and it is known whether the key is held or no quorum can be
// reached.
func (t *tally) acquireDecided() bool {
	granted := t.count(wire.Granted)
	done, _ := t.doneVotes()
	if granted >= t.q || done >= t.q {
		return true
	}
	if granted+t.pending >= t.q || done > 0 && done+t.pending >= t.q {
		return false
	}
	if known := t.count(wire.Granted, wire.Done); granted < known && known < t.q && known+t.pending >= t.q {
		return false // a record that is not decided could be settled
	}
	voters := t.voters()
	return voters >= t.q || voters+t.pending < t.q
}

// recoverDecided reports whether an attempt that came to settle a record is decided: a quorum without the record
// is not the one that it waits for.
func (t *tally) recoverDecided() bool { return t.acquireDecided() && t.record() != nil }

// voters are the nodes that would grant the key if nobody had it, or had taken it meanwhile.
func (t *tally) voters() int {
	return t.count(wire.Granted, wire.Held, wire.Reserved, wire.Done, wire.Gone)
}

// split reports whether no attempt is known to hold a quorum, so that each of several contenders may have a part of
// the votes.
func (t *tally) split() bool {
	return t.where(func(v *vote) bool {
		same := t.where(func(w *vote) bool { return w.Verdict == v.Verdict && w.Owner == v.Owner })
		return (v.Verdict == wire.Held || v.Verdict == wire.Reserved) && same.len() >= t.q
	}) == 0
}

// held is the kind of held that a refusal is.
func (t *tally) held() HeldKind {
	switch kept, holders := t.kept(), t.of(wire.Held); {
	case kept != 0 && kept == holders:
		return HeldRests
	case t.split():
		return HeldSplit
	case holders.len() >= t.q:
		return HeldByOther
	default:
		return HeldForWaiter
	}
}

// kept are the nodes that keep the key for nobody: its last holder left it taken.
func (t *tally) kept() nodeSet {
	return t.where(func(v *vote) bool { return v.Verdict == wire.Held && strings.HasPrefix(v.Owner, wire.KeptTaken) })
}

// rests is for how long no quorum can grant the key to anybody, whatever the nodes say that have not answered.
func (t *tally) rests() time.Duration {
	var rests []time.Duration
	kept := t.kept()
	for i := range t.votes {
		if kept.has(i) {
			rests = append(rests, t.votes[i].Rest)
		}
	}
	free := len(t.votes) - t.q // so many may refuse
	if len(rests) <= free {
		return 0
	}
	slices.Sort(rests)
	return rests[len(rests)-1-free]
}

// queued are the nodes that have the call in their queues.
func (t *tally) queued() nodeSet { return t.where(func(v *vote) bool { return v.Place > 0 }) }

// doneVotes is the most nodes that hold the same completion record, and that record. Only a record that a
// quorum holds under one ballot is decided.
func (t *tally) doneVotes() (most int, rec *wire.Record) {
	for i := range t.votes {
		v := &t.votes[i]
		if !v.done() {
			continue
		}
		same := t.where(func(w *vote) bool { return w.done() && w.Record.Ballot == v.Record.Ballot }).len()
		if same > most || same == most && v.Record.Beats(rec) {
			most, rec = same, v.Record
		}
	}
	return most, rec
}

// done reports whether the node holds a record. One in quarantine does too, whatever else it has forgotten: that
// it accepted the record once is enough.
func (v *vote) done() bool {
	return v.Record != nil && (v.Verdict == wire.Done || v.Verdict == wire.Quarantined)
}

// record is the completion record with the greatest ballot that any node showed, nil if none did.
func (t *tally) record() *wire.Record {
	var best *wire.Record
	for i := range t.votes {
		if r := t.votes[i].Record; r != nil && r.Beats(best) {
			best = r
		}
	}
	return best
}

// hint is that of the holder that kept this attempt from the key; empty where no node told.
func (t *tally) hint() string {
	for i := range t.votes {
		if hint := t.votes[i].Hint; hint != "" {
			return hint
		}
	}
	return ""
}

// unheard are the nodes that have not answered.
func (t *tally) unheard() nodeSet { return t.asked & t.of(wire.Pending) }

// token is the greatest token granted, and the nodes that store it already.
func (t *tally) token() (token uint64, stored nodeSet) {
	granted := t.of(wire.Granted)
	for i := range t.votes {
		if granted.has(i) {
			token = max(token, t.votes[i].Token)
		}
	}
	return token, granted & t.where(func(v *vote) bool { return v.Token == token })
}

// lacking are the nodes that were asked and do not hold the record: they never had it, or have forgotten it, or
// may own the key for the attempt that asked.
func (t *tally) lacking(rec *wire.Record) nodeSet {
	return t.asked &^ t.where(func(v *vote) bool {
		return v.Verdict == wire.CircuitOpen || v.done() && v.Record.Ballot == rec.Ballot
	})
}

// sameServer finds two nodes that granted out of one replication history: they are one server, or a server
// and its replica.
func (t *tally) sameServer() (a, b int, found bool) {
	granted := t.of(wire.Granted) & t.where(func(v *vote) bool { return v.Memory != wire.NoMemory })
	for b := range t.votes {
		for a := range b {
			if granted.has(a) && granted.has(b) && historyOf(t.votes[a].Memory) == historyOf(t.votes[b].Memory) {
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

// retryAfter is when a quorum could grant at the earliest, from what the nodes said: as many of those that will grant
// by themselves as it takes, beside those that granted. Zero when it is not known.
func (t *tally) retryAfter() time.Duration {
	var rests []time.Duration
	for i := range t.votes {
		switch v := &t.votes[i]; v.Verdict {
		case wire.Held, wire.Reserved, wire.Quarantined:
			rests = append(rests, v.Rest)
		default:
		}
	}
	slices.Sort(rests)
	if last := max(t.q-t.count(wire.Granted), 1); last <= len(rests) {
		return rests[last-1]
	}
	return 0
}

// mayHold are the nodes on which the attempt may own the key, now or when a late request arrives. All others have
// refused, or were not asked.
func (t *tally) mayHold() nodeSet {
	return t.of(wire.Granted, wire.Pending, wire.TimedOut, wire.Failed)
}

// taken is why a lease is lost that is outvoted.
func (t *tally) taken() LossReason {
	if t.revoked() {
		return LossRevoked
	}
	return LossTaken
}

// revoked reports whether a node knows that the attempt was revoked.
func (t *tally) revoked() bool { return t.where(func(v *vote) bool { return v.Revoked }) != 0 }

// outvoted reports whether so many nodes do not have the lease that no quorum can.
func (t *tally) outvoted() bool { return t.count(wire.Gone) > len(t.votes)-t.q }

// confirmed reports whether a quorum confirmed what it was asked for.
func (t *tally) confirmed() bool {
	return t.count(wire.Granted, wire.Healed, wire.Passed) >= t.q
}

// settled reports whether enough nodes confirmed, or enough cannot.
func (t *tally) settled() bool { return t.confirmed() || t.outvoted() }

// recordDecided reports whether further votes cannot change the outcome of a completion.
func (t *tally) recordDecided() bool {
	done, _ := t.doneVotes()
	if t.count(wire.Granted) >= t.q || done >= t.q {
		return true
	}
	return t.recordRefused() && (done == 0 || done+t.pending < t.q)
}

// recordRefused reports whether no quorum can accept the record.
func (t *tally) recordRefused() bool {
	return t.count(wire.Gone, wire.Forgotten, wire.Done) > len(t.votes)-t.q
}

// slept is on how many nodes more time has passed since the last round than on this machine.
func (t *tally) slept() int { return t.where(func(v *vote) bool { return v.slept }).len() }
