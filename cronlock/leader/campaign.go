package leader

import (
	"cmp"
	"math/rand/v2"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/pause"
	"github.com/lockkit/lockkit/internal/stall"
)

// afterResign is how long a process that resigned leaves the field to others.
const afterResign = 3 * time.Second

// retryMin and retryMax bound the pause after a round that failed.
const retryMin, retryMax = 250 * time.Millisecond, 1250 * time.Millisecond

// campaign stands for election until Close, and reigns whenever it is elected.
func (e *Elector) campaign() {
	for warned := false; e.closing.Err() == nil; {
		lease, err := e.stand()
		switch class := core.ClassOf(err); {
		case err != nil && e.closing.Err() != nil:
		case err == nil || class == core.ClassHeld: // the nodes answer
			e.note(nil)
			warned = false
			if err == nil {
				e.reign(lease)
			}
		case class == core.ClassClosed:
			e.note(err)
			e.locker.Logger().Error("leader: the campaign has ended: the Locker is closed", "group", e.group)
			return
		default:
			e.note(err)
			if !warned {
				e.locker.Logger().Warn("leader: no leader can be elected", "group", e.group, "err", err)
			}
			warned = true
			pause.For(e.closing, retryMin+rand.N(retryMax-retryMin))
		}
	}
}

// stand waits for the leadership. After a failure it does not wait, so that it learns at once that there are nodes again: a
// wait fails only when no quorum has answered for as long as the TTL.
func (e *Elector) stand() (*core.Lease, error) {
	if e.Check(e.closing) != nil {
		return e.locker.TryAcquire(e.closing, e.key)
	}
	return e.locker.Acquire(e.closing, e.key)
}

// note keeps what Check says.
func (e *Elector) note(trouble error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.trouble = trouble
}

// reign leads for one term, until it was given up and its work has ended, or until it was lost. Work may outlast a lost
// term, but not into the next campaign.
func (e *Elector) reign(lease *core.Lease) {
	t := newTerm(e.group, lease)
	defer t.leave()
	if !e.accede(t) { // Close has found no term to wait for
		lease.Release(e.closing)
		return
	}
	e.event(EventElected)
	go func() {
		defer t.gate.Leave()
		stall.At(stall.Start, stall.Anywhere, e)
		e.elected(t.notice, t.Term)
	}()
	err := t.last()
	t.stop(cmp.Or(err, errResigned))
	if err != nil {
		e.note(err)
		e.event(EventDeposed)
		<-t.gate.Empty()
		e.vacate(t)
		return
	}
	e.vacate(t)
	e.event(EventResigned)
	pause.For(e.closing, afterResign)
}

// accede makes t the current term. It reports false once the Elector is closed.
func (e *Elector) accede(t *term) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing.Err() != nil {
		return false
	}
	close(e.next)
	e.term, e.own, e.next = t, t.FencingToken, make(chan struct{})
	return true
}

func (e *Elector) vacate(t *term) {
	t.lease.Release(e.closing)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.term = nil
}

func (e *Elector) event(kind core.EventKind) {
	e.locker.Event(e.closing, core.Event{Source: "cronlock", Name: e.group, Kind: kind})
}
