package tick

import (
	"time"

	"github.com/lockkit/lockkit/cronlock/leader"
	"github.com/lockkit/lockkit/internal/faults"
)

// An Option configures New.
type Option interface{ apply(*config) }

// A JobOption is a policy of a job: given to New it is the default of all jobs, given to [Service.Add] it is that of one.
type JobOption interface {
	Option
	applyJob(*policy)
}

type option func(*config)

func (o option) apply(c *config) { o(c) }

type jobOption func(*policy)

func (o jobOption) apply(c *config)    { o(&c.policy) }
func (o jobOption) applyJob(p *policy) { o(p) }

type config struct {
	policy     policy
	elector    *leader.Elector
	led        bool // WithElector was given
	clock      func() time.Time
	clockLimit time.Duration
	look       time.Duration // for triggers
}

// A policy is what holds for one job.
type policy struct {
	overlap   Overlap
	attempts  int
	grace     time.Duration
	minGap    time.Duration
	retention time.Duration
	catchUp   int  // negative: not said
	catchesUp bool // WithCatchUp was given
	retries   int
	backoff   time.Duration
	runAnyway bool
	key       string
	keyed     bool                            // WithKey was given
	next      func(after time.Time) time.Time // the schedule; nil: it is not known
	scheduled bool                            // WithSchedule was given
	host      Host
	hosted    bool // WithHost was given
}

func defaults() config {
	return config{
		policy: policy{attempts: 1, grace: time.Minute, catchUp: -1, host: plain},
		clock:  time.Now, clockLimit: time.Minute, look: 3 * time.Second,
	}
}

// Overlap says what happens to a tick while an earlier run of its job goes on, on whatever replica.
type Overlap uint8

const (
	Forbid  Overlap = iota // the tick is skipped; also while the lease of a replica that died lasts
	Allow                  // both run
	Replace                // the earlier run's context ends, with cause ErrReplaced; once it has returned, the tick runs
)

// String returns the policy's name in lower case.
func (o Overlap) String() string {
	if names := [...]string{"forbid", "allow", "replace"}; int(o) < len(names) {
		return names[o]
	}
	return "unknown"
}

// WithOverlap sets what happens to a tick while an earlier run of its job goes on. Default Forbid.
func WithOverlap(o Overlap) JobOption { return jobOption(func(p *policy) { p.overlap = o }) }

// AtMostOnce lets each tick start once: if its replica dies in mid-run, the tick is lost. This is the default.
func AtMostOnce() JobOption { return jobOption(func(p *policy) { p.attempts = 1 }) }

// AtLeastOnce has a replica that saw the tick run it again when the one that ran it does not complete it: the process
// died or was cut off, or the function panicked, or returned an error after it had been told to stop, but for ErrReplaced.
// Any other error is a completion. A tick starts at most attempts times in all: for the first time within the misfire
// grace, and again for as long as the retention, however long the run took that did not complete.
func AtLeastOnce(attempts int) JobOption { return jobOption(func(p *policy) { p.attempts = attempts }) }

// WithMisfireGrace sets how late a tick may start for the first time: because the replica was busy or asleep, or because
// there was no leader. What would start later is missed. Default 1m.
func WithMisfireGrace(d time.Duration) JobOption { return jobOption(func(p *policy) { p.grace = d }) }

// WithCatchUp has ticks run late, within the misfire grace, that nobody started when they fell due: because no replica ran,
// those that ran were asleep, nobody led, or no quorum of nodes answered. Of several, the latest n run: in their order, or
// at once where runs may overlap; 0: none. It needs a schedule that names the same instants on all replicas, and that the
// job knows. A job that is new catches up as well: its first start finds that nobody ran the ticks before it. A tick that
// falls due while late ones run finds an earlier run, see [WithOverlap]: what Forbid skips then is not caught up. By default
// ticks are caught up that fell due since this replica has the job, when it becomes leader ([WithElector]), and after an
// outage under AtLeastOnce.
func WithCatchUp(n int) JobOption {
	return jobOption(func(p *policy) { p.catchUp, p.catchesUp = n, true })
}

