package queuelock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/callback"
	"github.com/lockkit/lockkit/internal/faults"
	"github.com/lockkit/lockkit/internal/pause"
	"github.com/lockkit/lockkit/internal/schedule"
)

const (
	enqueueTimeout = 10 * time.Minute // how long a tick is tried, unless the next one is due first
	tickRetention  = time.Hour        // how long asynq keeps the id of a tick, so that a late replica finds it
	maxSleep       = time.Minute      // the longest sleep, after which a change of the wall clock is noticed
)

// A Scheduler enqueues tasks by the clock, as an asynq.Scheduler does, but each tick once for all replicas of a
// service. Each replica runs a Scheduler. It is safe for concurrent use. The package document describes the ticks.
type Scheduler struct {
	m        *Middleware
	client   *asynq.Client
	service  string
	location *time.Location
	now      func() time.Time

	ctx     context.Context // ends with Shutdown
	cancel  context.CancelFunc
	entries sync.WaitGroup // a goroutine per entry

	// mu guards names. It also keeps Register from adding to entries after Shutdown has called cancel.
	mu    sync.Mutex
	names map[string]bool // of entries
}

// An entry is one schedule of a Scheduler. After Register, only its goroutine uses it.
type entry struct {
	*Scheduler
	name string
	next schedule.NextFunc
	task *asynq.Task
	opts []asynq.Option

	callbacks callback.Queue // calls of the observer and the logger
}

// NewScheduler returns a Scheduler that enqueues with client, which the caller closes after Shutdown. Replicas of one
// service use the same name, and services that share asynq's Redis different names. The time zone of all cronspecs is
// in, the same on all replicas. The local time zone is an error, because it may differ between replicas. Only the
// logger and the observer of the Locker are used: ticks are enqueued even while the locks are unavailable.
func (m *Middleware) NewScheduler(client *asynq.Client, service string, in *time.Location) (*Scheduler, error) {
	var f faults.List
	zoneErr := schedule.CheckZone(in)
	f.Check(zoneErr != nil, "%w", zoneErr)
	f.Check(client == nil, "the client is nil")
	f.Check(service == "" || !utf8.ValidString(service),
		"the service name %q is empty or not valid UTF-8: it keeps the ticks of services apart", service)
	if err := f.Err("queuelock: scheduler"); err != nil {
		return nil, err
	}

	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // lives until Shutdown
	return &Scheduler{
		m:        m,
		client:   client,
		service:  service,
		location: in,
		now:      time.Now,
		ctx:      ctx,
		cancel:   cancel,
		names:    map[string]bool{},
	}, nil
}

