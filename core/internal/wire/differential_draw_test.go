package wire

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockkit/lockkit/internal/nodemodel"
)

// What the events of a trial are: drawn so that requests mostly fit what the node remembers, and miss it by little if
// they do not.

var trialKeys = []string{"k", "k", "j"}

func (t *trial) rarely(n int) bool { return t.r.IntN(n) == 0 }

// draw returns the next event.
func (t *trial) draw() event {
	e := event{µs: t.nextTime(), what: "call"}
	switch n := t.r.IntN(100); {
	case n < 1:
		e.what = "flush"
	case n < 2:
		e.what = "restart"
	case n < 4:
		e.what = "promote"
	case n < 6:
		e.what = "snapshot"
	case n < 7:
		e.what = "restore"
	}
	if e.what != "call" {
		return e
	}

	resend := len(t.events) > 0 && t.rarely(12)
	if resend {
		// A request that arrives again: in the same command, or later in another.
		old := one(t.r, t.events...)
		if old.what == "call" {
			e.command = old.command
			if t.rarely(2) {
				e.command.wall, e.command.assumed = e.µs, t.model.Guard.Memory()
			}
			return e
		}
	}

	e.command = t.drawCommand(e.µs)
	if t.guarded && t.rarely(40) && !slices.ContainsFunc(e.command.requests, writesWithoutTheGuard) {
		e.replica = t.rarely(2)
		e.hidden = !e.replica
	}
	return e
}

func writesWithoutTheGuard(q requestOfTrial) bool {
	return q.op == OpRelease || q.op == OpRevoke || q.op == OpForget || q.op == OpProvision || q.op == OpLower
}

// nextTime returns when the next event happens, µs.
func (t *trial) nextTime() int64 {
	now := t.µs

	// A turn of those that wait, of a key that is free.
	for _, k := range t.model.Keys {
		ended := k.LastHoldEnded() * 1000
		if k.Marked && !k.Live(now/1000) && now < ended+3*nodemodel.Turn*1000 && !t.rarely(4) {
			return max(now, ended+one(t.r, int64(0), 49_000, 50_000, 99_000, 100_000, 149_000, 150_000))
		}
	}

	// The end of a quarantine, before which little can happen.
	g := t.model.Guard
	end := (g.Since + g.Longest + t.lag) * 1000
	if g.Since > 0 && !g.Declared && now < end && t.rarely(3) {
		return end + one(t.r, int64(-1000), 0, 1000)
	}

	switch n := t.r.IntN(20); {
	case n < 5:
		return now
	case n < 7:
		return now + t.r.Int64N(5000)
	case n < 10:
		return now + t.r.Int64N(160_000)
	case n < 11:
		return now + t.r.Int64N(5_000_000_000)
	case n < 12 && t.rarely(2):
		// A clock that steps back.
		return now - one(t.r, t.r.Int64N(200_000), t.r.Int64N(3_000_000), t.r.Int64N(4_000_000_000))
	}

	// To the millisecond of something that ends.
	var ahead []int64
	for _, ms := range t.ends() {
		for _, off := range []int64{-1, 0, 1} {
			if µs := (ms + off) * 1000; µs > now {
				ahead = append(ahead, µs)
			}
		}
	}
	if len(ahead) == 0 {
		return now + t.r.Int64N(2_000_000)
	}
	slices.Sort(ahead)
	if !t.rarely(4) {
		ahead = ahead[:min(len(ahead), 6)]
	}
	return one(t.r, ahead...) + one(t.r, 0, t.r.Int64N(1000))
}

// ends returns what may end next, ms.
func (t *trial) ends() (all []int64) {
	g := t.model.Guard
	if g != (nodemodel.Guard{}) && !g.Declared {
		end := g.Since + g.Longest + t.lag
		all = append(all, end, end, end, g.Since+t.lag, g.Since+t.maxTTLs[0]+t.lag)
	}
	if g.MarkTo > 0 {
		all = append(all, (g.MarkedAt+nodemodel.MarkLife)/1000)
	}
	for _, k := range t.model.Keys {
		all = append(all, k.Expiry, k.TurnUntil, k.LastHoldEnded(), k.LastHoldEnded()+50, k.LastHoldEnded()+100, k.LastHoldEnded()+150)
		if k.Record != nil {
			all = append(all, k.Record.Kept)
		}
		for _, e := range k.Ends {
			all = append(all, e.Dies/1000)
		}
		all = append(all, k.QueueDies/1000)
		if t.rarely(4) {
			all = append(all, k.Dies/1000)
		}
	}
	return all
}

func (t *trial) drawCommand(µs int64) commandOfTrial {
	c := commandOfTrial{
		guarded: t.guarded, maxTTL: one(t.r, t.maxTTLs...), window: t.window, lag: t.lag,
		wall:    µs - one(t.r, int64(0), 0, 0, 300, 300, 300, -400, t.r.Int64N(100_000)),
		assumed: t.model.Guard.Memory(),
	}
	if t.rarely(25) {
		c.wall = µs + one(t.r, int64(500_000), 500_001, -500_000, -500_001, 60_000_000)
	}
	if t.rarely(10) {
		c.assumed = t.anyMemory()
	}

	if t.rarely(12) {
		c.requests = []requestOfTrial{t.drawOperators(c)}
		return c
	}
	many := 1
	if t.rarely(3) {
		many = 2 + t.r.IntN(3)
	}
	for range many {
		c.requests = append(c.requests, t.drawRequest(c, µs))
	}
	return c
}

