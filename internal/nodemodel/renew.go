package nodemodel

// doRenew extends the attempt's lease, or brings it back. A write-back raises the counter of a grant.
func (k Key) doRenew(q Request, at instant) (Key, Reply) { //nolint:funlen,gocognit // the cases of the protocol, in its order
	a := q.Renew
	token := a.Token
	isWriteBack := a.Granted > 0
	sure := at.ms+at.margin() < a.Confirmed // the lease cannot have run out here yet
	owns := k.Owner == q.Attempt && k.Expiry > 0

	// In quarantine, the node's memory may come from a snapshot.
	if at.quarantined() && !sure {
		return k, at.inQuarantine()
	}

	if at.lagging() {
		return k, at.reply(Unconfirmed)
	}

	gone := at.reply(Gone)
	if k.Owner == q.Attempt && !owns {
		return k, gone // a release ended it
	}
	if !owns {
		if e, over := k.Ends[q.Attempt]; over {
			gone.Revoked = e.How == revoked
			return k, gone
		}

		// Another's live lease is believed outside of quarantine, and the next turn is the attempt's.
		if k.Live(at.ms) && !at.quarantined() {
			if !isWriteBack {
				k.Turn = q.Attempt
				k.TurnUntil = at.ms + a.Turn
			}
			return k, gone
		}
	}

	if isWriteBack {
		isThatGrant := owns && k.Counter == a.Granted && a.Memory == at.memory
		if !isThatGrant {
			return k, gone
		}
	}

	v := at.reply(Granted)
	if at.quarantined() || !owns && sure {
		v.Verdict = Healed
	}
	if k.Counter > token {
		v.Verdict = Passed
	}

	if !owns {
		k.Owner = q.Attempt
		k.Before = -1
		k.Carried = a.Carried
		k = k.withoutTurn()
	}
	k.Expiry = max(k.Expiry, at.ms+q.Lease)
	k.Counter = max(k.Counter, token)
	k = k.keep(at)

	v.Expiry = k.Expiry
	v.Memory = at.memory
	return k, v
}