// Register makes the Scheduler enqueue a task at each instant that cronspec names, from now on. Replicas know the entry
// by its name.
//
// The cronspec is a cron expression of five fields, or six with the seconds first, or a descriptor such as @daily, as
// robfig/cron reads them. It names each instant at which the clocks of the Scheduler's time zone show its time. When
// clocks go back, a time that they show twice is two ticks; when they go forward, a time that they skip is none. A
// cronspec that never falls due is an error, and so is a cronspec with a time zone (TZ=, CRON_TZ=). The cronspec
// "@every 30s" is due at the multiples of 30 s since the beginning of 1970 in UTC, whenever replicas start. The
// shortest period is a second.
//
// The options of the task and opts are asynq's, except that the id and the retention come from here: asynq.TaskID,
// asynq.Unique and asynq.Group are errors, and so is an asynq.Retention of less than an hour, the default. The same
// goes for asynq.Unique and asynq.Group as options of asynq.NewTask; its other options are used unless opts or the
// Scheduler set them. A task that asynq would not enqueue is an error, for example a task for a queue with an empty
// name or a task with a type that is not valid UTF-8. The error names everything that is invalid. Register sends no
// request.
func (s *Scheduler) Register(name, cronspec string, task *asynq.Task, opts ...asynq.Option) error {
	var f faults.List
	next, err := parseCronspec(cronspec, s.location)
	f.Check(err != nil, "cronspec %q: %w", cronspec, err)
	f.Check(name == "" || !utf8.ValidString(name),
		"the name is empty or not valid UTF-8: replicas know the entry by it")

	hasType := task != nil && strings.TrimSpace(task.Type()) != ""
	f.Check(!hasType, "the task is nil or has no type")

	tickOpts := []asynq.Option{asynq.Retention(tickRetention)}
	for _, o := range opts {
		if err := checkTickOption(o); err != nil {
			f.Check(true, "%w", err)
		} else {
			tickOpts = append(tickOpts, o)
		}
	}
	if hasType {
		err := dryRun(task, tickOpts)
		f.Check(err != nil, "%w", err)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	f.Check(s.names[name], "another entry has this name, and both would count as one")
	f.Check(s.ctx.Err() != nil, "the scheduler has been shut down")
	if err := f.Err(fmt.Sprintf("queuelock: entry %q", name)); err != nil {
		return err
	}

	s.names[name] = true
	e := &entry{Scheduler: s, name: name, next: next, task: task, opts: tickOpts}
	registeredAt := s.wallClock()
	s.entries.Go(func() { e.run(registeredAt) })
	return nil
}

// checkTickOption returns an error if an entry must not have the option.
func checkTickOption(o asynq.Option) error {
	if o == nil {
		return errors.New("an option is nil")
	}

	switch o.Type() {
	case asynq.TaskIDOpt, asynq.UniqueOpt:
		return fmt.Errorf("%v is among the options: a tick has an id that makes it unique", o)
	case asynq.GroupOpt:
		return fmt.Errorf("%v is among the options: "+
			"asynq forgets the id of a task that it aggregates, so a tick could run twice", o)
	case asynq.RetentionOpt:
		if retention, ok := o.Value().(time.Duration); ok && retention < tickRetention {
			return fmt.Errorf("%v is among the options: asynq must know the id of a tick for %v", o, tickRetention)
		}
	default: // does not change what a tick is
	}
	return nil
}

// wallClock returns the current time without a monotonic reading. Ticks are instants of the wall clock, which may be
// set: a comparison of monotonic readings would not notice that.
func (s *Scheduler) wallClock() time.Time { return s.now().Round(0) }

// Shutdown stops the Scheduler for good, and waits until it enqueues nothing any more. Ticks that are due from then on
// are left to other replicas.
func (s *Scheduler) Shutdown() {
	s.mu.Lock()
	s.cancel()
	s.mu.Unlock()

	s.entries.Wait()
}

// parseCronspec parses a cronspec.
func parseCronspec(spec string, location *time.Location) (schedule.NextFunc, error) {
	period, isPeriod := strings.CutPrefix(strings.TrimSpace(spec), "@every ")
	if !isPeriod {
		return schedule.Crontab(spec, location)
	}

	d, err := time.ParseDuration(strings.TrimSpace(period))
	if err != nil {
		return nil, err
	}
	return schedule.Every(d)
}

// run enqueues the ticks that fall due after last.
func (e *entry) run(last time.Time) {
	for e.ctx.Err() == nil {
		now := e.wallClock()
		if now.Before(last) { // the clock was set back; asynq has the ids of the ticks that were enqueued
			last = now
		}

		at := e.next(last)
		if at.IsZero() {
			return // no clock of the zone shows the time of the cronspec, for decades
		}
		if wait := at.Sub(now); wait > 0 {
			pause.For(e.ctx, min(wait, maxSleep))
			continue
		}

		// The time of a tick ends when the next one is due.
		timeout := min(enqueueTimeout, e.next(at).Sub(at))
		remaining := at.Add(timeout).Sub(now)
		if remaining > 0 {
			e.enqueue(at, remaining)
			last = at
			continue
		}

		// The process was suspended. All ticks until now are skipped.
		last = now
		e.notify(func() {
			e.m.locker.Logger().Warn("queuelock: ticks fell due while this process was suspended: "+
				"they are left to other replicas",
				"service", e.service, "entry", e.name, "first", formatInstant(at))
		})
	}
}

// enqueue enqueues a tick in the remaining time, unless another replica has enqueued it: then asynq knows its id.
func (e *entry) enqueue(at time.Time, remaining time.Duration) {
	ctx, cancel := context.WithTimeout(e.ctx, remaining)
	defer cancel()

	id := ID("tick", e.service, e.name, formatInstant(at))
	for {
		_, err := e.client.EnqueueContext(ctx, e.task, append(slices.Clip(e.opts), id)...)
		if err == nil || errors.Is(err, asynq.ErrTaskIDConflict) {
			return
		}

		inTime := pause.For(ctx, time.Second/4)
		if !inTime {
			e.reportMissed(id, err)
			return
		}
	}
}

// reportMissed reports a tick that was not enqueued in time. After Shutdown, it reports nothing.
func (e *entry) reportMissed(id asynq.Option, err error) {
	if e.ctx.Err() != nil {
		return
	}

	e.notify(func() {
		e.m.locker.Event(e.ctx, core.Event{Source: "queuelock", Name: e.task.Type(), Kind: EventTickMissed})
	})
	e.notify(func() {
		e.m.locker.Logger().Error("queuelock: a tick was not enqueued in time: enqueue it by hand, with this id",
			"service", e.service, "entry", e.name, "type", e.task.Type(), "id", id.Value(), "err", err)
	})
}

// notify calls the observer or the logger in the background, so that the next tick does not wait for them.
func (e *entry) notify(f func()) { callback.BackgroundOf(e.m.locker).Post(&e.callbacks, f) }

func formatInstant(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) }