// WithSchedule tells the job its schedule, such as one of github.com/robfig/cron: what it needs for [Job.RunDue] and
// [WithCatchUp]. All replicas must have the same, and it must name the same instants on all of them, whenever they were
// started: robfig/cron's cron expressions do, with a CRON_TZ where replicas may be in different time zones, and its Every does
// not. Next returns the first tick after an instant, not at it, and the zero time where there is none; ticks are at least a
// millisecond apart.
func WithSchedule(s interface {
	Next(after time.Time) time.Time
}) JobOption {
	return jobOption(func(p *policy) {
		p.scheduled = true
		if s != nil {
			p.next = s.Next
		}
	})
}

// WithMinGap tells ticks apart by time alone: nobody starts the job within d of its last start, by the nodes'
// clocks. It is the rule for jobs whose ticks differ between replicas (see the package's documentation), with
// a gap that follows from the schedule; set it where that does not fit, or for [Cron.Locker]. Default 0: by the schedule.
func WithMinGap(d time.Duration) JobOption { return jobOption(func(p *policy) { p.minGap = d }) }

// WithRetention sets how long a tick stays taken after its run, and an attempt at it after its start. It must outlast the
// misfire grace and twice the clock limit, so that no replica can come later; under AtLeastOnce also the longest run, or
// nobody makes good for one that does not complete. Default: 3,600 periods, but at least 1h and at most 24h.
func WithRetention(d time.Duration) JobOption { return jobOption(func(p *policy) { p.retention = d }) }

// WithKey sets the key of core whose lease keeps runs of the job apart, as it is: the job then also excludes whatever
// else holds that key, be it another job, a task of queuelock, a route of httplock or a call of core, and they share its
// fencing tokens. Make it with [core.Key]. A tick that finds it held goes the way of WithOverlap: by default it is
// skipped. Nobody may complete the key (core.Once): the job would not run until that record has expired. Default: a key
// of the job's own.
func WithKey(key string) JobOption { return jobOption(func(p *policy) { p.key, p.keyed = key, true }) }

// WithRetry has a run call the function again when it returns an error, at most so many times (0 to 20), after a pause
// of half to all of backoff, which doubles each time. The run keeps its leases meanwhile, so with Forbid the ticks that fall
// due are skipped, and with Replace the next ends it. A panic, and an error after the run was told to stop, are not retried:
// what another replica does about those says AtLeastOnce. [Run] counts the retries. Default 0.
func WithRetry(times int, backoff time.Duration) JobOption {
	return jobOption(func(p *policy) { p.retries, p.backoff = times, backoff })
}

// WithRunAnyway has a tick run unprotected when the nodes cannot be reached, on every replica that it reaches, also with
// an elector. That nodes refuse this replica for its clock is no outage: the tick fails with ErrClock. By default nothing
// runs in an outage.
func WithRunAnyway(on bool) JobOption { return jobOption(func(p *policy) { p.runAnyway = on }) }

// WithElector lets only the leader run jobs, each tick under its lock as without. A run's context also ends with the
// leadership, and a replica that becomes leader runs the ticks that nobody completed, as far as the policy of the job allows
// (see [WithCatchUp]), if they are the same on all replicas. The caller closes the elector.
func WithElector(e *leader.Elector) Option {
	return option(func(c *config) { c.elector, c.led = e, true })
}

// WithClock says which clock the host goes by. Default time.Now.
func WithClock(now func() time.Time) Option { return option(func(c *config) { c.clock = now }) }

// WithClockLimit sets by how much the replica's clock may be off from the nodes'. Past it, ticks fail with
// ErrClock instead of running early or late. Default 1m. The clock window of core applies as well.
func WithClockLimit(d time.Duration) Option { return option(func(c *config) { c.clockLimit = d }) }

// WithTriggerPoll sets how often a replica looks for what others were asked to trigger, give or take a quarter. It costs each
// node one read. Default 3s.
func WithTriggerPoll(d time.Duration) Option { return option(func(c *config) { c.look = d }) }

