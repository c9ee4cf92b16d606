package tick

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/lockkit/lockkit/core"
)

// A tick that did not start here is followed, where the job's policy wants that: this replica waits until nobody has it,
// and then has the host run it once more.

// follow decides what becomes of a tick that has not started here on schedule.
func (j *Job) follow(r *Claim, err error) {
	t := r.tick
	if err == nil || r.settled || t.id == "" || !t.shared {
		return
	}
	class := core.ClassOf(err)
	again := j.policy.attempts > 1
	switch {
	case errors.Is(err, ErrNotLeader):
		j.owe()
	case errors.Is(err, ErrOverlap) && (t.deferred || j.policy.overlap == Replace):
		t.late = true
		j.pursue(t)
	case class == core.ClassUnavailable && (again || j.policy.catchUp > 0),
		again && (class == core.ClassHeld || class == core.ClassDone && t.Gap > 0):
		t.late = true
		j.pursue(t)
	}
}

// pursue follows ticks in the background until each has run, or does not run any more. Those that nobody has run in their
// order.
func (j *Job) pursue(ticks ...tick) {
	s := j.service
	var followers []*follower
	for _, t := range ticks {
		if f := j.follower(t); f != nil {
			followers = append(followers, f)
		}
	}
	s.gate.Go(func() {
		for _, f := range followers {
			if s.Now().Before(f.tick.At) || !f.step(s.closing) {
				s.gate.Go(func() { f.follow(s.closing) })
			}
		}
	})
}

// A follower waits for the end of a tick that others have, or may have.
type follower struct {
	job   *Job
	tick  tick
	limit time.Duration // for so long after the tick
	began time.Time
	err   error // why it goes on
}

// follower returns nil where there is one already.
func (j *Job) follower(t tick) *follower {
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, already := j.followed[t.id]; already {
		return nil
	}
	j.followed[t.id] = struct{}{}
	return &follower{job: j, tick: t, limit: j.policy.grace, began: time.Now()}
}

func (f *follower) end() {
	f.job.mu.Lock()
	defer f.job.mu.Unlock()
	delete(f.job.followed, f.tick.id)
}

const askMin, askMax = 250 * time.Millisecond, time.Minute

// follow goes on until the tick is over, or ctx is.
func (f *follower) follow(ctx context.Context) {
	if d := f.tick.At.Sub(f.job.service.Now()); d > 0 {
		pause(ctx, d)
	} else {
		pause(ctx, askAfter(f.err, time.Since(f.began)))
	}
	for !f.step(ctx) {
		pause(ctx, askAfter(f.err, time.Since(f.began)))
	}
}

// step runs the tick if nobody has it, and reports whether there is nothing more to wait for.
func (f *follower) step(ctx context.Context) (over bool) {
	j, t := f.job, f.tick
	if over = f.ask(ctx); !over && j.service.Now().Sub(t.At) > f.limit {
		(&Claim{job: j, ctx: ctx}).event(EventMissed)
		over = true
	}
	if over {
		f.end()
	}
	if errors.Is(f.err, ErrNotLeader) { // not before, or the next leader would take it for followed
		j.owe()
	}
	return over
}

func (f *follower) ask(ctx context.Context) (over bool) {
	j, t := f.job, f.tick
	err := j.ask(ctx, t)
	if errors.Is(err, core.ErrHeld) || t.Gap > 0 {
		f.limit = j.rerunnable(t) // somebody has begun with it
	}
	if err == nil {
		err = j.rerun(ctx, t)
	}
	f.err = err
	switch {
	case err == nil, ctx.Err() != nil, errors.Is(err, ErrNotLeader), errors.Is(err, ErrMissed), errors.Is(err, ErrReplaced):
		return true
	case j.policy.overlap == Replace && errors.Is(err, ErrOverlap):
		return !t.Next.IsZero() && j.service.Now().After(t.Next) // for the next one
	}
	class := core.ClassOf(err)
	return class == core.ClassDone || class == core.ClassClosed
}

// askAfter is when to ask again: after half of the time that was spent waiting, so that a run which ends early is soon
// noticed, and at the latest when the holder's lease ends if its process is dead.
func askAfter(err error, waited time.Duration) time.Duration {
	d := max(waited/2, askMin)
	var op *core.OpError
	if errors.As(err, &op) && op.RetryAfter > 0 {
		d = min(d, op.RetryAfter)
	} else {
		d = min(d, time.Second)
	}
	return min(d, askMax) + rand.N(askMin/10) // replicas do not ask at once
}

// ask finds out whether the tick can be run: nil if so. Past the misfire grace, only one that was started can be.
func (j *Job) ask(ctx context.Context, t tick) error {
	r := &Claim{job: j, tick: t, ctx: ctx, term: ctx}
	err := r.takeTick()
	if err == nil && j.service.Now().Sub(t.At) > j.policy.grace {
		if err = r.takeAttempt(); err == nil && r.attempt == 1 {
			err = ErrMissed
		}
	}
	r.release(r.attemptLease, r.tickLease)
	return err
}

// rerun has the host run the tick, and waits for the end of the run.
func (j *Job) rerun(ctx context.Context, t tick) error {
	if j.policy.overlap != Allow {
		select {
		case j.turn <- struct{}{}:
			defer func() { <-j.turn }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return j.policy.host.Run(ctx, func(ctx context.Context) (*Claim, error) { return j.claim(ctx, t, nil) })
}
