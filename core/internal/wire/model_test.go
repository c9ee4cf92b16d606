package wire

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// This file is a model of a node: what a node remembers, and how each request changes that and is answered. It is
// written from the documents (the package document, the contracts at the heads of the .lua files, docs/guarantees.md,
// docs/models) and shares no code with the scripts. It is as plain as possible and knows nothing of speed: there is one
// form of each request, and no packed text. TestScriptsDoAsTheModel compares the scripts with it.
//
// All functions are pure: they return the new state and leave the old one as it was. Times are the node's, in ms, if
// their name does not say µs.

// How long Redis keeps what a node remembers, beyond the time by which scripts judge.
const (
	slackMs    = 24 * 60 * 60 * 1000 // of a lease
	jumpMs     = 2 * 60 * 60 * 1000  // of a record and of a counter
	idleMs     = 60 * 60 * 1000      // of a counter that nobody uses; at least the longest lease
	turnMs     = 50                  // for which a free key waits for each of the first three waiters
	rejoinedMs = 5000                // of a queue that a call has rejoined; those that wait join it each second
	markLifeµ  = 10 * 60 * 1_000_000 // of an operator's mark
)

// A nodeModel is what one node remembers.
type nodeModel struct {
	history string // the replication history of the server
	replica bool
	hidden  bool // INFO does not show the history

	guard guardModel
	note  noteModel
	keys  map[string]keyModel
}

// A guardModel is the guard record. The zero guardModel is none.
type guardModel struct {
	history  string // the memory is named by the history under which it began,
	since    int64  // when it began,
	declared bool   // and whether an operator has declared it new

	longest  int64 // the longest lease in use
	markTo   int64 // an operator's mark: the value to which longest is to be lowered; 0 if there is no mark,
	markedµ  int64 // and when the node was marked
	claimant string
}

// memory returns the name of the memory.
func (g guardModel) memory() string {
	if g == (guardModel{}) {
		return NoMemory
	}
	name := fmt.Sprintf("%s.%d", g.history, g.since)
	if g.declared {
		name += "!"
	}
	return name
}

// mark returns the mark as the record has it.
func (g guardModel) mark() string {
	if g.markTo == 0 {
		return ""
	}
	return fmt.Sprintf(">%d@%d", g.markTo, g.markedµ)
}

// String returns the text of the record.
func (g guardModel) String() string {
	if g == (guardModel{}) {
		return ""
	}
	text := fmt.Sprintf("%s %d%s", g.memory(), g.longest, g.mark())
	if g.claimant != "" {
		text += " " + g.claimant
	}
	return text
}

// A noteModel says since when the guard record has its longest lease, if that has changed.
type noteModel struct{ longest, since int64 }

// A keyModel is what a node remembers of one key.
type keyModel struct {
	// The lease.
	owner   string // the attempt that has the key, or had it last; CooldownPrefix and its name in a cooldown
	expiry  int64  // the lease is live until then, inclusive; 0 if it was ended
	counter int64  // the last fencing token
	before  int64  // the counter before the owner's grant; -1 if the owner was not granted the key, or has ended
	carried string

	// The turn of an attempt whose renewal was refused.
	turn      string
	turnUntil int64

	record *recordModel

	// The queue. A resource is marked while a call may wait.
	queue      []waitModel // in its order
	marked     bool
	holdEnded  int64 // when the last hold ended; 0 if no turns are counted
	queueDiesµ int64

	ends map[string]endModel // tombstones, by attempt

	diesµ int64 // when Redis drops the resource; 0 if there is none
}

// A recordModel is a completion record.
type recordModel struct {
	ballot, kept, token int64
	result              string
}

// A waitModel is a waiting call.
type waitModel struct {
	member string
	ticket int64
}

// An endModel is how an attempt has ended on the node.
type endModel struct {
	how   string // one of the words below
	diesµ int64
}

const (
	released  = "1"
	completed = "2"
	refused   = "3"
	revoked   = "4"
)

// A commandModel is a command: the settings of the client, and requests that the node executes at one instant.
type commandModel struct {
	guarded             bool
	maxTTL, window, lag int64
	wall                int64  // the client's clock, µs
	assumed             string // the node's memory, as the client knows it: plain code or not depends on it
	requests            []requestModel
}

