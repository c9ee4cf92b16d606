package tick

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Job is a job that was added to a Service.
type Job struct {
	service *Service
	name    string
	fn      func(context.Context) error
	policy  policy
	turn    chan struct{} // room for one: runs again follow each other, unless they may overlap

	gone   context.Context // ends with Remove, and with the Service
	remove context.CancelFunc
	added  time.Time   // by the nodes' clocks
	owing  atomic.Bool // there may be ticks to catch up; see owe

	mu       sync.Mutex
	followed map[string]struct{} // ticks whose holders are followed
	heard    map[string]uint64   // triggers, and the term in which they were pursued here; 0 without an elector
	seen     time.Time           // the last tick that the host called for
	bare     time.Time           // the last tick that ran here without leases
}

func newJob(s *Service, name string, fn func(context.Context) error, p policy) *Job {
	j := &Job{service: s, name: name, fn: fn, policy: p, turn: make(chan struct{}, 1), added: s.Now(),
		followed: map[string]struct{}{}}
	j.gone, j.remove = context.WithCancel(s.closing)
	return j
}

// Remove has the Service forget the job, whose name is free then. Runs under way go on; of what was missed or triggered, or
// is to run again, nothing starts here any more.
func (j *Job) Remove() {
	j.remove()
	s := j.service
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.jobs[j.name] == j {
		delete(s.jobs, j.name)
	}
}

// Name returns the job's name.
func (j *Job) Name() string { return j.name }

// Run runs a tick of the job if it is this replica's to run, and returns when the run has ended: the function's error, or an
// [*Error] that says why it did not run. If a lease was lost while the function ran, its error also matches core.ErrLost.
// ctx is the parent of the function's context; once it has ended, the run has no more than that of the function.
func (j *Job) Run(ctx context.Context, t Tick) error {
	c, err := j.Claim(ctx, t)
	if err != nil {
		return err
	}
	defer c.End() // also of a function that panics
	return c.Call()
}

// RunDue runs, as [Job.Run] does, the tick that is due: the latest of the job's schedule ([WithSchedule]), by this
// replica's clock or the nodes', whichever is ahead. It is what a cron library is to call for each tick.
func (j *Job) RunDue(ctx context.Context) error {
	t, ok := j.Due()
	if !ok {
		if j.policy.next == nil {
			return &Error{Job: j.name, Err: fmt.Errorf("%w: the job has no schedule, see WithSchedule", ErrNotDue)}
		}
		return &Error{Job: j.name, Err: ErrNotDue}
	}
	return j.Run(ctx, t)
}

// Claim claims a tick for a host that does more between claim and run than [Job.Run] does. It does not wait for runs of
// others. ctx is that of the function; when it ends, the claim keeps its leases until End, which the caller owes. The error
// is an [*Error], and says why the tick does not run here.
func (j *Job) Claim(ctx context.Context, t Tick) (*Claim, error) {
	of := newTick(t, j.policy)
	if j.skips(t.At) && j.behind(of) {
		return nil, &Error{Job: j.name, Tick: t.At, Err: fmt.Errorf("%w: those before it are caught up first", ErrEarly)}
	}
	return j.claim(ctx, of, true)
}

// skips reports whether the host has not called for all ticks before this one: the process was asleep, or its clock is ahead,
// and its first call is for a tick that is not the first to fall due by the nodes' clocks.
func (j *Job) skips(at time.Time) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	before := j.seen
	if !at.After(before) {
		return false
	}
	j.seen = at
	if before.IsZero() {
		before = j.added
	}
	p := j.policy
	return (p.catchUp > 0 || p.catchUp < 0 && j.service.elector != nil) && p.next != nil && p.next(before).Before(at)
}

// behind reports whether there are ticks to catch up before this one, which is then pursued after them: it would be skipped
// if it met one of them.
func (j *Job) behind(t tick) bool {
	now := j.service.Now()
	if late := now.Sub(t.At); !t.shared || late > j.policy.grace || -late > j.service.clockLimit {
		return false
	}
	ticks, _ := j.missed()
	for at := j.policy.next(now); at.Before(t.At) && !at.IsZero(); at = j.policy.next(at) { // this replica's clock is ahead
		ticks = append(ticks, newTick(j.policy.tickAt(at), j.policy))
	}
	before := slices.DeleteFunc(ticks, func(m tick) bool { return !m.At.Before(t.At) })
	if len(before) == 0 {
		return false
	}
	t.late = true
	j.pursue(append(before, t)...)
	return true
}

// Pursue has the job run a tick in the background, when it is due and as far as its policy allows, unless another replica
// does. It is for ticks of which the host knows that it will not call for them.
func (j *Job) Pursue(t Tick) { j.pursue(newTick(t, j.policy)) }

// Local says what this replica does with the job. It asks nobody.
func (j *Job) Local() Local {
	j.mu.Lock()
	defer j.mu.Unlock()
	return Local{Running: len(j.runs()), Following: len(j.followed)}
}

// A Local is what a replica does with a job.
type Local struct {
	Running   int // runs under way here
	Following int // ticks that others have, or had, whose end is awaited here
}

// A Host is what keeps the schedule, where that does more for a run than to call it.
type Host struct {
	// Run has the host run the job once more, beside its schedule: call claim, and where that returns no error, Call and
	// End. It returns when the run has ended, or the error of claim, or that of the claim: see [Claim.Err].
	Run func(ctx context.Context, claim func(context.Context) (*Claim, error)) error
	// Has reports whether the host still has the job. If not, its name is free.
	Has func() bool
}

// plain is the host of jobs that have none.
var plain = Host{
	Run: func(ctx context.Context, claim func(context.Context) (*Claim, error)) error {
		c, err := claim(ctx)
		if err != nil {
			return err
		}
		var run sync.WaitGroup
		run.Go(func() { // which runtime.Goexit ends, and not those that follow other ticks
			defer func() {
				failure := recover()
				c.End()
				if failure != nil {
					c.job.service.locker.Logger().Error("tick: a run of a job panicked", "job", c.job.name, "tick", c.tick.id,
						"panic", failure, "stack", string(debug.Stack()))
				}
			}()
			_ = c.Call() // the function's error is nobody's
		})
		run.Wait()
		return c.Err()
	},
	Has: func() bool { return true },
}

// A Tick is what a run is for: an instant that the job's schedule names. The zero Tick is that of a run by hand, which
// is recorded nowhere.
type Tick struct {
	At     time.Time
	Exact  bool          // the schedule names the same instants on all replicas
	Gap    time.Duration // where it does not: for how long after a start nobody starts the job again
	Slot   string        // not empty: the gap is between ticks of the same slot
	Period time.Duration // the least time between ticks, if known
	Next   time.Time     // the job's next tick, if known
}

// A tick is a Tick with its identity.
type tick struct {
	Tick
	id      string // on the nodes; empty: there is none
	shared  bool   // the id is the same on all replicas
	trigger string // the id given to Trigger; empty: it is one of the schedule, or by hand

	late     bool // it is not run on schedule: it waits for who is in the way
	deferred bool // because a run was late that it met
}

func newTick(of Tick, p policy) tick {
	if of.At.IsZero() {
		return tick{Tick: of}
	}
	t := tick{Tick: of, id: stamp(of.At)}
	switch {
	case p.minGap > 0:
		t.Gap, t.Slot = p.minGap, ""
	case t.Gap == 0 && !of.Exact:
		t.Gap = p.grace
	}
	if t.Period <= 0 { // or negative: after the last tick there is none
		t.Period = 10 * time.Second
	}
	t.shared = t.Gap == 0
	return t
}
