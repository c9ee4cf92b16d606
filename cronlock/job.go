package cronlock

import (
	"context"
	"math/rand/v2"
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
// days. A tick that cannot start in that time is missed. If the grace is shorter than the period, a job that runs for
// longer than its period skips most ticks that fall due meanwhile. For jobs that run every hour or less often, 15 minutes
// is a good choice. The default is one minute, or three TTLs if that is longer.
func WithGrace(d time.Duration) JobOption { return func(p *policy) { p.grace = d } }

// WithHost makes a host, such as a cron library, run the job: the host calls [Job.RunDue] or [Job.Claim] at the ticks. If a
// tick is late or must start again, the engine calls call, on a goroutine of its own, possibly before Add has returned; the
// host must then call RunDue or Claim once more. If the host drops or delays that, the engine calls again after five
// seconds. WithHost cannot be given twice. By default the engine runs the job.
func WithHost(call func()) JobOption {
	return func(p *policy) { p.host, p.hosts = call, p.hosts+1 }
}

// Next returns the next tick by the nodes' clocks, or the zero time if there is none.
func (j *Job) Next() time.Time { return j.schedule.Next(j.service.now()) }

// Remove removes the job from its Service: no run starts on this replica from now on, and the name may be used again. Runs
// under way go on. A run whose start is already being recorded still begins.
func (j *Job) Remove() {
	j.remove(core.ErrClosed)
	s := j.service
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.jobs[j.name] == j {
		delete(s.jobs, j.name)
	}
}

// retry is the pause after a failure.
const retry = time.Second

// jitter keeps looks of replicas and jobs apart.
func jitter() time.Duration { return rand.N(time.Second / 4) }

// lookIn makes the job be looked at after d, unless it is anyway before that.
func (j *Job) lookIn(d time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	when := time.Now().Add(d)
	if j.gone.Err() != nil || !j.when.IsZero() && j.when.Before(when) {
		return
	}
	j.when = when
	j.timer.Reset(max(d, 0))
}

// settle notes that there is nothing to do for a tick that is the latest, by what the nodes have said.
func (j *Job) settle(tick time.Time) { j.settled.Store(tick.UnixNano()) }
