package cronlock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/jonboulle/clockwork"

	"github.com/lockkit/lockkit/core"
)

// source names this package in events.
const source = "cronlock"

// A Cron makes the jobs of one gocron scheduler run once across replicas. It is a gocron.Locker, safe for
// concurrent use.
type Cron struct {
	locks      *core.Locker
	service    string
	policy     policy
	elector    *Elector
	clock      clockwork.Clock
	clockLimit time.Duration
	logger     *slog.Logger
	self       string // who runs a tick, in its record
	handoff    handoff

	closing context.Context // ends with Close
	close   context.CancelFunc
	tasks   sync.WaitGroup // runs, and goroutines that watch for the end of others' runs

	mu     sync.Mutex
	closed bool
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
	for _, o := range opts {
		if o == nil {
			c.nilOptions++
			continue
		}
		o.apply(&c)
	}
	err := c.check(service)
	if locks == nil {
		err = errors.Join(errors.New("locks is nil"), err)
	}
	if err != nil {
		return nil, fmt.Errorf("cronlock: %w", err)
	}
	host, _ := os.Hostname()
	cron := &Cron{locks: locks, service: service, policy: c.policy, elector: c.elector, clock: c.clock, clockLimit: c.clockLimit,
		logger: c.logger, self: fmt.Sprintf("%s/%d/%s", host, os.Getpid(), rand.Text()[:6]), jobs: map[string]*job{}}
	cron.closing, cron.close = context.WithCancel(context.Background())
	if c.elector != nil {
		c.elector.follow(cron)
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
	var faults []error
	for _, o := range opts {
		if o == nil {
			faults = append(faults, errors.New("an option is nil"))
			continue
		}
		o.applyJob(&p)
	}
	if err := errors.Join(append(faults, p.check(c.clockLimit))...); err != nil {
		return failingOption(fmt.Errorf("cronlock: %w", err))
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
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.close()
	if c.elector != nil {
		c.elector.unfollow(c)
	}
	joined := make(chan struct{})
	go func() {
		c.tasks.Wait()
		close(joined)
	}()
	select {
	case <-joined:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("cronlock: runs are still under way: %w", context.Cause(ctx))
	}
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

// begin books a run or a goroutine, unless the Cron is closed.
func (c *Cron) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.tasks.Add(1)
	return true
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
