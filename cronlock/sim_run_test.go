package cronlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/leader"
	"github.com/lockkit/lockkit/cronlock"
)

// work is the job's function.
func (p *process) work(ctx context.Context) (err error) {
	run, _ := cronlock.FromContext(ctx)
	v := p.begin(p, ctx, run)
	if v == nil { // the process is dead
		return core.ErrClosed
	}

	defer func() { v.end(err) }()

	r := rand.New(rand.NewPCG(p.Seed^uint64(run.Tick.UnixNano()), uint64(run.Attempt)))
	is := func(what string) bool { return r.IntN(1000) < p.Is(what) }
	long, until := time.Duration(r.ExpFloat64()*float64(p.Is("work")))*time.Millisecond, ctx.Done()

	hangs, ignores := is("hang"), is("ignore")
	switch {
	case hangs && r.IntN(2) == 0:
		long = 2 * p.ttl
	case hangs:
		long = 30 * time.Second
	}
	if ignores {
		until = nil
	}

	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-until:
		return context.Cause(ctx)
	case <-p.died:
		return core.ErrClosed
	}

	if ctx.Err() != nil {
		p.Count("ignored its end")
	}
	switch {
	case is("panic"):
		err = errPanic
		p.Count("panicked")
		panic(err)
	case is("error"):
		return errOwn
	}
	return nil
}

// byHand runs the job by hand, and checks that it runs, or that the error has a good reason.
func (p *process) byHand() {
	defer func() { _ = recover() }()
	p.mu.Lock()
	job, under, answers := p.job, p.under, p.answers
	p.mu.Unlock()

	var err error
	asked := time.Now()
	switch {
	case job == nil:
		return
	case under != nil:
		err := under.RunNow()
		p.mu.Lock()
		removed := p.job != job // since the call began
		p.mu.Unlock()
		if !removed || !errors.Is(err, core.ErrClosed) {
			p.must(err)
		}
		time.Sleep(15 * time.Second)
	default:
		err = job.RunNow(p.host)
		p.told(job, err)
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	refused, _ := err.(*cronlock.Error)
	switch {
	case p.dead || p.closed || p.job != job || p.Is("limit") > 0:
	case refused != nil && (!refused.Tick.IsZero() || errors.Is(err, leader.ErrNotLeader)) || p.answers == answers:
		p.Violation("%s: nothing runs by hand: %v", p.name, err)
	case errors.Is(err, core.ErrHeld) && !p.busy(asked) && p.quiet(asked):
		p.Violation("%s: a run by hand is refused after %v, and none goes on: %v", p.name, time.Since(asked), err)
	// The job itself, a call whose start is being recorded, and a call for the tick that has fallen due meanwhile.
	case under != nil && p.running == 0 && len(p.scheduler.Jobs()) > 3:
		p.Violation("%s: gocron keeps %d jobs", p.name, len(p.scheduler.Jobs()))
	}
}

// busy reports whether a run has gone on since an instant, or a poll may have had the lease for about as long as a run
// by hand waits. w.mu must be held.
func (w *world) busy(since time.Time) bool {
	due := w.instants()
	next, _ := slices.BinarySearchFunc(due, since.Add(w.off()), time.Time.Compare)
	return w.reading(since, due[:next]) > time.Second/2 ||
		slices.ContainsFunc(w.visits, func(v *visit) bool { return v.over.IsZero() || v.over.After(since) })
}

// operation is the Start function of the process's observer.
func (p *process) operation(ctx context.Context, op core.Op) (context.Context, func(core.Outcome)) {
	ctx, end := p.follow(ctx, op)
	if p.Is("observer") == 0 {
		return ctx, end
	}
	// If Start panics, the end of the operation is not observed. So it does not panic if the end must be judged.
	if end == nil || p.Is("observer") == 1 {
		p.disturb("an operation that begins")
	}

	return ctx, func(out core.Outcome) {
		if end != nil {
			end(out)
		}
		p.disturb("an operation that ends")
	}
}

// disturb makes the observer slow, or makes it panic now and then, as the plan says.
func (p *process) disturb(where string) {
	switch p.Is("observer") {
	case 1:
		p.Count("slow observer of " + where)
		time.Sleep(time.Millisecond)
	case 2:
		p.mu.Lock()
		panics := p.rng.IntN(3) == 0
		p.mu.Unlock()
		if panics {
			p.Count("observer panics at " + where)
			panic("observer")
		}
	}
}

// follow judges the operations of the process, and reports the phases that it reaches.
func (p *process) follow(ctx context.Context, op core.Op) (context.Context, func(core.Outcome)) {
	what, tick, attempt := parse(op.Key)

	switch {
	// A poll does not wait for the lease, a run by hand does.
	case what == "run" && op.Kind == core.OpAcquire && op.Try:
		p.looksBegin(p)
		p.reach("asking", p)
		return ctx, func(core.Outcome) { p.looksEnd(p) }
	case what == "run" && op.Kind == core.OpAcquire:
		p.reach("asking", p)
	case what == "start" && op.Kind == core.OpAcquire: // precedes OpComplete
		p.mu.Lock()
		p.writing, p.attempt = tick, attempt
		p.mu.Unlock()
	case what == "run" && op.Kind == core.OpHold:
		p.held(p)
		p.reach("claimed", p)
	case op.Kind == core.OpComplete && what == "start":
		p.recording(p, tick, attempt)
		p.reach("start being recorded", p)
		return ctx, func(out core.Outcome) {
			if out.Err == nil {
				p.recorded(p, tick, attempt)
				p.reach("start recorded", p)
			} else {
				p.Count("in doubt: a start")
			}
		}
	case op.Kind == core.OpComplete && what == "end":
		p.ending(p, tick)
		p.reach("end being recorded", p)
		return ctx, func(out core.Outcome) {
			if out.Err == nil {
				p.ended(p, tick)
				p.reach("end recorded", p)
			}
		}
	}
	return ctx, nil
}

func (p *process) event(_ context.Context, e core.Event) {
	p.Count(string(e.Kind))
	if e.Name == secondJob {
		return
	}
	p.mu.Lock()
	if !p.dead {
		p.Tracef("%s: %s", p.name, e.Kind)
		p.heard(p, e.Kind)
	}
	panics := p.Is("observer") == 2 && p.rng.IntN(3) == 0
	p.mu.Unlock()
	switch {
	case p.Is("observer") == 1:
		p.Count("slow observer")
		time.Sleep(time.Millisecond)
	case panics:
		p.Count("observer panics")
		panic("observer")
	}
}

// parse splits a key of the job into its parts.
func parse(key string) (what string, tick time.Time, attempt int) {
	parts := strings.Split(key, "/")
	for i, part := range parts {
		_, parts[i], _ = strings.Cut(part, ":")
	}
	if len(parts) < 4 || parts[0] != "cron" || parts[1] != "service" {
		return "", tick, 0
	}
	if len(parts) > 4 {
		tick, _ = time.Parse(time.RFC3339Nano, parts[4])
	}
	if len(parts) > 5 {
		_, _ = fmt.Sscan(parts[5], &attempt)
	}
	return parts[3], tick, attempt
}
