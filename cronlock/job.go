package cronlock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
)

// A job is what this replica knows of a job of its scheduler.
type job struct {
	name  string
	plain atomic.Bool // its last task was not one of Task

	unusable, deaf sync.Once // what has been logged: that it never runs, and that it cannot be replaced

	mu         sync.Mutex
	handles    map[uuid.UUID]gocron.Job
	registered chan struct{} // closed once there is a handle
	calls      calls
	called     time.Time // when Lock was last called
	handovers  []*run    // claimed in the background, waiting for the call of Lock that RunNow brings
	unled      *claim    // the last tick that was left to the leader
	running    map[*run]struct{}
	watched    map[string]struct{} // ticks whose holders are watched
}

func newJob(name string) *job {
	return &job{name: name, handles: map[uuid.UUID]gocron.Job{}, registered: make(chan struct{}),
		running: map[*run]struct{}{}, watched: map[string]struct{}{}}
}

// unstable matches the names that the compiler gives to functions without one. They change when code
// around them does, so that two builds would not mean the same job by them.
var unstable = regexp.MustCompile(`\.(func|gowrap)\d+(\.(func|gowrap)?\d+)*(-range\d+)?$`)

func checkName(name string) error {
	if unstable.MatchString(name) {
		return fmt.Errorf("%w: %q is a name that the compiler made up: give the job one with gocron.WithName, the same on every replica and in every release", ErrJob, name)
	}
	return nil
}

// registration bounds how long Lock waits to learn of a job: gocron starts one that runs immediately
// before it tells of it.
const registration = time.Second

// handle returns gocron's handle of the job; nil without an error where there is none and it is not needed.
func (j *job) handle(ctx context.Context, needed bool) (gocron.Job, error) {
	j.mu.Lock()
	registered := j.registered
	j.mu.Unlock()
	if needed {
		timer := time.NewTimer(registration)
		defer timer.Stop()
		select {
		case <-registered:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-timer.C:
			return nil, fmt.Errorf("%w: its schedule is not known: make the scheduler with cronlock's Options, and pass your own gocron.SchedulerMonitor to them; or set WithMinGap", ErrJob)
		}
	}
	j.prune()
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.handles) > 1 {
		return nil, fmt.Errorf("%w: %d jobs of this process have this name, and would count as one: give each its own with gocron.WithName", ErrJob, len(j.handles))
	}
	for _, h := range j.handles {
		return h, nil
	}
	if needed {
		return nil, fmt.Errorf("%w: it was removed", ErrJob)
	}
	return nil, nil
}

// prune forgets handles that gocron does not know any more, where there are several: it tells of a job whose stop
// time is past only after it has told that the job is gone.
func (j *job) prune() {
	j.mu.Lock()
	several := maps.Clone(j.handles)
	j.mu.Unlock()
	if len(several) < 2 {
		return
	}
	for id, h := range several {
		if _, err := h.NextRun(); errors.Is(err, gocron.ErrJobNotFound) {
			j.mu.Lock()
			delete(j.handles, id)
			j.mu.Unlock()
		}
	}
}

// job returns the job of that name.
func (c *Cron) job(name string) *job {
	c.mu.Lock()
	defer c.mu.Unlock()
	j := c.jobs[name]
	if j == nil {
		j = newJob(name)
		c.jobs[name] = j
	}
	return j
}

// all returns the jobs known.
func (c *Cron) all() []*job {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.jobs))
}

func (c *Cron) register(h gocron.Job) {
	j := c.job(h.Name())
	j.mu.Lock()
	j.handles[h.ID()] = h
	if len(j.handles) == 1 {
		close(j.registered)
	}
	j.mu.Unlock()
}

func (c *Cron) unregister(h gocron.Job) {
	j := c.job(h.Name())
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, known := j.handles[h.ID()]; !known {
		return
	}
	delete(j.handles, h.ID())
	if len(j.handles) > 0 {
		return
	}
	j.registered = make(chan struct{})
	j.calls = calls{}
	if len(j.running) == 0 && len(j.handovers) == 0 {
		c.forget(j)
	}
}

func (c *Cron) forget(j *job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.jobs[j.name] == j {
		delete(c.jobs, j.name)
	}
}

// A monitor learns of jobs from the scheduler, and passes everything on.
type monitor struct {
	c    *Cron
	next []gocron.SchedulerMonitor
}

func (m *monitor) each(f func(gocron.SchedulerMonitor)) {
	for _, n := range m.next {
		f(n)
	}
}

func (m *monitor) eachJob(f func(*calls, time.Time)) {
	for _, j := range m.c.all() {
		j.mu.Lock()
		f(&j.calls, m.c.clock.Now())
		j.mu.Unlock()
	}
}

func (m *monitor) SchedulerStarted() {
	m.eachJob((*calls).started)
	m.each(gocron.SchedulerMonitor.SchedulerStarted)
}
func (m *monitor) SchedulerStopped() {
	m.eachJob((*calls).stopped)
	m.each(gocron.SchedulerMonitor.SchedulerStopped)
}
func (m *monitor) SchedulerShutdown() { m.each(gocron.SchedulerMonitor.SchedulerShutdown) }
func (m *monitor) JobRegistered(j gocron.Job) {
	m.c.register(j)
	m.each(func(n gocron.SchedulerMonitor) { n.JobRegistered(j) })
}
func (m *monitor) JobUnregistered(j gocron.Job) {
	m.c.unregister(j)
	m.each(func(n gocron.SchedulerMonitor) { n.JobUnregistered(j) })
}
func (m *monitor) JobStarted(j gocron.Job) {
	m.each(func(n gocron.SchedulerMonitor) { n.JobStarted(j) })
}
func (m *monitor) JobRunning(j gocron.Job) {
	m.each(func(n gocron.SchedulerMonitor) { n.JobRunning(j) })
}
func (m *monitor) JobFailed(j gocron.Job, err error) {
	m.each(func(n gocron.SchedulerMonitor) { n.JobFailed(j, err) })
}
func (m *monitor) JobCompleted(j gocron.Job) {
	m.each(func(n gocron.SchedulerMonitor) { n.JobCompleted(j) })
}
func (m *monitor) JobExecutionTime(j gocron.Job, d time.Duration) {
	m.each(func(n gocron.SchedulerMonitor) { n.JobExecutionTime(j, d) })
}
func (m *monitor) JobSchedulingDelay(j gocron.Job, scheduled, started time.Time) {
	m.each(func(n gocron.SchedulerMonitor) { n.JobSchedulingDelay(j, scheduled, started) })
}
func (m *monitor) ConcurrencyLimitReached(limit string, j gocron.Job) {
	if limit == "singleton" { // of the modes, only Reschedule tells
		m.c.job(j.Name()).drops(j, m.c.clock.Now())
	}
	m.each(func(n gocron.SchedulerMonitor) { n.ConcurrencyLimitReached(limit, j) })
}

// drops: gocron drops a call without asking Lock. While a run goes on, that is so for all ticks that are due.
func (j *job) drops(h gocron.Job, now time.Time) {
	s := scheduleOf(h.Schedule())
	due, next, period, err := ticks(h, &s, now)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.calls.drops = true
	if err == nil && len(j.running) > 0 {
		j.calls.see(due, next, now.Add(early(period)), 0)
		j.calls.owed = 0
	}
}
