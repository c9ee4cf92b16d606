package nodemodel

// doRevoke ends an attempt of another process. The key stays taken until its lease has run out.
func (k Key) doRevoke(q Request, at instant) (Key, Reply, []Notice) {
	how := revoked
	if k.end(q.Attempt) == released {
		how = released
	}
	owns := k.Owner == q.Attempt && k.Expiry > 0

	delete(k.Ends, q.Attempt)
	k = k.bury(q.Attempt, how, 2*slack, at.µs)
	if k.Turn == q.Attempt {
		k = k.withoutTurn()
	}
	if !owns {
		return k, Reply{Verdict: Gone}, nil
	}

	v := Reply{Verdict: Granted, Remaining: max(0, k.Expiry-at.ms+1)}
	k.Owner = cooldownPrefix
	k.Before = -1
	k.Carried = ""
	var notices []Notice
	if k.Marked {
		k.HoldEnded = min(at.ms, k.Expiry)
		notices = k.wake()
		k = k.remark()
	}

	return k.keep(at), v, notices
}

// doForget drops a completion record, even if its retention has ended by the node's clock.
func (k Key) doForget(q Request, at instant) (Key, Reply) {
	switch {
	case k.Record != nil && k.Record.Token == q.Token:
		k.Record = nil
		return k, Reply{Verdict: Granted}
	case k.shownRecord(at.ms) != nil:
		return k, Reply{Verdict: Done}
	}

	return k, Reply{Verdict: Gone}
}

// provision claims a node that has no record, and declares it new if the claim that the caller found still stands.
func (n Node) provision(q Request, at instant) (Node, Reply) {
	n, refusal := n.checkServer(at)
	if refusal != nil {
		return n, *refusal
	}

	if n.Guard == (Guard{}) {
		n.Guard = Guard{History: n.History, Since: at.ms, Longest: at.MaxTTL, Claimant: q.Claim}
		return n, Reply{Verdict: Quarantined, Claim: q.Claim}
	}

	waits := max(at.MaxTTL, n.Guard.Longest) + at.Lag
	if n.Guard.History != n.History {
		v := at.reply(Quarantined)
		v.Remaining = waits
		return n, v
	}

	claimed := n.Guard.Claimant != ""
	rest := n.Guard.Since + waits - at.ms
	votes := n.Guard.Declared || rest <= 0
	switch {
	case !votes && !claimed:
		v := at.reply(Quarantined)
		v.Remaining = rest
		return n, v
	case !votes && n.Guard.Claimant != q.Found:
		return n, Reply{Verdict: Quarantined, Claim: n.Guard.Claimant}
	case !votes:
		n.Guard.Declared = true
		n.Guard.Longest = max(at.MaxTTL, n.Guard.Longest)
		n.Guard = n.Guard.withoutMark()
	}

	return n, Reply{Verdict: Granted, Memory: n.Guard.Memory(), Claim: n.Guard.Claimant}
}

// lower marks the node, checks the mark, lowers the longest lease in use, or removes a mark.
func (n Node) lower(q Request, at instant) (Node, Reply) {
	n, refusal := n.checkServer(at)
	if refusal != nil {
		return n, *refusal
	}

	silent := at.reply(Granted)
	if n.Guard.Longest > at.MaxTTL {
		at.told = n.Guard.Longest
	}
	isCurrent := n.Guard.History == n.History
	stands := isCurrent && n.Guard.MarkTo > 0 && n.Guard.Mark() == q.Mark

	switch q.Step {
	case "mark":
		return n.markFor(q, at)

	case "unmark":
		if isCurrent {
			n.Guard = n.Guard.withoutMark()
		}
		return n, at.reply(Granted)

	case "lower":
		if stands {
			if q.To != n.Guard.Longest {
				n.Note = Note{q.To, at.ms}
			}
			n.Guard.Longest = q.To
			n.Guard = n.Guard.withoutMark()
		}
	}

	if !stands {
		return n, at.reply(Gone)
	}

	return n, silent
}

// markFor marks the node before the longest lease in use is lowered, unless it is not greater, or may have forgotten a
// lease.
func (n Node) markFor(q Request, at instant) (Node, Reply) {
	if max(n.Guard.Longest, at.MaxTTL) <= q.To {
		return n, at.reply(Granted)
	}

	n = n.remember(at)
	n.Guard = n.Guard.withoutMark()
	at.quarantineUntil = n.Guard.Since + n.Guard.Longest + at.Lag
	if !n.Guard.Declared && at.quarantined() {
		return n, at.inQuarantine()
	}

	n.Guard.MarkTo = q.To
	n.Guard.MarkedAt = at.µs
	v := at.reply(Granted)
	v.Claim = n.Guard.Mark()
	return n, v
}
