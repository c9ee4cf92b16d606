package nodemodel

import "fmt"

// text returns the reply to a request as a script words it. Where scripts have several words for one answer, it is one of
// them.
func (v Reply) text(op Op) string {
	now := fmt.Sprint(v.Clock / 1000)
	if v.Longest > 0 {
		now += fmt.Sprint(":", v.Longest)
	}

	switch v.Verdict {
	case ClockSkewed:
		return fmt.Sprint("CLOCK ", v.Clock)
	case Replica:
		return "REPLICA " + now
	case Unguarded:
		return "NOGUARD " + now
	}

	switch op {
	case OpAcquire:
		return v.textOfAcquire(now)
	case OpRenew:
		return v.textOfRenew(now)
	case OpComplete:
		return v.textOfComplete(now)
	case OpTouch:
		if v.Verdict == Granted {
			return "OK " + now + " " + v.Memory
		}
		return v.textOfQuarantine(now)
	case OpRelease:
		return v.textOfRelease()
	case OpProvision:
		return v.textOfProvision(now)
	case OpLower:
		return v.textOfLower(now)
	case OpRevoke:
		if v.Verdict == Granted {
			return fmt.Sprint("ENDED ", v.Remaining)
		}
		return "GONE"
	}
	return map[Verdict]string{Granted: "OK", Gone: "NONE", Done: "OTHER"}[v.Verdict] // of OpForget
}

func (v Reply) textOfAcquire(now string) string {
	switch v.Verdict {
	case Granted:
		return fmt.Sprintf("OK %s %d %d %s%s", now, v.Token, v.Expiry, v.Memory, v.Record.text())
	case Done:
		return "DONE " + now + v.Record.text()
	case Quarantined:
		return v.textOfQuarantine(now)
	case Reserved:
		return fmt.Sprintf("RESERVED %s %d %d", now, v.Remaining, v.Place)
	case Held:
		text := fmt.Sprintf("HELD %s %d %s %d", now, v.Remaining, v.Owner, v.Place)
		if v.Carried != "" {
			text += " " + v.Carried
		}
		return text
	}
	return "LOST " + now
}

func (v Reply) textOfRenew(now string) string {
	switch v.Verdict {
	case Granted:
		return fmt.Sprintf("OK %s %d %s", now, v.Expiry, v.Memory)
	case Healed:
		return fmt.Sprintf("HEALED %s %d %s", now, v.Expiry, v.Memory)
	case Passed:
		return fmt.Sprintf("PASSED %s %d %s", now, v.Expiry, v.Memory)
	case Unconfirmed:
		return "WAIT " + now
	case Quarantined:
		return v.textOfQuarantine(now)
	}
	return v.textOfGone("LOST") + " " + now
}

func (v Reply) textOfComplete(now string) string {
	switch v.Verdict {
	case Granted:
		return "OK " + now
	case Done:
		d := v.Record
		return fmt.Sprintf("DONE %s %d %d %d", now, d.Ballot, d.Retention, d.Token)
	case Forgotten:
		return "FORGOT " + now
	case Unconfirmed:
		return "WAIT " + now
	}
	return v.textOfGone("LOST") + " " + now
}

func (v Reply) textOfRelease() string {
	switch v.Verdict {
	case Granted:
		return "OK"
	case TooLate:
		return "LATE"
	}
	return v.textOfGone("GONE")
}

func (v Reply) textOfProvision(now string) string {
	switch {
	case v.Verdict == Granted && v.Claim == "":
		return "OK " + v.Memory
	case v.Verdict == Granted:
		return "UNUSED " + v.Memory + " " + v.Claim
	case v.Claim != "":
		return "NEW " + v.Claim
	}
	return v.textOfQuarantine(now)
}

func (v Reply) textOfLower(now string) string {
	switch {
	case v.Verdict == Granted && v.Claim != "":
		return "MARKED " + now + " " + v.Claim
	case v.Verdict == Granted:
		return "OK " + now
	case v.Verdict == Quarantined:
		return v.textOfQuarantine(now)
	}
	return "GONE " + now
}

func (v Reply) textOfQuarantine(now string) string {
	return fmt.Sprintf("QUARANTINED %s %d%s", now, v.Remaining, v.Record.text())
}

// textOfGone returns the word for an attempt that is over: usually this one.
func (v Reply) textOfGone(usually string) string {
	switch {
	case v.Revoked:
		return "REVOKED"
	case v.Refused:
		return "REFUSED"
	}
	return usually
}

// text returns the record behind a space, or "" if there is none.
func (r *ShownRecord) text() string {
	if r == nil {
		return ""
	}
	return fmt.Sprintf(" %d %d %d %s", r.Ballot, r.Retention, r.Token, r.Result)
}
