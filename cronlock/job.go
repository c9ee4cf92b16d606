package cronlock

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/cronlock/internal/hosting"
	"github.com/lockkit/lockkit/internal/callback"
)

// A Job is a function with a schedule, whose ticks run on one of the replicas of its Service. It is safe for concurrent
// use.
type Job struct {
	policy
	service  *Service
	name     string
	schedule Schedule
	fn       func(context.Context) error
	added    time.Time       // by the nodes' clocks
	removed  context.Context // ends when the job is removed or the Service is closed
	remove   context.CancelCauseFunc

	poller     *poller
	pollSlot   chan struct{} // held by the claim that polls; capacity 1
	polling    atomic.Int32  // number of claims that poll, or wait for pollSlot
	activeRuns atomic.Int32  // number of claims with a run, until they have released the lease

	memory     memory
	outage     outage
	superseded supersededCount

	// The observer and the logger may be slow, so polls and runs only queue calls of them.
	events   callback.Queue
	logLines callback.Queue
}

// A JobOption configures a job.
type JobOption func(*policy)

// A policy is the configuration of a job.
type policy struct {
	startLimit int // number of starts that a tick may have
	grace      time.Duration
	host       hosting.Host // nil if the engine runs the job itself
	hostCalls  bool         // the host calls at the ticks
	hostCount  int          // number of options that set a host; more than one is an error
}

// maxStarts is the largest argument of AtLeastOnce.
const maxStarts = 10

// AtLeastOnce makes a tick start up to n times (1 to 10) until a run of it completes. A run completes when the function
// returns nil, or an error while its context is live. A tick is started again when its replica died, when the function
// panicked, or when the run was stopped (a shutdown, a lost lease or leadership) and returned an error. If replicas
// disagree about n, the smaller number counts. The default is 1: at most once.
func AtLeastOnce(n int) JobOption { return func(p *policy) { p.startLimit = n } }

// WithGrace sets how late a tick may start for the first time: at least the TTL of the Locker plus one second, at most
// 365 days. A tick that cannot start in that time is missed. If the grace is shorter than the period, a job that runs
// for longer than its period skips most ticks that fall due during a run. For jobs that run every hour or less often,
// 15 minutes is a good choice. The default is one minute, or three TTLs if that is longer.
func WithGrace(d time.Duration) JobOption { return func(p *policy) { p.grace = d } }

// WithHost makes a host, such as a cron library, run the job: the host calls [Job.RunDue] at the ticks. If a tick is
// late or must start again, the engine calls call, on a goroutine of its own, possibly before Add has returned; the
// host must then call RunDue once more, inside of call or later. The engine does not poll until call has returned. If
// the host drops or delays RunDue, the engine calls again after five seconds. WithHost cannot be given twice. By
// default the engine runs the job.
func WithHost(call func()) JobOption {
	return func(p *policy) {
		p.hostCount++
		p.hostCalls = call != nil
		if p.hostCalls {
			p.host = cronLibrary(call)
		}
	}
}

// A cronLibrary is the Host of WithHost.
type cronLibrary func()

func (l cronLibrary) RequestCall()  { l() }
func (cronLibrary) IsRemoved() bool { return false }

func init() {
	hosting.WithHost = func(h hosting.Host) any {
		return JobOption(func(p *policy) {
			p.host = h
			p.hostCount++
		})
	}
}

// RunDue runs the tick that must start now, and returns when the run has ended. Usually that is the latest due tick;
// see the rules in the package document. The context of the run has the values of ctx and ends with it. If this replica
// is already polling the job, RunDue first waits until that poll has ended.
//
// The error is the function's, or an [*Error] if nothing was started: core.ErrHeld if the job runs elsewhere,
// core.ErrDone if the latest tick was started, ErrMissed, ErrNotDue, leader.ErrNotLeader, core.ErrUnavailable if no
// quorum of nodes answered, core.ErrClosed, or the error of ctx. If a tick may start later, the engine then polls again
// without being called.
func (j *Job) RunDue(ctx context.Context) error { return j.run(ctx, false) }

// RunNow runs the job by hand, without a tick, under the same lease. It fails with core.ErrHeld while another run goes
// on, and it starts no tick. RunNow waits up to three seconds for the lease, because a poll also holds it for a moment.
// The run is not bound to the leadership and leaves no record. If this replica does not lead, a tick that falls due
// during the run may start up to a TTL after the end of the run. The errors are the same as for RunDue.
func (j *Job) RunNow(ctx context.Context) error { return j.run(ctx, true) }

// run claims a run and executes it.
func (j *Job) run(ctx context.Context, byHand bool) error {
	c, err := j.newClaim(ctx, byHand)
	if err != nil {
		return err
	}
	// Deferred, because the function may panic. End logs its own failures.
	defer c.End()
	return c.Call()
}

// isHostGone reports whether the job has a host that has removed it.
func (j *Job) isHostGone() bool { return j.host != nil && j.host.IsRemoved() }

// Next returns the next tick by the nodes' clocks, or the zero time if there is none.
func (j *Job) Next() time.Time { return j.schedule.Next(j.service.now()) }

// latest returns the latest tick that is not after by, and the one that follows. Both are zero if the schedule
// contradicts itself, for instance because it names other instants than before.
func (j *Job) latest(by time.Time) (tick, next time.Time) {
	tick, next = latest(j.schedule, by)
	if !next.IsZero() && !next.After(tick) {
		return time.Time{}, time.Time{}
	}
	return tick, next
}

// Remove removes the job from its Service: no run starts on this replica from now on, and the name may be used again.
// Runs under way go on. A run whose start is already being recorded still begins.
func (j *Job) Remove() {
	j.remove(core.ErrClosed)
	j.poller.stop()

	s := j.service
	s.mu.Lock()
	defer s.mu.Unlock()
	// A later job of the same name stays.
	if s.jobs[j.name] == j {
		delete(s.jobs, j.name)
	}
}

// jitter returns a random delay that keeps the polls of replicas and jobs apart.
func jitter() time.Duration { return rand.N(time.Second / 4) }