// A requestModel is a request, with the arguments of its operation.
type requestModel struct {
	op           Op
	key, attempt string
	process      string // whose channel notifies the call; "" if it does not wait
	lease        int64

	acquire  Acquire
	renew    Renew
	complete Complete
	release  Release

	claim, found string // of Provision
	step, mark   string // of an operator's step to lower the longest lease
	to           int64
	token        uint64 // of Forget
}

// A noticeModel is a message to a waiting call.
type noticeModel struct{ channel, text string }

// instant is what a command is judged by: its clock, its guard, and the settings of its client.
type instant struct {
	commandModel
	µs, ms          int64
	memory          string // NoMemory without a guard
	quarantineUntil int64  // 0 without a quarantine
	lagUntil        int64  // until then, the previous primary may still be serving
	told            int64  // the longest lease, if the client does not know it
}

// step returns what a node does with a command at µs.
func (n nodeModel) step(c commandModel, µs int64) (after nodeModel, replies []Reply, notices []noticeModel) {
	n = n.forget(µs)

	at := instant{commandModel: c, µs: µs, ms: µs / 1000, memory: NoMemory}
	var refusal *Reply
	if slices.ContainsFunc(c.requests, requestModel.isJudged) {
		n, at, refusal = n.head(at)
	}

	due := map[string][]noticeModel{} // by key
	for _, q := range c.requests {
		if refusal != nil && q.isJudged() {
			replies = append(replies, *refusal)
			continue
		}

		var v Reply
		var told []noticeModel
		n, v, told = n.answer(q, at)
		replies = append(replies, v)

		switch {
		case q.op == OpAcquire && v.Verdict == Granted:
			delete(due, q.key) // taken again in the same command, so it is not free
			notices = append(notices, told...)
		case q.op == OpRevoke:
			notices = append(notices, told...)
		case len(told) > 0:
			due[q.key] = told
		}
	}

	for _, key := range slices.Sorted(maps.Keys(due)) {
		notices = append(notices, due[key]...)
	}
	return n, replies, notices
}

// isJudged reports whether clock and guard decide about the request before anything else does. A release, a revocation
// and a dropped record only end something; operators' requests about the guard have rules of their own.
func (q requestModel) isJudged() bool {
	return q.op == OpAcquire || q.op == OpRenew || q.op == OpComplete || q.op == OpTouch
}

// forget drops what Redis has dropped by now.
func (n nodeModel) forget(µs int64) nodeModel {
	n.keys = maps.Clone(n.keys)
	for name, k := range n.keys {
		if k.diesµ <= µs {
			k = k.withoutResource()
		}
		if k.queueDiesµ <= µs {
			k.queue = nil
		}
		k.ends = maps.Clone(k.ends)
		maps.DeleteFunc(k.ends, func(_ string, e endModel) bool { return e.diesµ <= µs })
		n.keys[name] = k
	}
	return n
}

// withoutResource returns the key without what one Redis key has of it. The queue and the tombstones have others.
func (k keyModel) withoutResource() keyModel {
	return keyModel{before: -1, ends: k.ends, queue: k.queue, queueDiesµ: k.queueDiesµ}
}

// head judges clock and guard. If it returns a reply, that is the reply to all requests which they concern.
func (n nodeModel) head(at instant) (nodeModel, instant, *Reply) {
	n, refusal := n.checkServer(at)
	if refusal != nil || !at.guarded {
		return n, at, refusal
	}

	n = n.remember(at)
	g := n.guard
	at.memory = g.memory()
	if g.longest > at.maxTTL {
		at.told = g.longest
	}
	if !g.declared {
		if at.lag > 0 {
			at.lagUntil = g.since + at.lag
		}
		at.quarantineUntil = g.since + g.longest + at.lag
	}

	// A mark ends with the first request that names more, and after ten minutes.
	age := max(at.µs-g.markedµ, g.markedµ-at.µs) // the clock may have been set back
	if g.markTo > 0 && (at.maxTTL > g.markTo || age > markLifeµ) {
		n.guard.markTo, n.guard.markedµ = 0, 0
	}
	return n, at, nil
}

