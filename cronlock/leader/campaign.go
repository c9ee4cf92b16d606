package leader

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/lockkit/lockkit/core"
)

// afterResign is how long a process that resigned leaves the field to others.
const afterResign = 3 * time.Second

// retryMin and retryMax bound the pause after a round that failed.
const retryMin, retryMax = 250 * time.Millisecond, 1250 * time.Millisecond

// campaign stands for election until Close, and reigns whenever it is elected.
func (e *Elector) campaign() {
	defer close(e.done)
	for warned := false; e.closing.Err() == nil; {
		lease, err := e.stand()
		switch class := core.ClassOf(err); {
		case err == nil:
			e.note(nil)
			e.reign(lease)
			warned = false
		case e.closing.Err() != nil:
		case class == core.ClassHeld: // heard from the nodes again
			e.note(nil)
			warned = false
		case class == core.ClassClosed:
			e.note(err)
			e.locker.Logger().Error("leader: no campaign for leadership any more: the Locker is closed", "group", e.group)
			return
		default:
			e.note(err)
			if !warned {
				e.locker.Logger().Warn("leader: no leader can be elected", "group", e.group, "err", err)
			}
			warned = true
			pause(e.closing, retryMin+rand.N(retryMax-retryMin))
		}
	}
}

// stand waits for the leadership. After a failure it does not wait, so as to learn at once that there are nodes again: a
// wait fails only when no quorum has answered for as long as the TTL.
func (e *Elector) stand() (*core.Lease, error) {
	key := core.Key("cron-leader", e.group)
	if e.Check(e.closing) != nil {
		return e.locker.TryAcquire(e.closing, key)
	}
	return e.locker.Acquire(e.closing, key)
}

// note keeps what Check says.
func (e *Elector) note(trouble error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.trouble = trouble
}

// reign leads for one term.
func (e *Elector) reign(lease *core.Lease) {
	t := newTerm(e.group, lease)
	if !e.accede(t) { // Close has found no term to wait for
		lease.Release(e.closing)
		return
	}
	e.event(EventElected)
	elected, shown := start(func() { e.welcome(t) }), start(func() { e.show(t) })
	if err := t.last(); err != nil {
		e.depose(t, err, elected)
	} else {
		e.resign(t)
	}
	<-shown
}

// welcome is the part of OnElected in the term.
func (e *Elector) welcome(t *term) {
	defer t.gate.Leave()
	e.elected(t.notice, t.Term)
}

// start runs f, and closes the channel when f has returned.
func start(f func()) (returned chan struct{}) {
	returned = make(chan struct{})
	go func() {
		defer close(returned)
		f()
	}()
	return returned
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

// resign ends a term that has come to rest.
func (e *Elector) resign(t *term) {
	e.vacate(t)
	t.work.end(errResigned)
	close(t.over)
	e.event(EventResigned)
	e.lost(t.Term, nil)
	pause(e.closing, afterResign)
}

// depose ends a term whose lease was lost. Its work may go on for a while after OnLost, but not into the next campaign.
func (e *Elector) depose(t *term, err error, elected <-chan struct{}) {
	e.note(err)
	t.work.end(err)
	close(t.over)
	<-elected
	e.event(EventDeposed)
	e.lost(t.Term, err)
	<-t.gate.Empty()
	e.vacate(t)
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

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
