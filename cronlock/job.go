package cronlock

import (
	"context"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkit/lockkit/core"
)

// A Job is a function with a schedule, whose ticks run on one of the replicas of its Service. It is safe for concurrent
// use.
type Job struct {
	policy
	service  *Service
	name     string
	schedule Schedule
	fn       func(context.Context) error
	added    time.Time
	gone     context.Context // ends when the job is removed, or the Service closed
	remove   context.CancelCauseFunc
	running  atomic.Int32
	settled  atomic.Int64 // a tick for which there is nothing to do while it is the latest
	warned   atomic.Bool

	mu    sync.Mutex
	timer *time.Timer // of the next look,
	when  time.Time   // and when that is; zero if there is none
}

// A JobOption configures a job.
type JobOption func(*policy)

type policy struct {
	starts int
	grace  time.Duration
	host   func() // nil: the engine runs the job itself
	hosts  int    // how often WithHost was given
}

// maxStarts bounds AtLeastOnce.
const maxStarts = 10

// AtLeastOnce makes a tick start up to n times, 1 to 10, until a run of it completes. A run completes when the function
// returns nil, or an error while its context is live. A tick is started again when its replica died, when the function
// panicked, or when the run was stopped (a shutdown, a lost lease or leadership) and returned an error. If replicas
// disagree about n, the smaller number counts. The default is 1: at most once.
func AtLeastOnce(n int) JobOption { return func(p *policy) { p.starts = n } }

// WithGrace sets how late a tick may start for the first time: at least the TTL of the Locker plus one second, at most 365
// days. Later ticks are missed. If the grace is shorter than the period, a job that runs for longer than its period skips
// most ticks that fall due meanwhile. For jobs that run every hour or less often, 15 minutes is a good choice. The default
// is one minute, or three TTLs if that is longer.
func WithGrace(d time.Duration) JobOption { return func(p *policy) { p.grace = d } }

// WithHost makes a host, such as a cron library, run the job: the host calls [Job.RunDue] or [Job.Claim] at the ticks. If a
// tick is late or starts again, the engine calls call, on a goroutine of its own, possibly before Add has returned; the
// host must then call once more. A call that the host drops or delays is repeated after five seconds. It cannot be given
// twice. By default the engine runs the job.
func WithHost(call func()) JobOption {
	return func(p *policy) { p.host, p.hosts = call, p.hosts+1 }
}

// Next returns the next tick by the nodes' clocks, or the zero time if there is none.
func (j *Job) Next() time.Time { return j.schedule.Next(j.service.now()) }

// RunDue runs what is to start now, and returns when the run has ended. Usually that is the latest tick that is due; see
// the rules in the package document. The context of the run has the values of ctx and ends with it.
//
// The error is the function's; or it is an [*Error], and nothing was started: core.ErrHeld if the job runs elsewhere,
// core.ErrDone if the latest tick was started, ErrMissed, ErrNotDue, leader.ErrNotLeader, core.ErrUnavailable if no quorum
// of nodes answered, core.ErrClosed, or that of ctx. The job is then looked at again by the engine when that is worth it.
func (j *Job) RunDue(ctx context.Context) error { return run(j.Claim(ctx)) }

// RunNow runs the job by hand, without a tick, under the same lease: it fails with core.ErrHeld while another run goes on,
// and takes no tick away. It waits up to a second for the lease, since a look for ticks has it for a moment, too. It is not
// bound to the leadership and leaves no record. The errors are those of RunDue.
func (j *Job) RunNow(ctx context.Context) error { return run(j.ClaimNow(ctx)) }

func run(c *Claim, err error) error {
	if err != nil {
		return err
	}
	defer c.End() // also of a function that panics; what it could not record is logged
	return c.Call()
}

// Remove removes the job from its Service: no run starts on this replica from now on, and the name may be used again. Runs
// under way go on.
func (j *Job) Remove() {
	j.remove(core.ErrClosed)
	s := j.service
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.jobs[j.name] == j {
		delete(s.jobs, j.name)
	}
}

// recovered keeps a panic of a run that the engine began, of the schedule or of the host from ending the process.
func (j *Job) recovered() {
	if p := recover(); p != nil {
		j.service.locker.Logger().Error("cronlock: a run panicked", "job", j.name, "panic", p, "stack", string(debug.Stack()))
		j.lookIn(lookAnyway)
	}
}

// warn logs why the engine could not start anything: once, until it can.
func (j *Job) warn(err error) {
	e, refused := err.(*Error) //nolint:errorlint // the function's error may wrap one
	if refused && IsExpected(e) {
		return
	}
	if before := j.warned.Swap(refused); refused && !before {
		j.service.locker.Logger().Warn("cronlock: a tick cannot start", "job", j.name, "err", e.Err) // a key is in the text of e
	}
}