// checkServer refuses if the server is not the node, or if the clocks differ. The role comes first.
func (n nodeModel) checkServer(at instant) (nodeModel, *Reply) {
	now := nodeMillis(at.ms)
	apart := max(at.µs-at.wall, at.wall-at.µs)
	switch {
	case at.guarded && n.hidden:
		return n, &Reply{Verdict: Unguarded, Clock: now}
	case at.guarded && n.replica:
		return n, &Reply{Verdict: Replica, Clock: now}
	case at.window > 0 && apart > at.window*1000:
		return n, &Reply{Verdict: ClockSkewed, Clock: NodeTime(at.µs)}
	}
	return n, nil
}

// remember begins a new memory if the record is not that of this history, and learns of a longer lease. The note says
// since when it is known, unless the first record brought it.
func (n nodeModel) remember(at instant) nodeModel {
	before := n.guard.longest
	longest := max(at.maxTTL, before)

	if n.guard.history == n.history {
		n.guard.longest = longest
	} else {
		n.guard = guardModel{history: n.history, since: at.ms, longest: longest}
	}

	if before > 0 && longest != before {
		n.note = noteModel{longest, at.ms}
	}
	return n
}

func (at instant) quarantined() bool { return at.ms < at.quarantineUntil }
func (at instant) lagging() bool     { return at.ms < at.lagUntil }

// margin is by how much two readings of the node's clock that both passed the window may differ in the wrong direction.
func (at instant) margin() int64 {
	return 2 * (at.window + at.window/10)
}

// reply returns a reply that tells the clock, and the longest lease if the client does not know it.
func (at instant) reply(v Verdict) Reply {
	return Reply{Verdict: v, Clock: nodeMillis(at.ms), Longest: time.Duration(at.told) * time.Millisecond}
}

func (at instant) inQuarantine() Reply {
	v := at.reply(Quarantined)
	v.Remaining = time.Duration(at.quarantineUntil-at.ms) * time.Millisecond
	return v
}

// answer returns what the node does with one request, and which waiting calls are notified.
func (n nodeModel) answer(q requestModel, at instant) (nodeModel, Reply, []noticeModel) {
	var v Reply
	switch q.op {
	case OpTouch:
		v = at.inQuarantine()
		if !at.quarantined() {
			v = at.reply(Granted)
			v.Memory = at.memory
		}
		return n, v, nil
	case OpProvision:
		n, v = n.provision(q, at)
		return n, v, nil
	case OpLower:
		n, v = n.lower(q, at)
		return n, v, nil
	}

	k, known := n.keys[q.key]
	if !known {
		k.before = -1
	}
	k.ends = maps.Clone(k.ends)
	if k.ends == nil {
		k.ends = map[string]endModel{}
	}

	var notices []noticeModel
	switch q.op {
	case OpAcquire:
		k, v, notices = k.doAcquire(q, at)
	case OpRenew:
		k, v = k.doRenew(q, at)
	case OpRelease:
		k, v, notices = k.doRelease(q, at)
	case OpComplete:
		k, v, notices = k.doComplete(q, at)
	case OpRevoke:
		k, v, notices = k.doRevoke(q, at)
	case OpForget:
		k, v = k.doForget(q, at)
	}

	// A node that has granted something is not new any more.
	inUse := q.op == OpAcquire || q.op == OpRenew || q.op == OpComplete
	if inUse && slices.Contains([]Verdict{Granted, Healed, Passed}, v.Verdict) {
		n.guard.claimant = ""
	}

	n.keys[q.key] = k
	return n, v, notices
}

// live reports whether the key is taken.
func (k keyModel) live(ms int64) bool { return ms <= k.expiry }

// end returns how an attempt has ended here: its tombstone says so, or its name, where it was the last to have the key.
func (k keyModel) end(attempt string) string {
	if e, ok := k.ends[attempt]; ok {
		return e.how
	}
	byName := k.owner == attempt && k.expiry == 0 || k.owner == CooldownPrefix+attempt
	if byName {
		return released
	}
	return ""
}

// bury leaves a tombstone. RELEASED and REVOKED never change.
func (k keyModel) bury(attempt, how string, life, µs int64) keyModel {
	switch e := k.ends[attempt]; {
	case e.how == revoked:
		return k // its tombstone outlives this one
	case e.how == released:
		how = released
	}
	k.ends = maps.Clone(k.ends)
	k.ends[attempt] = endModel{how, µs + life*1000}
	return k
}

