package tick

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/pause"
)

// A tick that did not start here is followed, where the job's policy wants that: this replica waits until nobody has it,
// and then has the host run it once more.

// follow decides what becomes of the tick, if it has not started here on schedule.
func (r *Claim) follow(err error) {
	j, t := r.job, r.tick
	if err == nil || !r.scheduled || r.settled || t.id == "" || !t.shared {
		return
	}
	class := core.ClassOf(err)
	again := j.policy.attempts > 1
	switch {
	case errors.Is(err, ErrNotLeader):
		j.oweAt(t.At)
	case class == core.ClassUnavailable && (j.policy.catchUp > 0 || again && j.policy.catchUp < 0) && j.policy.next != nil:
		j.owe() // with all the others that the outage has
	case errors.Is(err, ErrOverlap) && (t.deferred || j.policy.overlap == Replace),
		again && (class == core.ClassUnavailable || class == core.ClassHeld || class == core.ClassDone && t.Gap > 0):
		t.late = true
		j.pursue(t)
	}
}

// pursue follows ticks in the background until each has run, or does not run any more: one after the other, so that they
// start in their order whichever replicas have them, or all at once where runs may overlap.
func (j *Job) pursue(ticks ...tick) {
	s := j.service
	var followers []*follower
	for _, t := range ticks {
		if f := j.follower(t); f != nil {
			followers = append(followers, f)
		}
	}
	if j.policy.overlap == Allow {
		for _, f := range followers {
			s.gate.Go(func() { f.follow(j.gone) })
		}
		return
	}
	s.gate.Go(func() {
		for _, f := range followers {
			f.follow(j.gone)
		}
	})
}

// A follower waits for the end of a tick that others have, or may have.
type follower struct {
	job   *Job
	tick  tick
	limit time.Duration // for so long after the tick
	began time.Time
	err   error         // why it goes on
	left  time.Duration // for so long the holder has the tick, if it dies; 0: not known
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
	pause.For(ctx, f.tick.At.Sub(f.job.service.Now()))
	for !f.step(ctx) {
		pause.For(ctx, f.after())
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
	left, err := j.ask(ctx, t)
	f.left = left
	if left > 0 || t.Gap > 0 {
		f.limit = j.rerunnable(t) // somebody has begun with it
	}
	if err == nil {
		err = j.rerun(ctx, t)
	}
	switch f.err = err; {
	case err == nil, ctx.Err() != nil, errors.Is(err, ErrNotLeader), errors.Is(err, ErrMissed), errors.Is(err, ErrReplaced),
		errors.Is(err, ErrPaused):
		return true
	case j.policy.overlap == Replace && errors.Is(err, ErrOverlap):
		return !t.Next.IsZero() && j.service.Now().After(t.Next) // for the next one
	}
	class := core.ClassOf(err)
	return class == core.ClassDone || class == core.ClassClosed
}

// after is when to ask again: after half of the time that was spent waiting, so that a run which ends early is soon
// noticed, and at the latest when the holder's lease ends if its process is dead.
func (f *follower) after() time.Duration {
	most := time.Second
	if f.left > 0 {
		most = min(f.left, askMax)
	}
	return min(max(time.Since(f.began)/2, askMin), most) + rand.N(askMin/10) // replicas do not ask at once
}

// ask finds out whether the tick can be run, and else for how long its holder has it. It only looks, because who asked for
// the tick would keep it from those who come to it just then. Past the misfire grace, only one that was started can be run.
func (j *Job) ask(ctx context.Context, t tick) (left time.Duration, err error) {
	s := j.service
	if _, leads := s.term(); !leads {
		return 0, ErrNotLeader
	}
	state, err := s.locker.Inspect(ctx, j.key(t.key()...))
	switch {
	case err != nil:
		return 0, err
	case state.Record != nil:
		return 0, core.ErrDone
	case state.Holder != nil:
		return state.Holder.Left, core.ErrHeld
	case s.Now().Sub(t.At) <= j.policy.grace:
		return 0, nil
	}
	if state, err = s.locker.Inspect(ctx, j.key(t.attemptKey(1)...)); err == nil && state.Record == nil {
		err = ErrMissed
	}
	return 0, err
}

// rerun has the host run the tick, and waits for the end of the run.
func (j *Job) rerun(ctx context.Context, t tick) error {
	if t.late && j.policy.overlap != Allow { // one that was early only is skipped where it meets a run
		select {
		case j.turn <- struct{}{}:
			defer func() { <-j.turn }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return j.policy.host.Run(ctx, func(ctx context.Context) (*Claim, error) { return j.claim(ctx, t, false) })
}
