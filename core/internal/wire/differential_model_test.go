package wire

import (
	"slices"
	"testing"
	"time"

	"github.com/lockkit/lockkit/internal/nodemodel"
)

// Commands as the model has them, and its replies as a client has them.

// model returns the command for the model.
func (c commandOfTrial) model() nodemodel.Command {
	m := nodemodel.Command{Guarded: c.guarded, MaxTTL: c.maxTTL, Window: c.window, Lag: c.lag, Wall: c.wall}
	for _, q := range c.requests {
		m.Requests = append(m.Requests, q.model())
	}
	return m
}

func (q requestOfTrial) model() nodemodel.Request {
	m := nodemodel.Request{
		Op: nodemodel.Op(q.op.name()), Key: q.key, Attempt: q.attempt, Lease: q.lease,
		Claim: q.claim, Found: q.found, Step: q.step, Mark: q.mark, To: q.to, Token: int64(q.token),
	}

	switch q.op {
	case OpAcquire:
		a := q.acquire
		m.Acquire = nodemodel.Acquire{Settle: a.Settle, Proposed: a.ProposedToken.µs, Carried: a.Carried}
		if q.process != "" {
			w := a.Waiter
			if w.Name == "" {
				w = Waiter{q.attempt, a.ProposedToken} // the call began with the attempt
			}
			m.Acquire.Wait = nodemodel.Wait{Member: w.member(a.Channel), Ticket: w.Ticket.µs}
		}
	case OpRenew:
		a := q.renew
		m.Renew = nodemodel.Renew{
			Token: int64(a.Token), Confirmed: a.Confirmed.Millis(), Granted: int64(a.Granted), Memory: a.Memory,
			Turn: a.Turn.ms, Carried: a.Carried,
		}
	case OpRelease:
		a := q.release
		m.Release = nodemodel.Release{
			TombstoneLife: a.TombstoneLife.ms, Arrived: a.Arrived,
			Cooldown:  (a.Cooldown + time.Millisecond - 1).Milliseconds(),
			DropBelow: int64(a.DropBelow), Repeated: a.Repeated, RestoreCounter: a.RestoreCounter,
			Wait: nodemodel.Wait{Member: a.Waiter.member(a.Channel), Ticket: a.Waiter.Ticket.µs},
		}
	case OpComplete:
		a := q.complete
		m.Complete = nodemodel.Complete{
			Ballot: int64(a.Ballot), Memory: a.Memory, Retention: a.Retention.Milliseconds(), Token: int64(a.Token),
			Result: string(a.Result), TombstoneLife: a.TombstoneLife.ms, Decided: a.Decided,
			Leaving: a.Leaving.member(a.Channel),
		}
	}
	return m
}

// ofModel returns a reply of the model as a client decodes it.
func ofModel(m nodemodel.Reply) Reply {
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	v := Reply{
		Verdict: Verdict(slices.Index(verdictNames[:], string(m.Verdict))),
		Clock:   NodeTime(m.Clock), Longest: ms(m.Longest), Token: uint64(m.Token), Expiry: nodeMillis(m.Expiry),
		Remaining: ms(m.Remaining), Memory: m.Memory, Place: m.Place, Owner: m.Owner, Hint: ParseCarried(m.Carried).Hint,
		Claim: m.Claim, Revoked: m.Revoked, Refused: m.Refused,
	}
	if d := m.Record; d != nil {
		v.Record = &Record{
			Ballot: uint64(d.Ballot), Retention: ms(d.Retention), Token: uint64(d.Token), Result: append([]byte(nil), d.Result...),
		}
	}
	return v
}

// The model stands in for every script, except the one that tries the rights of a user.
func TestModelKnowsScripts(t *testing.T) {
	for _, s := range []*script{
		runScript, acquireScript, guardedScript, releaseScript, revokeScript, forgetScript, provisionScript, lowerScript,
	} {
		if nodemodel.Find(s.source) == nil {
			t.Errorf("the model does not know the script that begins with\n%.200s", s.source)
		}
	}
	if nodemodel.Find(probeScript.source) != nil {
		t.Error("the model claims to know the probe")
	}
}
