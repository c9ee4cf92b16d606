package leader

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/callback"
	"github.com/lockkit/lockkit/internal/join"
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
			e.log(slog.LevelError, "leader: the campaign has ended: the Locker is closed")
			return
		default:
			e.note(err)
			if !warned {
				e.log(slog.LevelWarn, "leader: no leader can be elected", "err", err)
			}
			warned = true
			pause.For(e.closing, retryMin+rand.N(retryMax-retryMin))
		}
	}
}

// stand waits for the leadership. After a failure it does not wait, so that it learns at once that there are nodes again: a
// wait fails only when no quorum has answered for as long as the TTL.
func (e *Elector) stand() (*core.Lease, error) {
	if e.failing() != nil {
		return e.locker.TryAcquire(e.closing, e.key)
	}
	return e.locker.Acquire(e.closing, e.key)
}

// failing returns why this process could not stand in the last round.
func (e *Elector) failing() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.trouble
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
	t := newTerm(e, lease)
	defer t.leave()
	if !e.accede(t) { // Close has found no term to wait for
		lease.Release(e.closing)
		return
	}
	e.follows(nil)
	go func() {
		defer t.gate.Leave()
		stall.At(stall.Start, stall.Anywhere, e)
		callback.Call(e.locker.Logger(), "OnElected", func() { e.elected(t.notice, t.Term) })
	}()
	e.event(EventElected)
	err := t.last(e.locker.TTL(), e.stuck)
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

// stuck tells that work goes on although this process has resigned, until over is called: the log, Check, and the other
// candidates, which see that the key of the resignation is held.
func (e *Elector) stuck() (over func()) {
	e.note(errStuck)
	e.log(slog.LevelWarn, "leader: work of the term has not ended since this process resigned: until it ends, the group has no leader")
	ctx, stop := context.WithCancel(context.WithoutCancel(e.closing))
	var showing sync.WaitGroup
	showing.Go(func() {
		for ctx.Err() == nil {
			if lease, err := e.locker.Acquire(ctx, e.resigned); err == nil {
				held, done := join.Contexts(ctx, lease.Context())
				<-held.Done()
				done()
				lease.Release(context.WithoutCancel(ctx))
			}
			pause.For(ctx, retryMax)
		}
	})
	return func() {
		stop()
		showing.Wait()
		e.note(nil)
	}
}

// watch looks once in a TTL whether the leader that this process waits for has resigned and is stuck. While it is, watch looks
// more often, so that Check does not say so for long after another process has begun to lead.
func (e *Elector) watch() {
	for pause.For(e.closing, e.betweenLooks()) {
		if e.current() != nil {
			continue
		}
		state, err := e.locker.Inspect(e.closing, e.resigned)
		switch {
		case err != nil: // the campaign tells of nodes that do not answer
		case state.Holder != nil && e.current() == nil:
			e.follows(errWaits)
		default:
			e.follows(nil)
		}
	}
}

func (e *Elector) betweenLooks() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.blocked != nil {
		return min(retryMax, e.locker.TTL())
	}
	return e.locker.TTL()
}

// follows keeps what Check says of the leader that this process waits for.
func (e *Elector) follows(trouble error) {
	e.mu.Lock()
	before := e.blocked
	e.blocked = trouble
	e.mu.Unlock()
	if trouble != nil && before == nil {
		e.log(slog.LevelWarn, "leader: the leader has resigned, and work of its term has not ended since: until it ends, the group has no leader")
	}
}

// event has the observer told. The campaign does not wait for it.
func (e *Elector) event(kind core.EventKind) {
	callback.Of(e.locker).Post(&e.told, func() {
		e.locker.Event(e.closing, core.Event{Source: "cronlock", Name: e.group, Kind: kind})
	})
}

// log has a line logged. The campaign does not wait for the logger.
func (e *Elector) log(level slog.Level, message string, attrs ...any) {
	callback.Of(e.locker).Post(&e.lines, func() {
		e.locker.Logger().With("group", e.group).Log(e.closing, level, message, attrs...)
	})
}
