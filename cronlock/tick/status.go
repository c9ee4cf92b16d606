package tick

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
)

// A Status is what the nodes know of a job.
type Status struct {
	Job   string
	Next  time.Time    // the next tick; zero where the schedule is not known
	Run   *core.Holder // the run under way, of whatever tick or by hand; nil: there is none, or runs may overlap
	Pause *Pausing     // the pause that goes on; nil: there is none
	Ticks []TickStatus // of the ticks that are due, the latest first
}

// A Pausing is a pause of a job: see [Job.Pause].
type Pausing struct {
	By    string // the replica that was asked
	Since time.Time
}

// A TickStatus is what the nodes know of a tick.
type TickStatus struct {
	Tick    time.Time
	Outcome Outcome
	By      string    // the replica: host, process and a random part. Empty if none has it
	Attempt int       // of the run; 0 where it is not known
	Began   time.Time // by the replica's clock
	Ended   time.Time // the same; zero for a run that goes on
}

// An Outcome is what has become of a tick.
type Outcome string

// Outcomes.
const (
	Ran       Outcome = "ran"       // the function has returned nil
	Failed    Outcome = "failed"    // it has returned an error or panicked
	Lost      Outcome = "lost"      // it has run, but its lease was lost on the way
	Skipped   Outcome = "skipped"   // an earlier run went on
	Paused    Outcome = "paused"    // the job was paused
	Abandoned Outcome = "abandoned" // every attempt ended without completion
	Running   Outcome = "running"   // a replica has it
	Open      Outcome = "open"      // nobody has it, or it was begun and not completed, and it may run yet
	Missed    Outcome = "missed"    // nobody has run it, and it is too late, or its record has expired

	started Outcome = "started" // of an attempt, and of a gap
)

// maxStatus bounds how many ticks a Status has.
const maxStatus = 100

// Status asks the nodes what has become of the latest ticks of the job, at most so many of them (1 to 100), and who runs it
// now. It reads only, one key for each tick, so it may be called while the job runs, by pages and probes. Of a schedule that
// does not name the same instants on all replicas, the nodes know the last start alone, and where its gaps have slots, none.
// The error is core's, of [core.Locker.Inspect].
func (j *Job) Status(ctx context.Context, ticks int) (Status, error) {
	s := Status{Job: j.name}
	if ticks < 1 || ticks > maxStatus {
		return s, fmt.Errorf("tick: %w: the status of %d ticks was asked for, 1 to %d can be", core.ErrInvalid, ticks, maxStatus)
	}
	due, err := j.latest(ctx, ticks, &s)
	if err != nil {
		return Status{}, err
	}
	s.Ticks = make([]TickStatus, len(due))
	errs := make([]error, len(due)+2)
	var wg sync.WaitGroup
	for i, t := range due {
		wg.Go(func() { s.Ticks[i], errs[i] = j.inspect(ctx, t) })
	}
	if j.policy.overlap != Allow {
		wg.Go(func() {
			var run core.KeyState
			run, errs[len(due)] = j.service.locker.Inspect(ctx, j.runKey())
			s.Run = run.Holder
		})
	}
	wg.Go(func() {
		var b board
		b, errs[len(due)+1] = j.service.read(ctx)
		if p, paused := b.pause(j.name); paused {
			s.Pause = &Pausing{p.By, p.At}
		}
	})
	wg.Wait()
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		return Status{}, fmt.Errorf("tick: job %q: %w", j.name, errs[i])
	}
	return s, nil
}

// latest returns the latest ticks that are due, the latest first, and notes the next.
func (j *Job) latest(ctx context.Context, most int, s *Status) (ticks []tick, err error) {
	t, ok := j.Due()
	if next := j.policy.next; !ok && next != nil { // its first tick is to come
		s.Next = next(j.service.Now())
	}
	if !ok {
		state, err := j.service.locker.Inspect(ctx, j.key("gap"))
		if err != nil || state.Record == nil {
			return nil, err
		}
		at, err := startedTick(state.Record)
		if err != nil {
			return nil, nil //nolint:nilerr // it is not one of ours
		}
		return []tick{newTick(Tick{At: at}, j.policy)}, nil
	}
	s.Next = t.Next
	var due []time.Time
	for back := max(t.Period, time.Second); len(due) < most && back < 400*day; back *= 2 {
		due = j.policy.instants(t.At.Add(-back), t.At, most)
	}
	for _, at := range slices.Backward(due) {
		ticks = append(ticks, newTick(j.policy.tickAt(at), j.policy))
	}
	return ticks, nil
}

// inspect finds out what has become of a tick.
func (j *Job) inspect(ctx context.Context, t tick) (TickStatus, error) {
	state, err := j.service.locker.Inspect(ctx, j.key(t.key()...))
	is := TickStatus{Tick: t.At}
	switch {
	case err != nil:
	case state.Record != nil:
		r, _ := parseRecord(state.Record.Result)
		is.Outcome, is.By, is.Attempt, is.Began, is.Ended = r.Outcome, r.By, r.Attempt, r.Began, r.At
	case state.Holder != nil:
		is.Outcome, is.By, is.Began = Running, state.Holder.Note, state.Holder.Since
	case j.usedUp(ctx, t, &is):
		is.Outcome = Abandoned
	case j.service.Now().Sub(t.At) <= j.policy.grace, j.policy.attempts > 1 && j.service.Now().Sub(t.At) <= j.rerunnable(t):
		is.Outcome = Open
	default:
		is.Outcome = Missed
	}
	return is, err
}

// usedUp reports whether the last attempt at a tick that nobody has was started, and notes by whom.
func (j *Job) usedUp(ctx context.Context, t tick, is *TickStatus) bool {
	state, err := j.service.locker.Inspect(ctx, j.key(t.attemptKey(j.policy.attempts)...))
	if err != nil || state.Record == nil {
		return false
	}
	r, _ := parseRecord(state.Record.Result)
	is.By, is.Attempt, is.Began = r.By, r.Attempt, r.Began
	return true
}
