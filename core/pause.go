package core

import (
	"context"
	"time"
)

// maxTurns bounds how often a call asks again at once: turns last for 150 ms at most.
const maxTurns = 50

// sleep waits before the next attempt.
func (a *acquisition) sleep(wait context.Context) bool {
	p := a.p
	if a.turns++; a.last.pause != pauseTurn {
		a.turns = 0
	}
	var told <-chan bool
	if a.join(); a.wait != nil {
		told = a.wait.try
	}
	d := a.between(p.retryMin, p.retryMax)
	switch a.last.pause {
	case pauseSplit:
		d = a.between(0, p.retryMin)
	case pauseQuarantined:
		// Not for all of it: another node may come back before.
		d = min(a.last.retry, max(p.retryMax, p.ttl/10)) + a.between(0, p.retryMin)
	case pauseTurn:
		if d = a.between(0, tellWithin); a.turns > maxTurns { // nobody's
			d = a.between(0, p.retryMin)
		}
	case pauseHeld:
		if a.last.retry > 0 {
			d = min(d, a.last.retry+a.between(0, p.retryMin))
		}
	case pauseQueued:
		if d = a.between(fallbackMin, fallbackMax); a.last.retry > 0 {
			d = min(d, a.last.retry)
		}
	case pauseOutOfReach:
	}
	return a.pause(wait, d, told)
}

// between is a random time.
func (a *acquisition) between(least, most time.Duration) time.Duration {
	return least + time.Duration(a.e.jitter(int64(most-least)+1))
}

// pause waits for d, or until the call is told to try; it reports false where the call is over.
func (a *acquisition) pause(wait context.Context, d time.Duration, told <-chan bool) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		if a.last.pause == pauseHeld || a.last.pause == pauseQueued { // else its turn is not over, or nobody's comes
			a.waited = WaitedPolled
		}
		return true
	case byNode := <-told:
		if a.waited = WaitedPolled; byNode {
			a.waited = WaitedTold
		}
		return true
	case <-wait.Done():
	case <-a.e.closing:
	}
	return false
}