// WithHost says what runs the job once more for a tick beside its schedule, and whether it still has the job. Default: it is
// called, and is never gone.
func WithHost(h Host) JobOption { return jobOption(func(p *policy) { p.host, p.hosted = h, true }) }

func (c *config) check(f *faults.List) {
	f.Check(c.led && c.elector == nil, "elector is nil")
	f.Check(c.clock == nil, "clock is nil")
	f.Check(c.clockLimit <= 0, "clock limit is %v, must be positive", c.clockLimit)
	f.Check(c.look < time.Second || c.look > day, "trigger poll is %v, must be 1s to 24h", c.look)
	c.policy.check(f, c.clockLimit)
}

func (p *policy) check(f *faults.List, clockLimit time.Duration) {
	f.Check(p.overlap > Replace, "overlap policy %d is unknown", p.overlap)
	f.Check(p.attempts < 1 || p.attempts > maxAttempts, "attempts are %d, must be 1 to %d", p.attempts, maxAttempts)
	f.Check(p.grace <= 0, "misfire grace is %v, must be positive", p.grace)
	f.Check(p.scheduled && p.next == nil, "schedule is nil")
	f.Check(p.catchesUp && p.catchUp < 0, "ticks to catch up are %d, must not be negative", p.catchUp)
	f.Check(p.retries < 0 || p.retries > maxRetries, "retries are %d, must be 0 to %d", p.retries, maxRetries)
	f.Check(p.backoff < 0 || p.backoff > maxBackoff || p.retries > 0 && p.backoff == 0, "backoff is %v, must be positive and at most %v", p.backoff, maxBackoff)
	f.Check(p.minGap < 0, "minimum gap is %v, must not be negative", p.minGap)
	least := p.least(clockLimit)
	f.Check(p.retention != 0 && p.retention < least, "retention is %v, must be at least the misfire grace plus twice the clock limit, %v", p.retention, least)
	f.Check(p.keyed && (p.key == "" || len(p.key) > maxKeyLen), "the job's key has %d bytes, must have 1 to %d", len(p.key), maxKeyLen)
	f.Check(p.host.Run == nil || p.host.Has == nil, "a function of the host is nil")
	f.Check(p.keyed && p.overlap == Allow, "runs may overlap, so the job's key would keep nothing apart")
}

// checkSchedule is for a job: a Service need not know one.
func (p *policy) checkSchedule(f *faults.List, now time.Time) {
	f.Check(p.catchUp > 0 && p.next == nil, "ticks to catch up need a schedule: see WithSchedule")
	f.Check(p.catchUp > 0 && p.minGap > 0, "ticks that are told apart by a minimum gap cannot be caught up")
	if p.next == nil || p.hosted { // a host knows its schedules, and may not have begun with this one
		return
	}
	first := p.next(now)
	second := p.next(first)
	f.Check(!first.IsZero() && (!first.After(now) || !second.IsZero() && second.Sub(first) < leastPeriod),
		"the schedule's next tick must be after the instant that is asked about, and at least %v after the one before", leastPeriod)
	f.Check(!first.IsZero() && !p.next(now.Add(first.Sub(now)/2)).Equal(first),
		"the schedule has other ticks when it is asked at another time, so each replica would run its own: use WithMinGap instead of WithSchedule")
}

// leastPeriod is the least between two ticks: ticks are counted one by one.
const leastPeriod = time.Millisecond

// least is how long a tick has to stay taken, so that no replica comes later.
func (p *policy) least(clockLimit time.Duration) time.Duration { return p.grace + 2*clockLimit }

// maxKeyLen is core's bound on a key.
const maxKeyLen = 512

// maxRetries and maxBackoff bound what WithRetry may ask for: its pauses double.
const maxRetries, maxBackoff = 20, time.Hour

// maxAttempts bounds what AtLeastOnce may ask for: each attempt is looked for in turn.
const maxAttempts = 10
