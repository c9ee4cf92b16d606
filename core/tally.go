package core

import (
	"slices"
	"strings"
	"time"
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
		t.votes[i].verdict = VerdictPending
	}
	return t
}

// take books the vote of a node.
func (t *tally) take(i int, v vote) {
	t.votes[i] = v
	t.pending--
}

func (t *tally) count(v Verdict) (n int) {
	for i := range t.votes {
		if t.votes[i].verdict == v {
			n++
		}
	}
	return n
}

// acquireDecided reports whether more votes cannot change the outcome of a round that acquires: a quorum granted, or
// agrees that the key is done; or neither can come about, and it is known whether the key is held or no quorum can be
// reached.
func (t *tally) acquireDecided() bool {
	granted := t.count(VerdictGranted)
	done, _ := t.doneVotes()
	if granted >= t.q || done >= t.q {
		return true
	}
	if granted+t.pending >= t.q || done > 0 && done+t.pending >= t.q {
		return false
	}
	if known := granted + t.count(VerdictDone); known < t.q && known+t.pending >= t.q && t.count(VerdictDone) > 0 {
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
	return t.count(VerdictGranted) + t.count(VerdictHeld) + t.count(VerdictReserved) + t.count(VerdictDone) + t.count(VerdictGone)
}

// split reports whether no attempt is known to hold a quorum, so that each of several contenders may have a part of
// the votes.
func (t *tally) split() bool {
	for i := range t.votes {
		same := 0
		for j := range t.votes {
			if t.votes[j].verdict == t.votes[i].verdict && t.votes[j].owner == t.votes[i].owner {
				same++
			}
		}
		if v := t.votes[i].verdict; (v == VerdictHeld || v == VerdictReserved) && same >= t.q {
			return false
		}
	}
	return true
}

// kept reports whether the nodes that refused the key keep it for nobody: its last holder left it taken.
func (t *tally) kept() bool {
	kept := 0
	for i := range t.votes {
		if v := &t.votes[i]; v.verdict == VerdictHeld {
			if !strings.HasPrefix(v.owner, keptTaken) {
				return false
			}
			kept++
		}
	}
	return kept > 0
}

// place is the call's place in the queues: so far ahead it is in a quorum of them. Zero if no quorum has it.
func (t *tally) place() int {
	var places []int
	for i := range t.votes {
		if p := t.votes[i].place; p > 0 {
			places = append(places, p)
		}
	}
	if len(places) < t.q {
		return 0
	}
	slices.Sort(places)
	return places[t.q-1]
}

// queued is how many nodes have the call in their queues.
func (t *tally) queued() (n int) {
	for i := range t.votes {
		if t.votes[i].place > 0 {
			n++
		}
	}
	return n
}

// doneVotes is the most nodes that hold the same completion record, and that record. Only a record that a
// quorum holds under one ballot is decided.
func (t *tally) doneVotes() (most int, rec *nodeRecord) {
	for i := range t.votes {
		if !t.votes[i].done() {
			continue
		}
		same := 0
		for j := range t.votes {
			if t.votes[j].done() && t.votes[j].record.ballot == t.votes[i].record.ballot {
				same++
			}
		}
		if same > most || same == most && t.votes[i].record.ballot == rec.ballot && t.votes[i].record.rest > rec.rest {
			most, rec = same, t.votes[i].record
		}
	}
	return most, rec
}

// done reports whether the node holds a record. One in quarantine does too, whatever else it has forgotten: that
// it accepted the record once is enough.
func (v *vote) done() bool {
	return v.record != nil && (v.verdict == VerdictDone || v.verdict == VerdictQuarantined)
}

// record is the completion record with the greatest ballot that any node showed, nil if none did; where several
// show it, the one that is kept for longest, which somebody may have been promised.
func (t *tally) record() *nodeRecord {
	var best *nodeRecord
	for i := range t.votes {
		if r := t.votes[i].record; r != nil && (best == nil || r.ballot > best.ballot || r.ballot == best.ballot && r.rest > best.rest) {
			best = r
		}
	}
	return best
}

// hint is that of the holder that kept this attempt from the key; empty where no node told.
func (t *tally) hint() string {
	for i := range t.votes {
		if hint := t.votes[i].hint; hint != "" {
			return hint
		}
	}
	return ""
}

// granted are the nodes that granted.
func (t *tally) granted() (s nodeSet) {
	for i := range t.votes {
		if t.votes[i].verdict == VerdictGranted {
			s = s.with(i)
		}
	}
	return s
}

// unheard are the nodes that have not answered.
func (t *tally) unheard() (s nodeSet) {
	for i := range t.votes {
		if t.asked.has(i) && t.votes[i].verdict == VerdictPending {
			s = s.with(i)
		}
	}
	return s
}

// token is the greatest token granted, and the set of nodes that store it already.
func (t *tally) token() (token uint64, stored, granted nodeSet) {
	for i := range t.votes {
		v := &t.votes[i]
		if v.verdict != VerdictGranted {
			continue
		}
		granted = granted.with(i)
		switch {
		case v.token > token:
			token, stored = v.token, nodeSet(0).with(i)
		case v.token == token:
			stored = stored.with(i)
		}
	}
	return token, stored, granted
}

// lacking are the nodes that were asked and do not hold the record: they never had it, or have forgotten it, or
// may own the key for the attempt that asked.
func (t *tally) lacking(rec *nodeRecord) (s nodeSet) {
	for i := range t.votes {
		switch v := &t.votes[i]; {
		case !t.asked.has(i) || v.verdict == VerdictCircuitOpen || v.done() && v.record.ballot == rec.ballot:
		default:
			s = s.with(i)
		}
	}
	return s
}

// sameServer finds two nodes that granted out of one replication history: they are one server, or a server
// and its replica.
func (t *tally) sameServer() (a, b int, found bool) {
	for b := range t.votes {
		for a := range b {
			va, vb := &t.votes[a], &t.votes[b]
			if va.verdict == VerdictGranted && vb.verdict == VerdictGranted && va.memory != noMemory && historyOf(va.memory) == historyOf(vb.memory) {
				return a, b, true
			}
		}
	}
	return 0, 0, false
}

// noMemory stands for memory that nobody can name: there is no guard.
const noMemory = "-"

// historyOf is the replication history in the name of what a node remembers.
func historyOf(memory string) string {
	history, _, _ := strings.Cut(memory, ".")
	return history
}

// wait is when a quorum could grant at the earliest, from what the nodes said: the q-th smallest of the
// remaining times. Zero when it is not known.
func (t *tally) retryAfter() time.Duration {
	var best time.Duration
	for i := range t.votes {
		v := &t.votes[i]
		if !waitsOut(v.verdict) {
			continue
		}
		within := 0
		for j := range t.votes {
			if w := &t.votes[j]; waitsOut(w.verdict) && w.rest <= v.rest || w.verdict == VerdictGranted {
				within++
			}
		}
		if within >= t.q && (best == 0 || v.rest < best) {
			best = v.rest
		}
	}
	return best
}

// waitsOut reports whether the node will grant by itself after the rest that it named.
func waitsOut(v Verdict) bool {
	return v == VerdictHeld || v == VerdictReserved || v == VerdictQuarantined
}

// mayHold are the nodes on which the attempt may own the key, now or when a late request arrives.
func (t *tally) mayHold() (s nodeSet) {
	for i := range t.votes {
		switch t.votes[i].verdict {
		case VerdictGranted, VerdictPending, VerdictTimedOut, VerdictFailed:
			s = s.with(i)
		case VerdictHealed, VerdictPassed, VerdictUnconfirmed, VerdictHeld, VerdictReserved, VerdictDone, VerdictGone, VerdictForgotten, VerdictQuarantined, VerdictClockSkewed, VerdictTooLate, VerdictReplica,
			VerdictUnguarded, VerdictCircuitOpen: // has refused, or was not asked
		}
	}
	return s
}

// taken is why a lease is lost that is outvoted.
func (t *tally) taken() LossReason {
	if t.revoked() {
		return LossRevoked
	}
	return LossTaken
}

// revoked reports whether a node knows that the attempt was revoked.
func (t *tally) revoked() bool {
	return slices.ContainsFunc(t.votes, func(v vote) bool { return v.revoked })
}

// outvoted reports whether so many nodes do not have the lease that no quorum can.
func (t *tally) outvoted() bool { return t.count(VerdictGone) > len(t.votes)-t.q }

// confirmed reports whether a quorum confirmed what it was asked for.
func (t *tally) confirmed() bool {
	return t.count(VerdictGranted)+t.count(VerdictHealed)+t.count(VerdictPassed) >= t.q
}

// recordDecided reports whether further votes cannot change the outcome of a completion.
func (t *tally) recordDecided() bool {
	done, _ := t.doneVotes()
	if t.count(VerdictGranted) >= t.q || done >= t.q {
		return true
	}
	return t.recordRefused() && (done == 0 || done+t.pending < t.q)
}

// recordRefused reports whether no quorum can accept the record.
func (t *tally) recordRefused() bool {
	return t.count(VerdictGone)+t.count(VerdictForgotten)+t.count(VerdictDone) > len(t.votes)-t.q
}

// settled reports whether enough nodes confirmed, or enough cannot.
func (t *tally) settled() bool { return t.confirmed() || t.outvoted() }

// heardLonger reports whether a node knows of a longer lease than the requests of the round brought along.
func (t *tally) heardLonger() bool {
	for i := range t.votes {
		if t.votes[i].longest > 0 {
			return true
		}
	}
	return false
}

// slept is on how many nodes more time has passed since the last round than on this machine.
func (t *tally) slept() (n int) {
	for i := range t.votes {
		if t.votes[i].slept {
			n++
		}
	}
	return n
}

// answeredAll reports whether every one of these nodes has answered.
func (t *tally) answeredAll(nodes nodeSet) bool {
	for i := range t.votes {
		if nodes.has(i) && t.votes[i].verdict == VerdictPending {
			return false
		}
	}
	return true
}