// keep sets how long Redis keeps the resource: a taken one for a day more, a record for two hours more, and a counter
// for an hour (or the longest lease) and two hours, longer if it is ahead of the clock.
func (k keyModel) keep(at instant) keyModel {
	life := at.idle() + max(0, k.counter/1000-at.ms)
	if k.expiry > 0 {
		life = max(life, k.expiry+slackMs-at.ms)
	}
	if k.record != nil {
		life = max(life, k.record.kept+jumpMs-at.ms)
	}

	k.diesµ = at.µs + life*1000
	return k
}

// idle is how long Redis keeps a counter that nobody uses.
func (at instant) idle() int64 { return max(idleMs, at.maxTTL) + jumpMs }

// shownRecord returns the record as replies show it, or nil if there is none or its retention is over.
func (k keyModel) shownRecord(ms int64) *Record {
	if k.record == nil || k.record.kept <= ms {
		return nil
	}
	return &Record{
		Ballot:    uint64(k.record.ballot),
		Retention: time.Duration(k.record.kept-ms) * time.Millisecond,
		Token:     uint64(k.record.token),
		Result:    append([]byte(nil), k.record.result...),
	}
}

// doAcquire grants the key if no attempt has it and no completion is recorded.
func (k keyModel) doAcquire(q requestModel, at instant) (keyModel, Reply, []noticeModel) {
	if at.quarantined() {
		v := at.inQuarantine()
		v.Record = k.shownRecord(at.ms)
		return k, v, nil
	}

	// A repeated request. A lease that a renewal brought, or that is over, is not a grant.
	if k.owner == q.attempt {
		if k.before >= 0 && k.live(at.ms) {
			return k, k.granted(at), nil
		}
		return k, at.reply(Gone), nil
	}

	if k.live(at.ms) {
		v := at.reply(Held)
		v.Remaining = time.Duration(k.expiry-at.ms+1) * time.Millisecond
		v.Owner = k.owner
		v.Hint = ParseCarried(k.carried).Hint
		k, v.Place = k.join(q, at)
		return k, v, nil
	}

	if d := k.shownRecord(at.ms); d != nil && !q.acquire.Settle {
		v := at.reply(Done)
		v.Record = d
		return k, v, nil
	}

	if k.turn != "" && k.turn != q.attempt && at.ms < k.turnUntil {
		v := at.reply(Held)
		v.Remaining = time.Duration(k.turnUntil-at.ms) * time.Millisecond
		v.Owner = k.turn
		return k, v, nil
	}

	k, before, refusal := k.awaitTurn(q, at)
	if refusal != nil {
		return k, *refusal, nil
	}

	if _, over := k.ends[q.attempt]; over {
		return k, at.reply(Gone), nil
	}
	return k.grant(q, at, before)
}

// awaitTurn refuses while it is the turn of calls that wait, and returns how many come before the attempt. Each of the
// first three has 50 ms, from when the last hold ended. A longer rest does not count: the clock was set back.
func (k keyModel) awaitTurn(q requestModel, at instant) (_ keyModel, before int, refusal *Reply) {
	if !k.marked {
		return k, 0, nil
	}

	k, place := k.join(q, at)
	before = len(k.queue)
	if place > 0 {
		before = place - 1
	}

	rest := k.lastHoldEnded() + turnMs*int64(min(before, 3)) - at.ms
	if before > 0 && 0 < rest && rest <= 3*turnMs {
		v := at.reply(Reserved)
		v.Remaining = time.Duration(rest) * time.Millisecond
		v.Place = place
		return k, before, &v
	}
	return k, before, nil
}

// grant grants the key. So many calls that wait come before the attempt.
func (k keyModel) grant(q requestModel, at instant, before int) (keyModel, Reply, []noticeModel) {
	var notices []noticeModel
	if k.marked {
		// If turns are counted, those before the attempt have had theirs. They are told, in case they are alive.
		k.holdEnded = k.lastHoldEnded()
		if k.holdEnded > 0 {
			for _, w := range k.queue[:before] {
				notices = append(notices, w.notice(2))
			}
			k.queue = k.queue[before:]
		}
		if q.process != "" {
			k = k.leave(q.wait().member)
		}
	}

	// The token is near this clock, but always exceeds the counter.
	near := at.maxTTL * 1000 / 4
	proposed := min(max(q.acquire.ProposedToken.µs, at.µs-near), at.µs+near)

	k.before = k.counter
	k.counter = max(k.counter+1, proposed)
	k.owner = q.attempt
	k.expiry = at.ms + q.lease
	k.carried = q.acquire.Carried
	k.turn, k.turnUntil = "", 0
	k = k.keep(at)
	return k, k.granted(at), notices
}

