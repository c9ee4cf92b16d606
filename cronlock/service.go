package cronlock

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/cronlock/leader"
	"github.com/lockkit/lockkit/internal/faults"
	"github.com/lockkit/lockkit/internal/gate"
)

// atOnce is how many claims of a Service ask the nodes at a time.
const atOnce = 32

// A Service has the jobs of one service on one replica. It is safe for concurrent use.
type Service struct {
	config
	locker *core.Locker
	name   string
	self   string // in records

	closing context.Context // ends with Close
	close   context.CancelCauseFunc
	gate    gate.Gate                 // claims, and looks
	turns   chan struct{}             // of claims that ask for what to start
	asked   atomic.Pointer[time.Time] // when a look last asked the nodes for their clocks

	mu   sync.Mutex
	jobs map[string]*Job
}

// An Option configures New.
type Option func(*config)

type config struct{ elector *leader.Elector }

// WithElector makes only the leader start ticks. A new leader looks at once for ticks to start. If the leadership is lost,
// the context of a run ends; a leader that resigns finishes its runs first. By default there is no elector: the replicas
// share the ticks.
func WithElector(e *leader.Elector) Option { return func(c *config) { c.elector = e } }

// New returns a Service of the given name, whose locks are taken with locker. Replicas of one service use the same name,
// and services that share nodes use different names. After the death of a replica, its job stays taken for as long as the
// TTL of locker. The error names everything that is wrong with the arguments.
func New(locker *core.Locker, service string, opts ...Option) (*Service, error) {
	host, _ := os.Hostname()
	s := &Service{name: service, jobs: map[string]*Job{}, turns: make(chan struct{}, atOnce)}
	s.asked.Store(new(time.Time))
	s.self = fmt.Sprintf("%s/%d/%s", host, os.Getpid(), rand.Text()[:6])
	var f faults.List
	faults.Set(&f, &s.config, opts)
	f.Check(locker == nil, "locker is nil")
	f.Check(service == "", "the service name is empty: it keeps the jobs of services that share nodes apart")
	if err := f.Err("cronlock"); err != nil {
		return nil, err
	}
	// A run outlasts the context of its host, which tells it to stop, until it has returned.
	var err error
	if s.locker, err = locker.With(core.Detached(true), core.MaxHold(0), core.MaxWait(0), core.Note(s.self)); err != nil {
		return nil, fmt.Errorf("cronlock: %w", err)
	}
	s.closing, s.close = context.WithCancelCause(context.Background()) //nolint:forbidigo // lives until Close
	if s.elector != nil {
		s.gate.Go(s.follow)
	}
	return s, nil
}

// Add adds a job. Replicas know a job by its name, which must be the same on all of them and in all releases. From now on
// the engine looks for the job's ticks. The latest due tick starts at once if it was not started and is within the grace.
//
// The context of fn ends when fn must stop: with the context of the call that began the run, or with a cause that matches
// core.ErrLost when the lease or the leadership was lost. [FromContext] returns the run. The error of Add names everything
// that is wrong with the arguments, and then nothing is added; a name that another job of the Service has is wrong, too.
func (s *Service) Add(name string, schedule Schedule, fn func(ctx context.Context) error, opts ...JobOption) (*Job, error) {
	ttl := s.locker.TTL()
	j := &Job{service: s, name: name, schedule: schedule, fn: fn, added: s.now(), policy: policy{starts: 1, grace: max(time.Minute, 3*ttl)}}
	var f faults.List
	faults.Set(&f, &j.policy, opts)
	f.Check(fn == nil, "the function is nil")
	f.Check(name == "", "the job name is empty: replicas know the job by it")
	if err := checkSchedule(schedule, j.added); err != nil {
		f = append(f, err)
	}
	f.Check(j.starts < 1 || j.starts > maxStarts, "AtLeastOnce(%d): must be 1 to %d", j.starts, maxStarts)
	f.Check(j.grace < ttl+time.Second, "a grace of %v is shorter than the TTL %v plus 1s: a tick whose replica dies would be lost", j.grace, ttl)
	f.Check(j.grace > year-24*time.Hour, "a grace of %v is longer than 365 days, for which records last", j.grace)
	f.Check(j.hosts > 0 && j.host == nil, "the host is nil")
	f.Check(j.hosts > 1, "there are %d hosts", j.hosts)
	if s.closing.Err() != nil {
		f = append(f, core.ErrClosed)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f.Check(s.jobs[name] != nil, "another job has this name, and both would count as one")
	if err := f.Err(fmt.Sprintf("cronlock: job %q", name)); err != nil {
		return nil, err
	}
	j.gone, j.remove = context.WithCancelCause(s.closing)
	s.jobs[name] = j
	j.timer = time.AfterFunc(lookAnyway, func() { s.gate.Go(j.look) })
	j.lookIn(jitter() / 5)
	return j, nil
}

// follow makes all jobs be looked at when this process becomes leader.
func (s *Service) follow() {
	for s.closing.Err() == nil {
		began := s.elector.Began()
		s.mu.Lock()
		for _, j := range s.jobs {
			j.lookIn(0)
		}
		s.mu.Unlock()
		select {
		case <-began:
		case <-s.closing.Done():
		}
	}
}

// leads reports whether this process may start ticks.
func (s *Service) leads() bool { return s.elector == nil || s.elector.IsLeader(s.closing) == nil }

// now returns the time by the nodes' clocks, as far as they are known.
func (s *Service) now() time.Time {
	ahead, _ := s.locker.ClockOffset()
	return time.Now().UTC().Add(ahead)
}

// Close ends the Service: nothing starts from now on, for which the reason is core.ErrClosed. It waits for the runs of this
// replica, those that the engine began included. If ctx ends first, Close returns its cause and the names of the jobs that
// run; the runs go on under their leases until the Locker is closed. Stop the host before, and close the elector and the
// Locker after it.
func (s *Service) Close(ctx context.Context) error {
	s.gate.Close()
	s.close(core.ErrClosed)
	err := s.gate.Wait(ctx)
	if err == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	running := maps.Clone(s.jobs)
	maps.DeleteFunc(running, func(_ string, j *Job) bool { return j.running.Load() == 0 })
	return fmt.Errorf("cronlock: not everything has ended; jobs that run: %q: %w", slices.Sorted(maps.Keys(running)), err)
}
