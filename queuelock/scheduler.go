package queuelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/faults"
)

// A Scheduler enqueues tasks by the clock, as an asynq.Scheduler does, but each tick once for all replicas of a service,
// on which one runs each. It is safe for concurrent use. The package documentation says what becomes of a tick.
type Scheduler struct {
	client   *asynq.Client
	locker   *core.Locker
	service  string
	location *time.Location
	now      func() time.Time // by the nodes' clocks

	mu      sync.Mutex
	entries map[string]*entry
	started bool
	open    context.Context // ends with Shutdown
	end     context.CancelFunc
	running sync.WaitGroup // a goroutine per entry
}

// A SchedulerOption configures NewScheduler.
type SchedulerOption interface{ applyScheduler(*Scheduler) }

type schedulerOption func(*Scheduler)

func (o schedulerOption) applyScheduler(s *Scheduler) { o(s) }

// WithLocation sets the time zone of cronspecs that name none by CRON_TZ=. It must be the same on all replicas. Default
// UTC, as in asynq.
func WithLocation(l *time.Location) SchedulerOption {
	return schedulerOption(func(s *Scheduler) { s.location = l })
}

// NewScheduler returns a Scheduler that enqueues by client and takes its locks with locker; both stay the caller's, to be
// closed after Shutdown. Replicas of one service share its name; others that use the same lock nodes have another one.
// The error names every fault.
func NewScheduler(client *asynq.Client, locker *core.Locker, service string, opts ...SchedulerOption) (*Scheduler, error) {
	s := &Scheduler{client: client, locker: locker, service: service, location: time.UTC, entries: map[string]*entry{}}
	s.now = func() time.Time {
		ahead, _ := locker.ClockOffset()
		return time.Now().Add(ahead)
	}
	c := newConfig(nil)
	f := &c.faults
	f.Check(client == nil, "the client is nil")
	c.checkLocker(locker)
	f.Check(service == "", "the service's name is empty: it keeps the ticks of services apart that share lock nodes")
	f.Check(!utf8.ValidString(service), "the service's name %q is not valid UTF-8: asynq takes no id that is made of it", service)
	faults.Apply(f, opts, func(o SchedulerOption) { o.applyScheduler(s) })
	f.Check(s.location == nil, "the location is nil")
	if err := f.Err("queuelock: scheduler"); err != nil {
		return nil, err
	}
	s.open, s.end = context.WithCancel(context.Background()) //nolint:forbidigo // lives until Shutdown
	return s, nil
}

// Register has a task enqueued whenever cronspec is due, and returns the entry's id. The cronspec is as in asynq; that of
// "@every 30s" is due at the multiples of 30 s since 1970, whenever replicas start. Replicas know an entry by the type
// and the payload of its task and its cronspec, which must be the same on all of them; where they are not, or two entries
// share them, see [Scheduler.RegisterAs].
//
// The task has an id made of the tick: the option asynq.TaskID is an error, and without effect if asynq.NewTask was given
// it. With asynq.Unique, a tick is left out whose like is still in the queue. All other options of the task and opts are
// asynq's. The error names every fault.
func (s *Scheduler) Register(cronspec string, task *asynq.Task, opts ...asynq.Option) (id string, err error) {
	return s.RegisterAs(nameOf(cronspec, task), cronspec, task, opts...)
}

// RegisterAs is Register for an entry that replicas know by this name, which is its id. Entries under one name are one
// for as long as their ticks fall on the same instants, also while a release changes task or cronspec.
func (s *Scheduler) RegisterAs(name, cronspec string, task *asynq.Task, opts ...asynq.Option) (id string, err error) {
	var f faults.List
	next, err := parse(cronspec, s.location, s.now())
	f.Check(err != nil, "cronspec %q: %w", cronspec, err)
	f.Check(name == "", "the entry's name is empty: replicas know it by that")
	f.Check(!utf8.ValidString(name), "the entry's name %q is not valid UTF-8: asynq takes no id that is made of it", name)
	checkTask(&f, task, opts)
	s.mu.Lock()
	defer s.mu.Unlock()
	f.Check(s.entries[name] != nil, "entry %q is registered already, and replicas could not tell the two apart: give one of them another name (RegisterAs)", name)
	f.Check(s.open.Err() != nil, "the scheduler has been shut down")
	if len(f) > 0 {
		return "", f.Err("queuelock: not registered")
	}
	e := &entry{s: s, name: name, next: next, task: task, opts: slices.Clone(opts)}
	e.open, e.end = context.WithCancel(s.open)
	s.entries[name] = e
	if s.started {
		s.running.Go(e.run)
	}
	return name, nil
}

// Unregister removes an entry; a tick of it that is being enqueued may still be. An error says that there is none of this
// id.
func (s *Scheduler) Unregister(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[id]
	if e == nil {
		return fmt.Errorf("queuelock: no entry %q is registered", id)
	}
	e.end()
	delete(s.entries, id)
	return nil
}

// Start starts the scheduler. An error says that it runs already, or has been shut down.
func (s *Scheduler) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.open.Err() != nil:
		return errors.New("queuelock: the scheduler has been shut down")
	case s.started:
		return errors.New("queuelock: the scheduler is running already")
	}
	s.started = true
	for _, e := range s.entries {
		s.running.Go(e.run)
	}
	return nil
}

// Shutdown stops the scheduler for good, and waits until it enqueues nothing any more. What is due from then on is left
// to other replicas. It may be called again.
func (s *Scheduler) Shutdown() {
	s.mu.Lock()
	s.end() // nothing is started after it
	s.mu.Unlock()
	s.running.Wait()
}

// Run starts the scheduler, waits for SIGTERM, an interrupt or a call of Shutdown, and shuts it down. The error is that of
// Start.
func (s *Scheduler) Run() error {
	if err := s.Start(); err != nil {
		return err
	}
	ended, stop := signal.NotifyContext(s.open, os.Interrupt, syscall.SIGTERM)
	defer stop()
	<-ended.Done()
	s.Shutdown()
	return nil
}
