package httplock

import (
	"slices"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/sim"
)

// cause reports whether a refusal has a good reason.
func (q *request) cause(kind core.EventKind, got reply) bool {
	now := time.Now()
	switch kind {
	case EventBusy:
		if q.Is("wait") > 0 && now.Sub(q.whole()) < q.patience()-instant {
			if !q.anyRevoked() {
				return false
			}
			q.Count("excused: the key rests for longer")
		}
		return slices.ContainsFunc(q.Steps, func(s sim.Step) bool { return s.Do == "job" || s.Do == "complete" }) ||
			q.others(now, q.alike) > 0 || q.Is("lost") > 0 && now.Sub(q.whole()) >= q.ttl()/10 // an attempt of its own, whose reply was lost, may hold the key
	case EventDone:
		return slices.ContainsFunc(q.Steps, func(s sim.Step) bool { return s.Do == "complete" })
	case EventQueueFull:
		return q.others(now, func(o *request) bool { return q.alike(o) && o.replica == q.replica }) >= q.maxWaiters()
	case EventOverloaded:
		return q.Is("small") > 0 || q.others(now, func(o *request) bool { return o.replica == q.replica }) >= 16*q.maxWaiters()
	case EventDraining:
		d := q.when(&q.replica.drained)
		return !d.IsZero() && (now.Sub(d) <= 2*settled+instant+q.slow || now.Sub(q.whole()) <= 2*settled+instant+q.slow)
	case EventUnavailable:
		if q.Is("delay") > 0 && q.patience() < 100*time.Millisecond {
			q.Count("excused: no time to ask")
			return true
		}
		tooSoon := q.Is("wait") > 0 && now.Sub(q.whole()) < q.patience()-instant
		return q.inTrouble(now) && !tooSoon
	case EventGone:
		return !q.when(&q.left).IsZero() || !q.when(&q.replica.over).IsZero() || q.With["deadline"] > 0 && q.With["stall"] >= q.With["deadline"]
	case EventLost:
		// A client may get the refusal before the observer is notified of the loss. The lease knows of it.
		known := slices.ContainsFunc(q.held(), func(lease *core.Lease) bool { return lease.Lost() != nil })
		return (known || !q.when(&q.lost).IsZero()) && (q.struck || q.anyTrouble())
	case EventBodyBroken:
		return q.ms("read timeout") > 0 && q.stall() >= q.ms("read timeout") || !q.when(&q.left).IsZero()
	case EventKeyMissing:
		return slices.Contains(q.invalid(), kind) || q.gone() && !q.recordedBefore()
	case EventBodyTooLarge, EventIdempotencyKey:
		return slices.Contains(q.invalid(), kind)
	case EventAnswerTooLarge:
		return !q.streams() && q.run != nil && q.tooLarge()
	case EventIdempotencyInFlight:
		return q.others(now, func(o *request) bool { return o.identity == q.identity }) > 0
	}
	return q.causeOfRecord(kind, got)
}

// recordedBefore reports whether the request's identity had a record when the request was sent.
func (q *request) recordedBefore() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	id := q.identityOf(q)
	return id.valid(time.Now()) && id.since.Before(q.sent)
}

// alike reports whether another request locks the same key.
func (q *request) alike(o *request) bool {
	return q.resource != "" && o.resource == q.resource
}

// causeOfRecord reports whether a record is the reason for a refusal.
func (q *request) causeOfRecord(kind core.EventKind, got reply) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	id := q.identityOf(q)
	for _, c := range id.proposed {
		if id.valid(q.sent) && id.recorded != c {
			continue
		}
		large := c.omitted() || len(c.written) > 59<<10 // the header also counts
		same := c.content == q.content
		if kind == EventIdempotencyMismatch && !same || kind == EventIdempotencyOmitted && same && large && got.header.Get("Idempotent-Status") != "" {
			return true
		}
	}
	return false
}

// others counts the requests that are alike and may have been in the way.
func (q *request) others(now time.Time, like func(*request) bool) (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	grace := instant
	if q.anyTroubleLocked() {
		grace = q.ttl() + 2*time.Second
	}

	for _, o := range q.requests {
		if o.number == q.number || o.sent.IsZero() || !like(o) {
			continue
		}
		over := o.over
		if o.run != nil && !over.IsZero() { // http.TimeoutHandler does not wait for the handler
			over = o.run.ended
		}
		if over.IsZero() || over.Add(grace+settled).After(q.whole()) {
			n++
		}
	}
	return n
}

// anyRevoked reports whether a key may be in a cooldown because an operator has revoked a lease.
func (q *request) anyRevoked() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.ContainsFunc(q.requests, func(o *request) bool { return o.revoked })
}

// anyTrouble reports whether any fault may have affected a lease or a request to the nodes.
func (q *request) anyTrouble() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.anyTroubleLocked()
}

func (q *request) anyTroubleLocked() bool {
	return len(q.troubles) > 0 || q.Is("late")+q.Is("lost") > 0 ||
		slices.ContainsFunc(q.Steps, func(s sim.Step) bool { return s.Do != "request" }) ||
		slices.ContainsFunc(q.requests, func(o *request) bool { return o.struck || o.revoked })
}

// inTrouble reports whether a quorum of nodes may have been out of reach since the request came.
func (q *request) inTrouble(now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.Is("late")+q.Is("lost") > 0 || !q.replica.over.IsZero() {
		return true
	}

	most := 0
	// The number of troubles is greatest when one of them begins, or when the request is sent.
	for _, a := range q.troubles {
		at := a.from
		if at.Before(q.sent) {
			at = q.sent
		}
		bad := map[int]bool{}
		for _, b := range q.troubles {
			if !b.from.After(at) && !b.to.Before(at) {
				bad[b.node] = true
			}
		}
		if bad[-1] {
			return true
		}
		most = max(most, len(bad))
	}

	return most > (len(q.nodes)-1)/2
}