// granted returns the reply to the owner. It shows a record that is beside the lease.
func (k keyModel) granted(at instant) Reply {
	v := at.reply(Granted)
	v.Token = uint64(k.counter)
	v.Expiry = nodeMillis(k.expiry)
	v.Memory = at.memory
	v.Record = k.shownRecord(at.ms)
	return v
}

// wait returns the call of an acquisition that waits. Its name is that of the attempt if it has no other, and then it
// began with the attempt.
func (q requestModel) wait() waitModel {
	w := q.acquire.Waiter
	if w.Name == "" {
		w = Waiter{q.attempt, q.acquire.ProposedToken}
	}
	return waitModel{w.member(q.acquire.Channel), w.Ticket.µs}
}

// lastHoldEnded returns when the last hold ended here: when its lease ran out, unless it was ended before.
func (k keyModel) lastHoldEnded() int64 {
	return max(k.holdEnded, k.expiry)
}

// remark ends the mark if no call waits any more.
func (k keyModel) remark() keyModel {
	if len(k.queue) == 0 {
		k.marked = false
		k.holdEnded = 0
	}
	return k
}

// join adds the call to the queue, if it waits, and returns its place, from 1. A call whose attempt is over is not
// added.
func (k keyModel) join(q requestModel, at instant) (keyModel, int) {
	if q.process == "" {
		return k, 0
	}

	w := q.wait()
	of := func(other waitModel) bool { return other.member == w.member }
	_, over := k.ends[q.attempt]
	if over && !slices.ContainsFunc(k.queue, of) {
		if len(k.queue) > 0 {
			k.queueDiesµ = at.µs + at.maxTTL*1000
		}
		return k, 0
	}

	k = k.add(w)
	k.queueDiesµ = at.µs + at.maxTTL*1000
	k.marked = true
	return k, 1 + slices.IndexFunc(k.queue, of)
}

// add adds a wait, once.
func (k keyModel) add(w waitModel) keyModel {
	k = k.leave(w.member)
	k.queue = append(k.queue, w)
	slices.SortFunc(k.queue, func(a, b waitModel) int {
		return cmp.Or(cmp.Compare(a.ticket, b.ticket), strings.Compare(a.member, b.member))
	})
	return k
}

// leave removes a wait.
func (k keyModel) leave(member string) keyModel {
	k.queue = slices.DeleteFunc(slices.Clone(k.queue), func(w waitModel) bool { return w.member == member })
	return k
}

// wake returns the notices for the first two waits.
func (k keyModel) wake() (notices []noticeModel) {
	for i, w := range k.queue[:min(2, len(k.queue))] {
		notices = append(notices, w.notice(i+1))
	}
	return notices
}

// notice returns the message that tells the call its place.
func (w waitModel) notice(place int) noticeModel {
	_, rest, _ := strings.Cut(w.member, " ") // how to publish
	channel, name, _ := strings.Cut(rest, " ")
	return noticeModel{channel, fmt.Sprintf("%d %s", place, name)}
}

