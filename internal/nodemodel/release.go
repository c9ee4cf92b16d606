package nodemodel

// doRelease ends an attempt.
func (k Key) doRelease(q Request, at instant) (Key, Reply, []Notice) { //nolint:funlen,gocognit // the cases of the protocol, in its order
	a, old := q.Release, k
	how := k.end(q.Attempt)
	owns := k.Owner == q.Attempt && k.Expiry > 0
	rests := k.Owner == cooldownPrefix+q.Attempt
	needsTombstone := !a.Arrived || k.Owner != q.Attempt

	if k.Record != nil && k.Record.Ballot < a.DropBelow {
		k.Record = nil
	}
	if k.Turn == q.Attempt {
		k = k.withoutTurn()
	}

	v := Reply{Verdict: Granted}
	switch {
	case owns:
		if a.RestoreCounter && k.Before >= 0 {
			k.Counter = k.Before
			if k.Record != nil {
				k.Counter = max(k.Counter, k.Record.Ballot)
			}
		}
		k.Before = -1
		k.Carried = ""

		// A lease that is over cannot keep the key taken: others may have had it on other nodes.
		switch {
		case a.Cooldown > 0 && k.Live(at.ms):
			k.Owner = cooldownPrefix + q.Attempt
			k.Expiry = at.ms + a.Cooldown
		case a.Cooldown > 0:
			v.Verdict = TooLate
			fallthrough
		default:
			k.Expiry = 0
			if needsTombstone {
				k.Owner = "" // the tombstone says that the attempt is over
			}
		}
		how = released

	case rests:
		// The first release is repeated.

	case how == released || how == completed:
		if a.Cooldown > 0 {
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
		k = k.bury(q.Attempt, how, a.TombstoneLife, at.µs)
	}

	var notices []Notice
	if k.Marked {
		k, notices = k.waitersAfterRelease(q, owns, old, at)
	}

	switch {
	case owns && k.isUnused():
		// Of a key that was never used nothing is left, not even the name of the attempt.
		k = k.withoutResource()
	case owns && k.Expiry > 0:
		k = k.keep(at)
	case owns && k.Record == nil:
		k.Dies = at.µs + at.idle()*1000
	}

	return k, v, notices
}

// isUnused reports whether the node need not remember anything of the key.
func (k Key) isUnused() bool {
	return k.Expiry == 0 && k.Counter == 0 && k.Turn == "" && k.Record == nil && !k.Marked
}

// waitersAfterRelease returns the key without the call of the release, or with the place that its grant took from it.
// The first two are told if a hold has ended, or if the call leaves a free key. The release of an attempt that no caller
// got begins no turns, or each failed attempt would begin them anew.
func (k Key) waitersAfterRelease(q Request, owned bool, old Key, at instant) (Key, []Notice) {
	a := q.Release
	waits := a.Wait.Member != ""
	leaves := waits && a.Wait.Ticket == 0

	if leaves {
		k = k.leave(a.Wait.Member)
	} else if waits && owned {
		k = k.add(a.Wait)
		k.QueueDies = at.µs + Rejoined*1000
	}

	endsAHold := owned && a.DropBelow > 0
	if endsAHold {
		k.HoldEnded = min(at.ms, old.Expiry)
	}

	free := k.Owner == "" || k.Expiry == 0
	k = k.remark()
	if endsAHold || leaves && free {
		return k, k.wake()
	}

	return k, nil
}
