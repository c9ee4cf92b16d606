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

// resignPause is how long a process that resigned does not campaign, so that another process can lead.
const resignPause = 3 * time.Second

// The pause after a failed attempt to acquire the leadership is random, between minRetryPause and maxRetryPause.
const minRetryPause, maxRetryPause = 250 * time.Millisecond, 1250 * time.Millisecond

// campaign acquires the leadership and leads, again and again, until Close. It also ends if the Locker is closed.
func (e *Elector) campaign() {
	isWarned := false
	for e.closing.Err() == nil {
		lease, err := e.acquire()
		if err == nil {
			isWarned = false
			e.setOwnErr(nil)
			e.lead(lease)
			continue
		}
		if e.closing.Err() != nil {
			return
		}

		switch core.ClassOf(err) {
		case core.ClassHeld:
			// The nodes answer, and another process leads.
			isWarned = false
			e.setOwnErr(nil)
		case core.ClassClosed:
			e.setOwnErr(err)
			e.log(slog.LevelError, "leader: the campaign has ended: the Locker is closed")
			return
		default:
			e.setOwnErr(err)
			// Log only the first of several failures in a row.
			if !isWarned {
				e.log(slog.LevelWarn, "leader: no leader can be elected", "err", err)
			}
			isWarned = true
			pause.For(e.closing, minRetryPause+rand.N(maxRetryPause-minRetryPause))
		}
	}
}

// acquire waits for the leadership. After a failure it only tries once, so that Check returns nil as soon as nodes
// answer again. Acquire would return only with the leadership, or after no quorum has answered for a TTL.
func (e *Elector) acquire() (*core.Lease, error) {
	if e.failure() != nil {
		return e.locker.TryAcquire(e.closing, e.key)
	}
	return e.locker.Acquire(e.closing, e.key)
}

// failure returns the reason for which this process cannot lead, or nil.
func (e *Elector) failure() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ownErr
}

// setOwnErr sets the error that Check returns because this process cannot lead; nil clears it.
func (e *Elector) setOwnErr(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ownErr = err
}

// lead leads for one term: until this process has resigned and all work has ended, or until the term is lost. After a
// loss it waits for the work, too, so that no work of this term goes on in the next campaign.
func (e *Elector) lead(lease *core.Lease) {
	t := newTerm(e, lease)
	defer t.releaseContexts()
	begun := e.beginTerm(t)
	if !begun {
		// Close has been called, and does not wait for this term.
		lease.Release(e.closing)
		return
	}
	e.setLeaderErr(nil)

	// newTerm has entered the gate for OnElected.
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
		// After a loss, work may still go on.
		<-t.gate.Empty()
		e.endTerm(t)
		return
	}

	e.endTerm(t)
	e.event(EventResigned)
	pause.For(e.closing, resignPause)
}

// beginTerm makes t the current term and reports true, unless the Elector is closed.
func (e *Elector) beginTerm(t *term) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing.Err() != nil {
		return false
	}

	close(e.nextTerm)
	e.term = t
	e.lastToken = t.FencingToken
	e.nextTerm = make(chan struct{})
	return true
}

// endTerm releases the lease of a term, and then clears the current term.
func (e *Elector) endTerm(t *term) {
	t.lease.Release(e.closing)

	e.mu.Lock()
	defer e.mu.Unlock()
	e.term = nil
}

// announceStuck reports that work goes on although this process has resigned, until end is called. It logs a warning,
// sets the error of Check, and holds a key, so that the other candidates notice.
func (e *Elector) announceStuck() (end func()) {
	e.setOwnErr(errStuck)
	e.log(slog.LevelWarn, "leader: work of the term has not ended since this process resigned: "+
		"until it ends, the group has no leader")

	ctx, stop := context.WithCancel(context.WithoutCancel(e.closing))
	var holder sync.WaitGroup
	holder.Go(func() {
		for ctx.Err() == nil {
			if lease, err := e.locker.Acquire(ctx, e.stuckKey); err == nil {
				held, release := join.Contexts(ctx, lease.Context())
				<-held.Done()
				release()
				lease.Release(context.WithoutCancel(ctx))
			}
			pause.For(ctx, maxRetryPause)
		}
	})

	return func() {
		stop()
		holder.Wait()
		e.setOwnErr(nil)
	}
}

// watchLeader checks once in a TTL whether the leader that this process waits for has resigned and is stuck. While it
// is, watchLeader checks more often, so that Check returns nil soon after another process has begun to lead.
func (e *Elector) watchLeader() {
	for pause.For(e.closing, e.watchInterval()) {
		if e.currentTerm() != nil {
			continue
		}

		state, err := e.locker.Inspect(e.closing, e.stuckKey)
		switch {
		case err != nil:
			// The campaign reports nodes that do not answer.
		case state.Holder != nil && e.currentTerm() == nil:
			e.setLeaderErr(errLeaderStuck)
		default:
			e.setLeaderErr(nil)
		}
	}
}

// watchInterval returns the time until the next check of watchLeader.
func (e *Elector) watchInterval() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.leaderErr != nil {
		return min(maxRetryPause, e.locker.TTL())
	}
	return e.locker.TTL()
}

// setLeaderErr sets the error that Check returns because the leader is stuck; nil clears it. It logs a new error.
func (e *Elector) setLeaderErr(err error) {
	e.mu.Lock()
	before := e.leaderErr
	e.leaderErr = err
	e.mu.Unlock()

	if err != nil && before == nil {
		e.log(slog.LevelWarn, "leader: the leader has resigned, and work of its term has not ended since: "+
			"until it ends, the group has no leader")
	}
}

// event reports an event to the observer. The campaign does not wait for the observer.
func (e *Elector) event(kind core.EventKind) {
	callback.BackgroundOf(e.locker).Post(&e.events, func() {
		e.locker.Event(e.closing, core.Event{Source: "leader", Name: e.group, Kind: kind})
	})
}

// log logs a line. The campaign does not wait for the logger.
func (e *Elector) log(level slog.Level, message string, attrs ...any) {
	callback.BackgroundOf(e.locker).Post(&e.logLines, func() {
		e.locker.Logger().With("group", e.group).Log(e.closing, level, message, attrs...)
	})
}
