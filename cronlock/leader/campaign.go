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
const resignPause = 3 * time.Second

// retryMin and retryMax bound the pause after a round that failed.
const minRetryPause, maxRetryPause = 250 * time.Millisecond, 1250 * time.Millisecond

// campaign stands for election until Close, and reigns whenever it is elected.
func (e *Elector) campaign() {
	for warned := false; e.closing.Err() == nil; {
		lease, err := e.acquire()
		switch class := core.ClassOf(err); {
		case err != nil && e.closing.Err() != nil:
		case err == nil || class == core.ClassHeld: // the nodes answer
			e.setOwnErr(nil)
			warned = false
			if err == nil {
				e.lead(lease)
			}
		case class == core.ClassClosed:
			e.setOwnErr(err)
			e.log(slog.LevelError, "leader: the campaign has ended: the Locker is closed")
			return
		default:
			e.setOwnErr(err)
			if !warned {
				e.log(slog.LevelWarn, "leader: no leader can be elected", "err", err)
			}
			warned = true
			pause.For(e.closing, minRetryPause+rand.N(maxRetryPause-minRetryPause))
		}
	}
}

// stand waits for the leadership. After a failure it does not wait, so that it learns at once that there are nodes again: a
// wait fails only when no quorum has answered for as long as the TTL.
func (e *Elector) acquire() (*core.Lease, error) {
	if e.failure() != nil {
		return e.locker.TryAcquire(e.closing, e.key)
	}
	return e.locker.Acquire(e.closing, e.key)
}

// failing returns why this process could not stand in the last round.
func (e *Elector) failure() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ownErr
}

// note keeps what Check says.
func (e *Elector) setOwnErr(trouble error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ownErr = trouble
}

// reign leads for one term, until it was given up and its work has ended, or until it was lost. Work may outlast a lost
// term, but not into the next campaign.
func (e *Elector) lead(lease *core.Lease) {
	t := newTerm(e, lease)
	defer t.releaseContexts()
	if !e.beginTerm(t) { // Close has found no term to wait for
		lease.Release(e.closing)
		return
	}
	e.setLeaderErr(nil)
	go func() {
		defer t.gate.Leave()
		stall.At(stall.Start, stall.Anywhere, e)
		callback.Call(e.locker.Logger(), "OnElected", func() { e.onElected(t.electedCtx, t.Term) })
	}()
	e.event(EventElected)
	err := t.waitForEnd(e.locker.TTL(), e.announceStuck)
	t.stopWork(cmp.Or(err, errResigned))
	if err != nil {
		e.setOwnErr(err)
		e.event(EventDeposed)
		<-t.gate.Empty()
		e.endTerm(t)
		return
	}
	e.endTerm(t)
	e.event(EventResigned)
	pause.For(e.closing, resignPause)
}

// accede makes t the current term. It reports false once the Elector is closed.
func (e *Elector) beginTerm(t *term) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing.Err() != nil {
		return false
	}
	close(e.nextTerm)
	e.term, e.lastToken, e.nextTerm = t, t.FencingToken, make(chan struct{})
	return true
}

func (e *Elector) endTerm(t *term) {
	t.lease.Release(e.closing)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.term = nil
}

// stuck tells that work goes on although this process has resigned, until over is called: the log, Check, and the other
// candidates, which see that the key of the resignation is held.
func (e *Elector) announceStuck() (over func()) {
	e.setOwnErr(errStuck)
	e.log(slog.LevelWarn, "leader: work of the term has not ended since this process resigned: until it ends, the group has no leader")
	ctx, stop := context.WithCancel(context.WithoutCancel(e.closing))
	var showing sync.WaitGroup
	showing.Go(func() {
		for ctx.Err() == nil {
			if lease, err := e.locker.Acquire(ctx, e.stuckKey); err == nil {
				held, done := join.Contexts(ctx, lease.Context())
				<-held.Done()
				done()
				lease.Release(context.WithoutCancel(ctx))
			}
			pause.For(ctx, maxRetryPause)
		}
	})
	return func() {
		stop()
		showing.Wait()
		e.setOwnErr(nil)
	}
}

// watch looks once in a TTL whether the leader that this process waits for has resigned and is stuck. While it is, watch looks
// more often, so that Check does not say so for long after another process has begun to lead.
func (e *Elector) watchLeader() {
	for pause.For(e.closing, e.watchInterval()) {
		if e.currentTerm() != nil {
			continue
		}
		state, err := e.locker.Inspect(e.closing, e.stuckKey)
		switch {
		case err != nil: // the campaign tells of nodes that do not answer
		case state.Holder != nil && e.currentTerm() == nil:
			e.setLeaderErr(errLeaderStuck)
		default:
			e.setLeaderErr(nil)
		}
	}
}

func (e *Elector) watchInterval() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.leaderErr != nil {
		return min(maxRetryPause, e.locker.TTL())
	}
	return e.locker.TTL()
}

// follows keeps what Check says of the leader that this process waits for.
func (e *Elector) setLeaderErr(trouble error) {
	e.mu.Lock()
	before := e.leaderErr
	e.leaderErr = trouble
	e.mu.Unlock()
	if trouble != nil && before == nil {
		e.log(slog.LevelWarn, "leader: the leader has resigned, and work of its term has not ended since: until it ends, the group has no leader")
	}
}

// event has the observer told. The campaign does not wait for it.
func (e *Elector) event(kind core.EventKind) {
	callback.Of(e.locker).Post(&e.events, func() {
		e.locker.Event(e.closing, core.Event{Source: "cronlock", Name: e.group, Kind: kind})
	})
}

// log has a line logged. The campaign does not wait for the logger.
func (e *Elector) log(level slog.Level, message string, attrs ...any) {
	callback.Of(e.locker).Post(&e.logLines, func() {
		e.locker.Logger().With("group", e.group).Log(e.closing, level, message, attrs...)
	})
}