// doRenew extends the attempt's lease, or brings it back. A write-back raises the counter of a grant.
func (k keyModel) doRenew(q requestModel, at instant) (keyModel, Reply) {
	a := q.renew
	token := int64(a.Token)
	isWriteBack := a.Granted > 0
	sure := at.ms+at.margin() < a.Confirmed.Millis() // the lease cannot have run out here yet
	owns := k.owner == q.attempt && k.expiry > 0

	// What a node in quarantine remembers may come from a snapshot.
	if at.quarantined() && !sure {
		return k, at.inQuarantine()
	}

	if at.lagging() {
		return k, at.reply(Unconfirmed)
	}

	gone := at.reply(Gone)
	if k.owner == q.attempt && !owns {
		return k, gone // a release ended it
	}
	if !owns {
		if e, over := k.ends[q.attempt]; over {
			gone.Revoked = e.how == revoked
			return k, gone
		}

		// Another's live lease is believed outside of quarantine, and the next turn is the attempt's.
		if k.live(at.ms) && !at.quarantined() {
			if !isWriteBack {
				k.turn, k.turnUntil = q.attempt, at.ms+a.Turn.ms
			}
			return k, gone
		}
	}

	if isWriteBack {
		isThatGrant := owns && k.counter == int64(a.Granted) && a.Memory == at.memory
		if !isThatGrant {
			return k, gone
		}
	}

	v := at.reply(Granted)
	if at.quarantined() || !owns && sure {
		v.Verdict = Healed
	}
	if k.counter > token {
		v.Verdict = Passed
	}

	if !owns {
		k.owner = q.attempt
		k.before = -1
		k.carried = a.Carried
		k.turn, k.turnUntil = "", 0
	}
	k.expiry = max(k.expiry, at.ms+q.lease)
	k.counter = max(k.counter, token)
	k = k.keep(at)

	v.Expiry = nodeMillis(k.expiry)
	v.Memory = at.memory
	return k, v
}

// doRelease ends an attempt.
func (k keyModel) doRelease(q requestModel, at instant) (keyModel, Reply, []noticeModel) {
	a, old := q.release, k
	how := k.end(q.attempt)
	owns := k.owner == q.attempt && k.expiry > 0
	rests := k.owner == CooldownPrefix+q.attempt
	cooldown := (a.Cooldown + time.Millisecond - 1).Milliseconds()
	needsTombstone := !a.Arrived || k.owner != q.attempt

	if k.record != nil && k.record.ballot < int64(a.DropBelow) {
		k.record = nil
	}
	if k.turn == q.attempt {
		k.turn, k.turnUntil = "", 0
	}

	v := Reply{Verdict: Granted}
	switch {
	case owns:
		if a.RestoreCounter && k.before >= 0 {
			k.counter = k.before
			if k.record != nil {
				k.counter = max(k.counter, k.record.ballot)
			}
		}
		k.before = -1
		k.carried = ""

		// A lease that is over cannot keep the key taken: others may have had it on other nodes.
		switch {
		case cooldown > 0 && k.live(at.ms):
			k.owner = CooldownPrefix + q.attempt
			k.expiry = at.ms + cooldown
		case cooldown > 0:
			v.Verdict = TooLate
			fallthrough
		default:
			k.expiry = 0
			if needsTombstone {
				k.owner = "" // the tombstone says that the attempt is over
			}
		}
		how = released

	case rests:
		// The first release is repeated.

	case how == released || how == completed:
		if cooldown > 0 {
			v.Verdict = TooLate
		}

	case how == refused || how == revoked:
		v = Reply{Verdict: Gone, Refused: how == refused, Revoked: how == revoked}

	default:
		// Another release may have ended the attempt, unless this is the first, and leaves a trace.
		v = Reply{Verdict: Gone}
		how = refused
		if a.Repeated || a.Arrived {
			how = released
		}
	}
	if needsTombstone {
		k = k.bury(q.attempt, how, a.TombstoneLife.ms, at.µs)
	}

	var notices []noticeModel
	if k.marked {
		k, notices = k.waitersAfterRelease(q, owns, old, at)
	}

	switch {
	case owns && k.isUnused():
		// Of a key that was never used nothing is left, not even the name of the attempt.
		k = k.withoutResource()
	case owns && k.expiry > 0:
		k = k.keep(at)
	case owns && k.record == nil:
		k.diesµ = at.µs + at.idle()*1000
	}
	return k, v, notices
}

// isUnused reports whether nothing is to be remembered of a key that is free.
func (k keyModel) isUnused() bool {
	return k.expiry == 0 && k.counter == 0 && k.turn == "" && k.record == nil && !k.marked
}

// waitersAfterRelease returns the key without the call of the release, or with the place that its grant took from it.
// The first two are told if a hold has ended, or if the call leaves a free key. The release of an attempt that no caller
// got begins no turns, or each failed attempt would begin them anew.
func (k keyModel) waitersAfterRelease(q requestModel, owned bool, old keyModel, at instant) (keyModel, []noticeModel) {
	a := q.release
	waits := a.Waiter.Name != ""
	leaves := waits && a.Waiter.Ticket == (Stamp{})
	member := a.Waiter.member(a.Channel)

	if leaves {
		k = k.leave(member)
	} else if waits && owned {
		k = k.add(waitModel{member, a.Waiter.Ticket.µs})
		k.queueDiesµ = at.µs + rejoinedMs*1000
	}

	endsAHold := owned && a.DropBelow > 0
	if endsAHold {
		k.holdEnded = min(at.ms, old.expiry)
	}

	free := k.owner == "" || k.expiry == 0
	k = k.remark()
	if endsAHold || leaves && free {
		return k, k.wake()
	}
	return k, nil
}

