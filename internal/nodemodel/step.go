package nodemodel

import (
	"maps"
	"slices"
)

// An instant has the facts by which a command is judged: clock, guard, and the settings of its client.
type instant struct {
	Command
	µs, ms          int64
	memory          string // noMemory without a guard
	quarantineUntil int64  // 0 without a quarantine
	lagUntil        int64  // until then, the previous primary may still be serving
	told            int64  // the longest lease, if the client does not know it
}

// Step executes a command at µs. It returns the new state, a reply for each request, and the notices.
func (n Node) Step(c Command, µs int64) (after Node, replies []Reply, notices []Notice) {
	n = n.Forget(µs)

	at := instant{Command: c, µs: µs, ms: µs / 1000, memory: noMemory}
	var refusal *Reply
	if slices.ContainsFunc(c.Requests, Request.isJudged) {
		n, at, refusal = n.head(at)
	}

	due := map[string][]Notice{} // by key
	for _, q := range c.Requests {
		if refusal != nil && q.isJudged() {
			replies = append(replies, *refusal)
			continue
		}

		var v Reply
		var told []Notice
		n, v, told = n.answer(q, at)
		replies = append(replies, v)

		switch {
		case q.Op == OpAcquire && v.Verdict == Granted:
			delete(due, q.Key) // taken again in the same command, so it is not free
			notices = append(notices, told...)
		case q.Op == OpRevoke:
			notices = append(notices, told...)
		case len(told) > 0:
			due[q.Key] = told
		}
	}

	for _, key := range slices.Sorted(maps.Keys(due)) {
		notices = append(notices, due[key]...)
	}

	return n, replies, notices
}

// Forget drops everything that Redis has dropped by now.
func (n Node) Forget(µs int64) Node {
	n.Keys = maps.Clone(n.Keys)
	for name, k := range n.Keys {
		if k.Dies <= µs {
			k = k.withoutResource()
		}
		if k.QueueDies <= µs {
			k.Queue = nil
		}
		k.Ends = maps.Clone(k.Ends)
		maps.DeleteFunc(k.Ends, func(_ string, e End) bool { return e.Dies <= µs })
		n.Keys[name] = k
	}

	return n
}

// head judges clock and guard. If it returns a reply, that is the reply to all requests which they concern.
func (n Node) head(at instant) (Node, instant, *Reply) {
	n, refusal := n.checkServer(at)
	if refusal != nil || !at.Guarded {
		return n, at, refusal
	}

	n = n.remember(at)
	g := n.Guard
	at.memory = g.Memory()
	if g.Longest > at.MaxTTL {
		at.told = g.Longest
	}
	if !g.Declared {
		if at.Lag > 0 {
			at.lagUntil = g.Since + at.Lag
		}
		at.quarantineUntil = g.Since + g.Longest + at.Lag
	}

	// A mark ends with the first request that names more, and after ten minutes.
	age := max(at.µs-g.MarkedAt, g.MarkedAt-at.µs) // the clock may have been set back
	if g.MarkTo > 0 && (at.MaxTTL > g.MarkTo || age > MarkLife) {
		n.Guard = n.Guard.withoutMark()
	}

	return n, at, nil
}

// checkServer refuses if the server is not the node, or if the clocks differ. The role comes first.
func (n Node) checkServer(at instant) (Node, *Reply) {
	now := at.ms * 1000
	apart := max(at.µs-at.Wall, at.Wall-at.µs)
	switch {
	case at.Guarded && n.Hidden:
		return n, &Reply{Verdict: Unguarded, Clock: now}
	case at.Guarded && n.Replica:
		return n, &Reply{Verdict: Replica, Clock: now}
	case at.Window > 0 && apart > at.Window*1000:
		return n, &Reply{Verdict: ClockSkewed, Clock: at.µs}
	}

	return n, nil
}

// remember begins a new memory if the record has another history, and learns of a longer lease. The note says
// since when it is known, unless the first record brought it.
func (n Node) remember(at instant) Node {
	before := n.Guard.Longest
	longest := max(at.MaxTTL, before)

	if n.Guard.History == n.History {
		n.Guard.Longest = longest
	} else {
		n.Guard = Guard{History: n.History, Since: at.ms, Longest: longest}
	}

	if before > 0 && longest != before {
		n.Note = Note{longest, at.ms}
	}

	return n
}

func (at instant) quarantined() bool { return at.ms < at.quarantineUntil }

func (at instant) lagging() bool { return at.ms < at.lagUntil }

// margin is by how much two readings of the node's clock that both passed the window may differ in the wrong direction.
func (at instant) margin() int64 {
	return 2 * (at.Window + at.Window/10)
}

// reply returns a reply that tells the clock, and the longest lease if the client does not know it.
func (at instant) reply(v Verdict) Reply {
	return Reply{Verdict: v, Clock: at.ms * 1000, Longest: at.told}
}

func (at instant) inQuarantine() Reply {
	v := at.reply(Quarantined)
	v.Remaining = at.quarantineUntil - at.ms
	return v
}

// answer executes one request, and returns the notices to waiting calls.
func (n Node) answer(q Request, at instant) (Node, Reply, []Notice) {
	var v Reply
	switch q.Op {
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
	default:
		return n.answerOfKey(q, at)
	}
}

// answerOfKey is answer for a request about a key.
func (n Node) answerOfKey(q Request, at instant) (Node, Reply, []Notice) {
	k, known := n.Keys[q.Key]
	if !known {
		k.Before = -1
	}
	k.Ends = maps.Clone(k.Ends)
	if k.Ends == nil {
		k.Ends = map[string]End{}
	}

	var v Reply
	var notices []Notice
	switch q.Op {
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
	default:
		panic("nodemodel: an unknown operation: " + q.Op)
	}

	// A node that has granted something is not new any more.
	inUse := q.Op == OpAcquire || q.Op == OpRenew || q.Op == OpComplete
	if inUse && slices.Contains([]Verdict{Granted, Healed, Passed}, v.Verdict) {
		n.Guard.Claimant = ""
	}

	n.Keys[q.Key] = k
	return n, v, notices
}

// idle is how long Redis keeps an unused counter.
func (at instant) idle() int64 { return max(minIdle, at.MaxTTL) + jump }