// anyMemory returns the name of a memory that may be another than the node's.
func (t *trial) anyMemory() string {
	g := t.model.Guard
	g.Since += one(t.r, int64(0), 1)
	g.Declared = t.rarely(2)
	g.History = fmt.Sprintf("h%d", t.r.IntN(len(t.histories)))
	return one(t.r, NoMemory, g.Memory(), t.model.Guard.Memory())
}

// drawOperators returns a request of an operator, which travels alone.
func (t *trial) drawOperators(c commandOfTrial) requestOfTrial {
	key := one(t.r, trialKeys...)
	k := t.model.Keys[key]
	switch n := t.r.IntN(10); {
	case n < 4:
		attempt := t.attempt(key)
		if t.rarely(2) && t.attempts[k.Owner] != nil {
			attempt = k.Owner
		}
		return requestOfTrial{op: OpRevoke, key: key, attempt: attempt}
	case n < 6:
		token := uint64(t.r.IntN(3))
		if k.Record != nil {
			token = uint64(k.Record.Token) + one(t.r, uint64(0), 0, 1)
		}
		return requestOfTrial{op: OpForget, key: key, token: token}
	case n < 8 && c.guarded:
		found := one(t.r, NoMemory, t.model.Guard.Claimant, "another")
		if found == "" {
			found = NoMemory
		}
		return requestOfTrial{op: OpProvision, claim: fmt.Sprint("claim", len(t.events)), found: found}
	case c.guarded:
		q := requestOfTrial{op: OpLower, step: one(t.r, "mark", "mark", "check", "lower", "lower", "unmark")}
		q.to = one(t.r, 1_800_000, 3_600_000, t.model.Guard.MarkTo)
		if q.to == 0 {
			q.to = 3_600_000
		}
		if q.step == "check" || q.step == "lower" {
			q.mark = t.model.Guard.Mark()
			if t.rarely(5) {
				q.mark += "1"
			}
		}
		return q
	}
	return requestOfTrial{op: OpTouch}
}

// attempt returns the name of an attempt to get a key: a new one, or one of the latest.
func (t *trial) attempt(key string) string {
	var old []string
	for _, name := range t.names {
		if t.attempts[name].key == key {
			old = append(old, name)
		}
	}
	if len(old) == 0 || t.rarely(3) {
		return t.newAttempt(key)
	}
	return one(t.r, old[max(0, len(old)-4):]...)
}

func (t *trial) newAttempt(key string) string {
	name := fmt.Sprint("a", len(t.names)+1)
	t.names = append(t.names, name)
	t.attempts[name] = &attemptOfTrial{key: key}
	return name
}

func (t *trial) drawRequest(c commandOfTrial, µs int64) requestOfTrial {
	key := one(t.r, trialKeys...)
	k := t.model.Keys[key]
	q := requestOfTrial{key: key, attempt: t.attempt(key), lease: one(t.r, int64(3_600_000), 3_600_000, 600_000, c.maxTTL)}
	owner := strings.TrimPrefix(k.Owner, CooldownPrefix)
	if t.attempts[owner] != nil && t.rarely(2) {
		q.attempt = owner
	}

	switch n := t.r.IntN(20); {
	case n < 8:
		return t.drawAcquire(q, k, µs)
	case n < 12:
		return t.drawRenew(q, k, µs)
	case n < 16:
		return t.drawRelease(q, k)
	case n < 19:
		return t.drawComplete(q, k)
	}
	return requestOfTrial{op: OpTouch}
}

func (t *trial) drawAcquire(q requestOfTrial, k nodemodel.Key, µs int64) requestOfTrial {
	q.op = OpAcquire
	if t.rarely(2) {
		q.attempt = t.newAttempt(q.key)
	}

	near := one(t.r, t.maxTTLs...) * 250
	proposed := µs - one(t.r, int64(300), 300, 300, 300, 0, near, near+1, -near, -near-1, µs-k.Counter, µs-k.Counter-1)
	q.acquire = Acquire{Settle: t.rarely(8), ProposedToken: Stamp{max(1, proposed)}}
	if t.rarely(5) {
		q.acquire.Carried = one(t.r, Holder{Hint: "hint"}, Holder{Note: "note", Name: q.attempt, Hint: "other"}).Carried()
	}

	if t.rarely(3) || k.Marked && t.rarely(2) {
		q.process = one(t.r, "one", "two")
		ofKey := slices.DeleteFunc(slices.Clone(t.waiters), func(w waiterOfTrial) bool { return w.key != q.key })
		if len(ofKey) > 0 && t.rarely(2) {
			// Another attempt of a call that waits.
			w := one(t.r, ofKey[max(0, len(ofKey)-4):]...)
			q.process, q.acquire.Waiter = w.process, w.waiter
		} else {
			t.waiters = append(t.waiters, waiterOfTrial{q.key, q.process, Waiter{q.attempt, q.acquire.ProposedToken}})
		}
		q.acquire.Channel = trialSpace.Channel(0, q.process)
	}
	return q
}

