package nodemodel

// doComplete stores a completion record and ends the attempt.
func (k Key) doComplete(q Request, at instant) (Key, Reply, []Notice) { //nolint:funlen,gocognit // the cases of the protocol, in its order
	a := q.Complete
	ballot, by := a.Ballot, a.Token
	kept := at.ms + a.Retention
	own := ballot == by && !a.Decided // the holder completes, and nobody for it

	owns := k.Owner == q.Attempt && k.Expiry > 0
	othersLive := k.Live(at.ms) && k.Owner != q.Attempt
	wasReleased := k.end(q.Attempt) == released
	wasRevoked := k.Ends[q.Attempt].How == revoked
	old, d := k, k.Record
	same := d != nil && d.Ballot == ballot
	stands := d != nil && (d.Kept > at.ms || same && a.Decided)

	// Every answer ends the attempt. A record that is here also ends a lease that is over, whosever it was: its
	// write-back must not count here any more.
	finish := func(how string, v Reply) (Key, Reply, []Notice) {
		if wasReleased {
			how = released
		}
		k = k.bury(q.Attempt, how, a.TombstoneLife, at.µs)

		endsLease := k.Owner == q.Attempt || v.Verdict == Granted && !othersLive
		if endsLease {
			k.Owner = ""
			k.Expiry = 0
			k.Before = -1
			k.Carried = ""
		}
		if k.Turn == q.Attempt {
			k = k.withoutTurn()
		}

		leaves := a.Leaving != ""
		changed := endsLease && old.Owner != "" || k.Turn != old.Turn
		var notices []Notice
		if k.Marked && (changed || leaves) {
			if leaves {
				k = k.leave(a.Leaving)
			}
			if owns {
				k.HoldEnded = at.ms
			}
			if k.Owner == "" {
				notices = k.wake()
			}
			k = k.remark()
		}
		if k.Record != old.Record {
			k = k.keep(at)
		}
		return k, v, notices
	}
	refuse := func(verdict Verdict) (Key, Reply, []Notice) {
		return finish(refused, at.reply(verdict))
	}

	switch {
	case stands && same:
		// A repeated request.
		if !a.Decided && kept > d.Kept {
			k.Record = &Record{d.Ballot, kept, d.Token, d.Result}
		}
		return finish(completed, at.reply(Granted))

	case stands && d.Ballot > ballot:
		settled := d.Token == by // another client has completed the record of the same lease
		if wasRevoked && !a.Decided && !settled {
			break
		}
		if settled && own && kept > d.Kept {
			k.Record = &Record{d.Ballot, kept, d.Token, d.Result} // its holder is promised the whole retention
		}

		how := refused
		if settled {
			how = completed
		}
		v := at.reply(Done)
		v.Record = k.shownRecord(at.ms)
		v.Record.Result = ""
		return finish(how, v)
	}

	if !a.Decided {
		switch {
		case wasRevoked:
			v := at.reply(Gone)
			v.Revoked = true
			return finish(revoked, v)
		case othersLive || k.Counter > ballot:
			return refuse(Gone)
		case at.lagging():
			return k, at.reply(Unconfirmed), nil
		case a.Memory != at.memory:
			return refuse(Forgotten)
		}
	}

	k.Record = &Record{ballot, kept, by, a.Result}
	k.Counter = max(k.Counter, ballot)
	return finish(completed, at.reply(Granted))
}
