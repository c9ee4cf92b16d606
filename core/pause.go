package core

import (
	"context"
	"time"

	"github.com/lockkit/lockkit/core/internal/queue"
	"github.com/lockkit/lockkit/core/internal/quorum"
)

// maxTurns bounds how often a call asks again at once: turns last for 150 ms at most.
const maxTurns = 50

// sleep waits before the next attempt.
func (a *acquisition) sleep(wait context.Context) bool {
	p := a.p
	if a.turns++; a.last.outcome != quorum.SharedTurn {
		a.turns = 0
	}
	var told <-chan struct{}
	if a.join(); a.wait != nil {
		told = a.wait.Try
	}
	d := a.between(p.retryMin, p.retryMax)
	switch a.last.outcome {
	case quorum.Split, quorum.Unsettled:
		d = a.between(0, p.retryMin)
	case quorum.Quarantined:
		// Not for all of it: another node may come back before.
		d = min(a.last.retry, max(p.retryMax, p.ttl/10)) + a.between(0, p.retryMin)
	case quorum.SharedTurn:
		if d = a.between(0, queue.TellWithin); a.turns > maxTurns { // nobody's
			d = a.between(0, p.retryMin)
		}
	case quorum.Held:
		if a.last.retry > 0 {
			d = min(d, a.last.retry+a.between(0, p.retryMin))
		}
	case quorum.Queued:
		if d = a.between(queue.FallbackMin, queue.FallbackMax); a.last.retry > 0 {
			d = min(d, a.last.retry)
		}
	default: // the nodes are asked again
	}
	return a.pause(wait, d, told)
}

// between is a random time.
func (a *acquisition) between(least, most time.Duration) time.Duration {
	return least + time.Duration(a.e.jitter(int64(most-least)+1))
}

// pause waits for d, or until the call is told to try; it reports false where the call is over.
func (a *acquisition) pause(wait context.Context, d time.Duration, told <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-told:
		return true
	case <-wait.Done():
	case <-a.e.Closing:
	}
	return false
}
