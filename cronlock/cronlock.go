package cronlock

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"reflect"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/faults"
	"github.com/lockkit/lockkit/internal/gate"
)

// source names this package in events.
const source = "cronlock"

// A Cron makes the jobs of one gocron scheduler run once across replicas. It is a gocron.Locker, safe for
// concurrent use.
type Cron struct {
	config
	locks   *core.Locker
	service string
	self    string // who runs a tick, in its record
	handoff handoff

	closing context.Context // ends with Close
	close   context.CancelFunc
	gate    gate.Gate // who is inside: runs, and goroutines that watch for the end of others' runs

	mu     sync.Mutex
	jobs   map[string]*job
	active int       // runs under way
	ended  time.Time // when a run, or a call that came to nothing, has last ended
}

var _ gocron.Locker = (*Cron)(nil)

// New returns a Cron whose locks are taken with locks, under the name of the service: replicas of one service
// share it, others do not. The TTL of locks says how long a job stays taken after its replica died. The error
// names every fault of the options.
func New(locks *core.Locker, service string, opts ...Option) (*Cron, error) {
	c := defaults()
	var f faults.List
	faults.Apply(&f, opts, func(o Option) { o.apply(&c) })
	f.Check(locks == nil, "locks is nil")
	f.Check(service == "", "the service's name is empty: it keeps the jobs of services apart that share nodes")
	c.check(&f)
	if err := f.Err("cronlock"); err != nil {
		return nil, err
	}
	host, _ := os.Hostname()
	cron := &Cron{config: c, locks: locks, service: service, jobs: map[string]*job{},
		self: fmt.Sprintf("%s/%d/%s", host, os.Getpid(), rand.Text()[:6])}
	cron.closing, cron.close = context.WithCancel(context.Background()) //nolint:forbidigo // lives until Close
	if c.elector != nil {
		c.elector.follow(cron, true)
	}
	return cron, nil
}

// Options are what gocron.NewScheduler needs for its jobs to run once across replicas: the locker, and a
// monitor that learns of jobs. gocron knows one SchedulerMonitor only, so pass your own here, and not with
// gocron.WithSchedulerMonitor; it hears all that the scheduler tells.
//
// Do not set gocron.WithDistributedElector beside it: gocron then never asks the locker; see WithElector. Nor
// gocron.WithClock, but WithClock.
func (c *Cron) Options(monitors ...gocron.SchedulerMonitor) []gocron.SchedulerOption {
	return []gocron.SchedulerOption{gocron.WithDistributedLocker(c), gocron.WithSchedulerMonitor(&monitor{c: c, next: monitors}), gocron.WithClock(c.clock)}
}

// Job gives a job other policies than those of New. Bad ones are an error of NewJob.
func (c *Cron) Job(opts ...JobOption) gocron.JobOption {
	p := c.policy
	var f faults.List
	faults.Apply(&f, opts, func(o JobOption) { o.applyJob(&p) })
	p.check(&f, c.clockLimit)
	if err := f.Err("cronlock"); err != nil {
		return failingOption(err)
	}
	return gocron.WithDistributedJobLocker(&jobLocker{c, p})
}

// failingOption makes an option that fails. Its type has a parameter that only gocron can name.
func failingOption(err error) gocron.JobOption {
	t := reflect.TypeFor[gocron.JobOption]()
	f := reflect.MakeFunc(t, func([]reflect.Value) []reflect.Value { return []reflect.Value{reflect.ValueOf(&err).Elem()} })
	return f.Interface().(gocron.JobOption)
}

// A jobLocker is the Cron with the policy of one job.
type jobLocker struct {
	c *Cron
	p policy
}

// Close ends the Cron: Lock fails with core.ErrClosed from now on, and runs of others are not watched any
// more. It waits for own runs to end; when ctx ends first, it returns its cause, and the runs go on under
// their leases. Shut the scheduler down before, and close the elector and the Locker after.
func (c *Cron) Close(ctx context.Context) error {
	c.gate.Close()
	c.close()
	if c.elector != nil {
		c.elector.follow(c, false)
	}
	return wait(ctx, c.gate.Empty(), "runs are still under way")
}

// enter lets a run in, and into the term in which this process leads, if it must. Whoever gets no error owes a leave.
func (c *Cron) enter() (*term, error) {
	if !c.gate.Enter() {
		return nil, core.ErrClosed
	}
	if c.elector == nil {
		return nil, nil
	}
	t, err := c.elector.enter()
	if err != nil {
		c.gate.Leave()
	}
	return t, err
}

func (c *Cron) leave(t *term) {
	t.leave()
	c.gate.Leave()
}

// busy counts runs that start and end.
func (c *Cron) busy(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active += n
	c.ended = c.clock.Now()
}

// quiet is for how long nothing has been going on.
func (c *Cron) quiet() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.active > 0 || c.ended.IsZero() {
		return 0
	}
	return c.clock.Now().Sub(c.ended)
}

// ClockOffset returns by how much the nodes' clocks are ahead of the scheduler's. It is false before any node
// has replied: then the offset is only that of the scheduler's clock from the machine's.
func (c *Cron) ClockOffset() (time.Duration, bool) {
	ahead, ok := c.locks.ClockOffset()
	return ahead + time.Now().Round(0).Sub(c.clock.Now().Round(0)), ok // wall clocks: a clock may have no other
}

// now returns the time by the nodes' clocks, as far as they are known.
func (c *Cron) now() time.Time {
	ahead, _ := c.ClockOffset()
	return c.clock.Now().Add(ahead)
}
