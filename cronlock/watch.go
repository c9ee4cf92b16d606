package cronlock

import (
	"context"
	"errors"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockkit/lockkit/core"
)

// Ticks that another replica has, or should have had, are run here when it does not complete them: under
// AtLeastOnce by every replica that saw the tick, and with an elector by the one that becomes leader. The run
// is claimed in the background and then started through gocron's RunNow, so that gocron's limits, listeners
// and shutdown hold for it, too.

// watch has this replica take the tick over, if what its claim failed with is something that may pass.
func (cl *claim) watch(why error) {
	class := core.ClassOf(why)
	passes := class == core.ClassHeld || class == core.ClassUnavailable || class == core.ClassDone && cl.gap > 0
	if cl.policy.attempts > 1 && cl.shared && !cl.settled && passes {
		cl.takeOver()
	}
}

// leaveToLeader notes that the leader should run this.
func (j *job) leaveToLeader(cl *claim) {
	if !cl.shared {
		return
	}
	j.mu.Lock()
	if j.unled == nil || !cl.tick.Before(j.unled.tick) {
		j.unled = cl
	}
	j.mu.Unlock()
	if cl.c.elector.IsLeader(cl.ctx) == nil { // elected after the refusal, it may have caught up before this
		j.catchUp()
	}
}

// catchUp runs the last ticks that were left to a leader, unless it has run them.
func (c *Cron) catchUp() {
	for _, j := range c.all() {
		j.catchUp()
	}
}

func (j *job) catchUp() {
	j.mu.Lock()
	cl := j.unled
	j.unled = nil
	j.mu.Unlock()
	if cl != nil {
		cl.takeOver()
	}
}

// takeOver waits in the background until the tick is recorded as done, or free, and then runs it; but not
// past the misfire grace.
func (cl *claim) takeOver() {
	j := cl.job
	if !cl.c.gate.Enter() {
		return
	}
	j.mu.Lock()
	_, already := j.watched[cl.id]
	j.watched[cl.id] = struct{}{}
	j.mu.Unlock()
	if already {
		cl.c.gate.Leave()
		return
	}
	go func() {
		defer cl.c.gate.Leave()
		ctx, stop := core.Join(cl.ctx, cl.c.closing)
		defer stop()
		unled := cl.waitOver(ctx)
		j.mu.Lock()
		delete(j.watched, cl.id)
		j.mu.Unlock()
		if unled { // not before, or the catch-up would take the tick for watched
			j.leaveToLeader(cl)
		}
	}()
}

// Holders die rarely: those who wait for it ask less often than those who contend, where nodes do not tell them.
const watchMin, watchMax = 250 * time.Millisecond, time.Second

// waitOver reports whether the tick is left to the leader.
func (cl *claim) waitOver(ctx context.Context) (unled bool) {
	for ctx.Err() == nil && cl.late() == nil {
		waiting := *cl
		waiting.waits = ctx
		tick, err := waiting.acquire(cl.tickKey(), cl.left())
		if err == nil {
			err = cl.rerun(ctx, tick)
		}
		switch {
		case err == nil, cl.settled, errors.Is(err, core.ErrDone), errors.Is(err, core.ErrClosed):
			return false
		case errors.Is(err, ErrNotLeader):
			return true
		}
		pause(ctx, watchMax)
	}
	return false
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// rerun takes what a run needs beside the tick, and starts it.
func (cl *claim) rerun(ctx context.Context, tick *core.Lease) error {
	t, err := cl.c.enter()
	if err != nil {
		cl.release(tick)
		return err
	}
	inBackground := *cl
	inBackground.waits = ctx
	if t != nil { // what has yet to start does not hold up a resignation
		var stop func()
		inBackground.waits, stop = core.Join(ctx, t.notice)
		defer stop()
	}
	r, err := inBackground.takeRest(t, tick, true)
	cl.settled = inBackground.settled
	if err != nil {
		cl.c.leave(t)
		cl.event(meaningOf(err).event)
		return err
	}
	if !cl.job.handOver(ctx, r) {
		r.abandon()
		return errNotStarted
	}
	return nil
}

var errNotStarted = errors.New("gocron did not start the run")

// handOver starts the run through gocron. It is false when gocron does not take it.
func (j *job) handOver(ctx context.Context, r *run) bool {
	h, err := j.handle(ctx, true)
	if err != nil {
		return false
	}
	j.mu.Lock()
	j.handovers = append(j.handovers, r)
	j.calls.reruns++
	j.mu.Unlock()
	for err = h.RunNow(); errors.Is(err, gocron.ErrJobRunNowFailed) && ctx.Err() == nil; err = h.RunNow() {
		pause(ctx, watchMin) // the scheduler's loop is busy
	}
	if err == nil {
		timer := time.NewTimer(max(r.cl.left(), watchMax))
		defer timer.Stop()
		select {
		case <-r.fetched:
			return true
		case <-timer.C: // gocron has dropped the call, as it does in some modes
		case <-ctx.Done():
		}
	}
	return !j.takeBack(r)
}

// handover is the run that has been claimed for the call of Lock under way.
func (j *job) handover() *run {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.handovers) == 0 {
		return nil
	}
	r := j.handovers[0]
	j.handovers = j.handovers[1:]
	close(r.fetched)
	return r
}

// takeBack takes a run back that no call of Lock has fetched.
func (j *job) takeBack(r *run) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i, h := range j.handovers {
		if h == r {
			j.handovers = append(j.handovers[:i:i], j.handovers[i+1:]...)
			return true
		}
	}
	return false
}
