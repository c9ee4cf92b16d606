package cronlock

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockkit/lockkit/core"
)

// A tick that did not start here is followed, where the job's policy wants that: this replica waits until nobody has it,
// and then has gocron run it once more, as a one-time job, whose call of Lock makes the claim.

// retention is for how long the records of a tick are kept: as many as suit the period, if nothing else was said.
func (j *Job) retention(t tick) time.Duration {
	p := j.policy
	if p.retention > 0 {
		return p.retention
	}
	return max(p.least(j.cron.clockLimit), min(max(keptTicks*t.period, time.Hour), 24*time.Hour))
}

// keptTicks are those whose records are kept by default.
const keptTicks = 3600

// rerunnable is for how long after its instant a tick may be started again.
func (j *Job) rerunnable(t tick) time.Duration {
	return max(j.policy.grace, j.retention(t)-2*j.cron.clockLimit)
}

// follow decides what becomes of a tick that has not started here on schedule.
func (j *Job) follow(r *run, err error) {
	t := r.tick
	if err == nil || r.settled || t.id == "" || !t.shared {
		return
	}
	class := core.ClassOf(err)
	early := j.cron.now().Before(t.at)
	switch {
	case errors.Is(err, ErrNotLeader):
		t.late = true
		j.leaveToLeader(t)
	case errors.Is(err, ErrOverlap) && (early || t.deferred || j.policy.overlap == Replace):
		t.late = !early // one that is early is skipped, too, when it falls due
		j.pursue(t)
	case j.policy.attempts > 1 && (class == core.ClassHeld || class == core.ClassUnavailable || class == core.ClassDone && t.gap > 0):
		t.late = true
		j.pursue(t)
	}
}

// pursue follows a tick in the background, until it has run, or does not run any more.
func (j *Job) pursue(t tick) {
	if !j.cron.gate.Enter() {
		return
	}
	j.mu.Lock()
	_, already := j.followed[t.id]
	j.followed[t.id] = struct{}{}
	j.mu.Unlock()
	if already {
		j.cron.gate.Leave()
		return
	}
	go func() {
		defer j.cron.gate.Leave()
		unled := j.chase(j.cron.closing, t)
		j.mu.Lock()
		delete(j.followed, t.id)
		j.mu.Unlock()
		if unled { // not before, or the next leader would take it for followed
			j.leaveToLeader(t)
		}
	}()
}

const askMin, askMax = 250 * time.Millisecond, time.Minute

// chase reports whether the tick is left to the leader.
func (j *Job) chase(ctx context.Context, t tick) (unled bool) {
	if d := t.at.Sub(j.cron.now()); d > 0 && !pause(ctx, d) {
		return false
	}
	limit := j.policy.grace // unless somebody has begun with it
	for began := time.Now(); ctx.Err() == nil; {
		err := j.ask(ctx, t)
		if errors.Is(err, core.ErrHeld) || t.gap > 0 {
			limit = j.rerunnable(t)
		}
		if err == nil {
			err = j.rerun(ctx, t)
		}
		switch {
		case err == nil, errors.Is(err, core.ErrDone), errors.Is(err, core.ErrClosed), errors.Is(err, ErrMissed):
			return false
		case errors.Is(err, ErrNotLeader):
			return true
		case j.policy.overlap == Replace && errors.Is(err, ErrOverlap) && !t.next.IsZero() && j.cron.now().After(t.next):
			return false // for the next one
		}
		if j.cron.now().Sub(t.at) > limit {
			(&run{job: j, ctx: ctx}).event(EventMissed)
			return false
		}
		pause(ctx, askAfter(err, time.Since(began)))
	}
	return false
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

// ask finds out whether anybody has the tick: nil if not.
func (j *Job) ask(ctx context.Context, t tick) error {
	r := &run{job: j, tick: t, ctx: ctx, term: ctx}
	err := r.takeTick()
	r.release(r.tickLease)
	return err
}

// rerun has gocron run the tick, and waits for the end of the run.
func (j *Job) rerun(ctx context.Context, t tick) error {
	if j.policy.overlap != Allow {
		select {
		case j.turn <- struct{}{}:
			defer func() { <-j.turn }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	x, id, err := j.extra(t)
	if err != nil {
		return err
	}
	defer j.discard(id)
	return x.await(ctx)
}

// What follows concerns ticks that fell due while nobody led, or whose leader did not complete them.

// keptLeft are the ticks past the misfire grace that are kept for the next leader: they may have been started.
const keptLeft = 10

// leaveToLeader keeps a tick for when this replica leads.
func (j *Job) leaveToLeader(t tick) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.left[t.id] = t
	now := j.cron.now()
	sorted := slices.SortedFunc(maps.Values(j.left), func(a, b tick) int { return b.at.Compare(a.at) })
	for i, t := range sorted { // the latest first
		age := now.Sub(t.at)
		if age > j.rerunnable(t) || age > j.policy.grace && (j.policy.attempts == 1 || i >= keptLeft) {
			delete(j.left, t.id)
		}
	}
}

// takeLeft returns them in their order, for this replica to run.
func (j *Job) takeLeft() []tick {
	j.mu.Lock()
	defer j.mu.Unlock()
	sorted := slices.SortedFunc(maps.Values(j.left), func(a, b tick) int { return a.at.Compare(b.at) })
	clear(j.left)
	return sorted
}

// look is how often a replica looks whether it leads, which asks nobody.
const look = 200 * time.Millisecond

// succeed runs what was left to the leader, when this replica is.
func (c *Cron) succeed() {
	for pause(c.closing, look) {
		if c.elector.IsLeader(c.closing) != nil {
			continue
		}
		for _, j := range c.all() {
			for _, t := range j.takeLeft() {
				j.pursue(t)
			}
		}
	}
}