// doComplete stores a completion record and ends the attempt.
func (k keyModel) doComplete(q requestModel, at instant) (keyModel, Reply, []noticeModel) { //nolint:gocognit // the cases of the protocol, in its order
	a := q.complete
	ballot, by := int64(a.Ballot), int64(a.Token)
	kept := at.ms + a.Retention.Milliseconds()
	own := ballot == by && !a.Decided // the holder completes, and nobody for it

	owns := k.owner == q.attempt && k.expiry > 0
	othersLive := k.live(at.ms) && k.owner != q.attempt
	wasReleased := k.end(q.attempt) == released
	wasRevoked := k.ends[q.attempt].how == revoked
	old, d := k, k.record
	same := d != nil && d.ballot == ballot
	stands := d != nil && (d.kept > at.ms || same && a.Decided)

	// Every answer ends the attempt. A record that is here also ends a lease that is over, whosever it was: its
	// write-back must not count here any more.
	finish := func(how string, v Reply) (keyModel, Reply, []noticeModel) {
		if wasReleased {
			how = released
		}
		k = k.bury(q.attempt, how, a.TombstoneLife.ms, at.µs)

		endsLease := k.owner == q.attempt || v.Verdict == Granted && !othersLive
		if endsLease {
			k.owner, k.expiry, k.before, k.carried = "", 0, -1, ""
		}
		if k.turn == q.attempt {
			k.turn, k.turnUntil = "", 0
		}

		leaves := a.Leaving.Name != ""
		changed := endsLease && old.owner != "" || k.turn != old.turn
		var notices []noticeModel
		if k.marked && (changed || leaves) {
			if leaves {
				k = k.leave(a.Leaving.member(a.Channel))
			}
			if owns {
				k.holdEnded = at.ms
			}
			if k.owner == "" {
				notices = k.wake()
			}
			k = k.remark()
		}
		if k.record != old.record {
			k = k.keep(at)
		}
		return k, v, notices
	}
	refuse := func(verdict Verdict) (keyModel, Reply, []noticeModel) {
		return finish(refused, at.reply(verdict))
	}

	switch {
	case stands && same:
		// A repeated request.
		if !a.Decided && kept > d.kept {
			k.record = &recordModel{d.ballot, kept, d.token, d.result}
		}
		return finish(completed, at.reply(Granted))

	case stands && d.ballot > ballot:
		settled := d.token == by // another client has completed the record of the same lease
		if wasRevoked && !a.Decided && !settled {
			break
		}
		if settled && own && kept > d.kept {
			k.record = &recordModel{d.ballot, kept, d.token, d.result} // its holder is promised the whole retention
		}

		how := refused
		if settled {
			how = completed
		}
		v := at.reply(Done)
		v.Record = k.shownRecord(at.ms)
		v.Record.Result = nil
		return finish(how, v)
	}

	if !a.Decided {
		switch {
		case wasRevoked:
			v := at.reply(Gone)
			v.Revoked = true
			return finish(revoked, v)
		case othersLive || k.counter > ballot:
			return refuse(Gone)
		case at.lagging():
			return k, at.reply(Unconfirmed), nil
		case a.Memory != at.memory:
			return refuse(Forgotten)
		}
	}

	k.record = &recordModel{ballot, kept, by, string(a.Result)}
	k.counter = max(k.counter, ballot)
	return finish(completed, at.reply(Granted))
}