var trialSpace = NewKeyspace("p", 1, true)

func (t *trial) drawRenew(q requestOfTrial, k nodemodel.Key, µs int64) requestOfTrial {
	q.op = OpRenew
	a := t.attempts[q.attempt]
	now, margin := µs/1000, 2*(t.window+t.window/10)

	token := uint64(max(1, one(t.r, a.token, a.token, a.token, k.Counter, k.Counter+1, k.Counter-1)))
	confirmed := one(t.r, a.expiry, a.expiry, a.expiry, 0, k.Expiry, now+margin, now+margin+1, now+600_000)
	q.renew = Renew{Token: token, Confirmed: nodeMillis(confirmed), Turn: Millis{one(t.r, int64(0), 1000, 100)}}
	if t.rarely(4) {
		q.renew.Carried = Holder{Note: "mine"}.Carried()
	}
	if t.rarely(4) {
		q.renew.Granted = uint64(max(1, one(t.r, a.token, a.token, k.Counter, k.Counter-1)))
		q.renew.Token = q.renew.Granted + one(t.r, uint64(1), 5, 1_000_000)
		q.renew.Memory = one(t.r, a.memory, a.memory, t.anyMemory())
		if t.rarely(2) {
			q.renew.Confirmed = 0
		}
	}
	return q
}

func (t *trial) drawRelease(q requestOfTrial, k nodemodel.Key) requestOfTrial {
	q.op = OpRelease
	q.release = Release{TombstoneLife: Millis{one(t.r, int64(3_600_000), 7_200_000)}, Arrived: t.rarely(2), Repeated: t.rarely(4)}
	switch t.r.IntN(8) {
	case 0, 1:
		q.release.RestoreCounter = true
	case 2, 3, 4, 5:
		q.release.DropBelow = uint64(max(0, one(t.r, k.Counter, k.Counter, t.attempts[q.attempt].token)))
		if k.Record != nil && t.rarely(2) {
			q.release.DropBelow = uint64(k.Record.Ballot) + one(t.r, uint64(0), 1)
		}
	}
	if t.rarely(5) {
		q.release.Cooldown = one(t.r, 300*time.Microsecond, time.Second, time.Hour)
	}

	if t.rarely(3) {
		w := waiterOfTrial{q.key, one(t.r, "one", "two"), Waiter{Name: q.attempt}}
		ofKey := slices.DeleteFunc(slices.Clone(t.waiters), func(w waiterOfTrial) bool { return w.key != q.key })
		if len(ofKey) > 0 {
			w = one(t.r, ofKey...)
		}
		q.release.Channel = trialSpace.Channel(0, w.process)
		q.release.Waiter = w.waiter
		if t.rarely(2) {
			q.release.Waiter = w.waiter.Leaving()
		}
	}
	return q
}

func (t *trial) drawComplete(q requestOfTrial, k nodemodel.Key) requestOfTrial {
	q.op = OpComplete
	a := t.attempts[q.attempt]
	ballot := one(t.r, a.token, a.token, k.Counter, k.Counter-1)
	if k.Record != nil {
		d := k.Record
		ballot = one(t.r, ballot, d.Ballot, d.Ballot+1, d.Ballot-1, d.Ballot-1, d.Token, d.Token)
	}
	ballot = max(1, ballot)

	token := ballot
	if k.Record != nil && t.rarely(3) {
		token = k.Record.Token
	} else if t.rarely(4) {
		token = max(1, ballot-1)
	}
	q.complete = Complete{
		Ballot: uint64(ballot), Token: uint64(token), Decided: t.rarely(4),
		Memory:        one(t.r, a.memory, t.model.Guard.Memory(), t.model.Guard.Memory(), t.anyMemory()),
		Retention:     one(t.r, time.Second, time.Hour, 24*time.Hour),
		Result:        []byte(one(t.r, "", "done", " other \x00")),
		TombstoneLife: Millis{one(t.r, int64(3_600_000), 7_200_000)},
	}
	if !t.guarded {
		q.complete.Memory = NoMemory
	}
	if len(t.waiters) > 0 && t.rarely(6) {
		w := one(t.r, t.waiters...)
		q.complete.Channel = trialSpace.Channel(0, w.process)
		q.complete.Leaving = w.waiter.Leaving()
	}
	return q
}

// learn notes what a client knows by a reply.
func (t *trial) learn(q requestOfTrial, v Reply) {
	a := t.attempts[q.attempt]
	if a == nil {
		return
	}
	if v.Token > 0 {
		a.token = int64(v.Token)
	}
	if v.Expiry > 0 {
		a.expiry = v.Expiry.Millis()
		a.memory = v.Memory
	}
}
