package nodemodel

// doAcquire grants the key if no attempt has it and no completion is recorded.
func (k Key) doAcquire(q Request, at instant) (Key, Reply, []Notice) {
	if at.quarantined() {
		v := at.inQuarantine()
		v.Record = k.shownRecord(at.ms)
		return k, v, nil
	}

	// A repeated request. A lease that a renewal brought, or that is over, is not a grant.
	if k.Owner == q.Attempt {
		if k.Before >= 0 && k.Live(at.ms) {
			return k, k.granted(at), nil
		}
		return k, at.reply(Gone), nil
	}

	if k.Live(at.ms) {
		v := at.reply(Held)
		v.Remaining = k.Expiry - at.ms + 1
		v.Owner = k.Owner
		v.Carried = k.Carried
		k, v.Place = k.join(q, at)
		return k, v, nil
	}

	if d := k.shownRecord(at.ms); d != nil && !q.Acquire.Settle {
		v := at.reply(Done)
		v.Record = d
		return k, v, nil
	}

	if k.Turn != "" && k.Turn != q.Attempt && at.ms < k.TurnUntil {
		v := at.reply(Held)
		v.Remaining = k.TurnUntil - at.ms
		v.Owner = k.Turn
		return k, v, nil
	}

	k, before, refusal := k.awaitTurn(q, at)
	if refusal != nil {
		return k, *refusal, nil
	}

	if _, over := k.Ends[q.Attempt]; over {
		return k, at.reply(Gone), nil
	}

	return k.grant(q, at, before)
}

// awaitTurn refuses while it is the turn of calls that wait, and returns how many come before the attempt. Each of the
// first three has 50 ms, from when the last hold ended. A longer rest does not count: the clock was set back.
func (k Key) awaitTurn(q Request, at instant) (_ Key, before int, refusal *Reply) {
	if !k.Marked {
		return k, 0, nil
	}

	k, place := k.join(q, at)
	before = len(k.Queue)
	if place > 0 {
		before = place - 1
	}

	rest := k.LastHoldEnded() + Turn*int64(min(before, 3)) - at.ms
	if before > 0 && 0 < rest && rest <= 3*Turn {
		v := at.reply(Reserved)
		v.Remaining = rest
		v.Place = place
		return k, before, &v
	}

	return k, before, nil
}

// grant grants the key to an attempt that stands behind before calls in the queue.
func (k Key) grant(q Request, at instant, before int) (Key, Reply, []Notice) {
	var notices []Notice
	if k.Marked {
		// If turns are counted, those before the attempt have had theirs. They are told, in case they are alive.
		k.HoldEnded = k.LastHoldEnded()
		if k.HoldEnded > 0 {
			for _, w := range k.Queue[:before] {
				notices = append(notices, w.notice(2))
			}
			k.Queue = k.Queue[before:]
		}
		if w := q.Acquire.Wait; w.Member != "" {
			k = k.leave(w.Member)
		}
	}

	// The token is near this clock, but always exceeds the counter.
	near := at.MaxTTL * 1000 / 4
	proposed := min(max(q.Acquire.Proposed, at.µs-near), at.µs+near)

	k.Before = k.Counter
	k.Counter = max(k.Counter+1, proposed)
	k.Owner = q.Attempt
	k.Expiry = at.ms + q.Lease
	k.Carried = q.Acquire.Carried
	k = k.withoutTurn()
	k = k.keep(at)
	return k, k.granted(at), notices
}

// granted returns the reply to the owner. It shows a record that is beside the lease.
func (k Key) granted(at instant) Reply {
	v := at.reply(Granted)
	v.Token = k.Counter
	v.Expiry = k.Expiry
	v.Memory = at.memory
	v.Record = k.shownRecord(at.ms)
	return v
}