// doRevoke ends an attempt of another process. The key stays taken until its lease has run out.
func (k keyModel) doRevoke(q requestModel, at instant) (keyModel, Reply, []noticeModel) {
	how := revoked
	if k.end(q.attempt) == released {
		how = released
	}
	owns := k.owner == q.attempt && k.expiry > 0

	delete(k.ends, q.attempt)
	k = k.bury(q.attempt, how, 2*slackMs, at.µs)
	if k.turn == q.attempt {
		k.turn, k.turnUntil = "", 0
	}
	if !owns {
		return k, Reply{Verdict: Gone}, nil
	}

	v := Reply{Verdict: Granted, Remaining: time.Duration(max(0, k.expiry-at.ms+1)) * time.Millisecond}
	k.owner = CooldownPrefix
	k.before = -1
	k.carried = ""
	var notices []noticeModel
	if k.marked {
		k.holdEnded = min(at.ms, k.expiry)
		notices = k.wake()
		k = k.remark()
	}
	return k.keep(at), v, notices
}

// doForget drops a completion record, also one that looks over.
func (k keyModel) doForget(q requestModel, at instant) (keyModel, Reply) {
	switch {
	case k.record != nil && k.record.token == int64(q.token):
		k.record = nil
		return k, Reply{Verdict: Granted}
	case k.shownRecord(at.ms) != nil:
		return k, Reply{Verdict: Done}
	}
	return k, Reply{Verdict: Gone}
}

// provision claims a node that has no record, and declares it new if the claim that the caller found still stands.
func (n nodeModel) provision(q requestModel, at instant) (nodeModel, Reply) {
	n, refusal := n.checkServer(at)
	if refusal != nil {
		return n, *refusal
	}

	if n.guard == (guardModel{}) {
		n.guard = guardModel{history: n.history, since: at.ms, longest: at.maxTTL, claimant: q.claim}
		return n, Reply{Verdict: Quarantined, Claim: q.claim}
	}

	waits := max(at.maxTTL, n.guard.longest) + at.lag
	if n.guard.history != n.history {
		v := at.reply(Quarantined)
		v.Remaining = time.Duration(waits) * time.Millisecond
		return n, v
	}

	claimed := n.guard.claimant != ""
	rest := n.guard.since + waits - at.ms
	votes := n.guard.declared || rest <= 0
	switch {
	case !votes && !claimed:
		v := at.reply(Quarantined)
		v.Remaining = time.Duration(rest) * time.Millisecond
		return n, v
	case !votes && n.guard.claimant != q.found:
		return n, Reply{Verdict: Quarantined, Claim: n.guard.claimant}
	case !votes:
		n.guard.declared = true
		n.guard.longest = max(at.maxTTL, n.guard.longest)
		n.guard.markTo, n.guard.markedµ = 0, 0
	}
	return n, Reply{Verdict: Granted, Memory: n.guard.memory(), Claim: n.guard.claimant}
}

// lower marks the node, checks the mark, lowers the longest lease in use, or removes a mark.
func (n nodeModel) lower(q requestModel, at instant) (nodeModel, Reply) {
	n, refusal := n.checkServer(at)
	if refusal != nil {
		return n, *refusal
	}

	silent := at.reply(Granted)
	if n.guard.longest > at.maxTTL {
		at.told = n.guard.longest
	}
	isCurrent := n.guard.history == n.history
	stands := isCurrent && n.guard.markTo > 0 && n.guard.mark() == q.mark

	switch q.step {
	case "mark":
		return n.markFor(q, at)

	case "unmark":
		if isCurrent {
			n.guard.markTo, n.guard.markedµ = 0, 0
		}
		return n, at.reply(Granted)

	case "lower":
		if stands {
			if q.to != n.guard.longest {
				n.note = noteModel{q.to, at.ms}
			}
			n.guard.longest = q.to
			n.guard.markTo, n.guard.markedµ = 0, 0
		}
	}

	if !stands {
		return n, at.reply(Gone)
	}
	return n, silent
}

// markFor marks the node before the longest lease in use is lowered, unless it is not greater, or may have forgotten a
// lease.
func (n nodeModel) markFor(q requestModel, at instant) (nodeModel, Reply) {
	if max(n.guard.longest, at.maxTTL) <= q.to {
		return n, at.reply(Granted)
	}

	n = n.remember(at)
	n.guard.markTo, n.guard.markedµ = 0, 0
	at.quarantineUntil = n.guard.since + n.guard.longest + at.lag
	if !n.guard.declared && at.quarantined() {
		return n, at.inQuarantine()
	}

	n.guard.markTo, n.guard.markedµ = q.to, at.µs
	v := at.reply(Granted)
	v.Claim = n.guard.mark()
	return n, v
}
