package cronlock

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/leader"
	"github.com/lockkit/lockkit/internal/faults"
	"github.com/lockkit/lockkit/internal/gate"
)

// maxConcurrentPolls is how many claims of a Service send requests at a time.
const maxConcurrentPolls = 32

// A Service has the jobs of one service on one replica. It is safe for concurrent use.
type Service struct {
	config
	locker    *core.Locker
	name      string
	replicaID string // names this Service in records and in notes of leases

	closing    context.Context // ends when Close is called
	setClosing context.CancelCauseFunc
	abandoned  context.Context // ends when Close stops waiting
	abandon    context.CancelFunc
	gate       gate.Gate // claims, polls and pollWhenElected are inside

	pollSlots     chan struct{}             // held by claims that send requests to choose a tick
	clocksReadAt  atomic.Pointer[time.Time] // when a poll last read the nodes' clocks
	quorumGranted atomic.Bool               // a quorum of nodes has granted a lease of a job

	mu         sync.Mutex // guards all fields below
	jobs       map[string]*Job
	termClaims map[*claim]bool // claims that have entered the term of the leader
	runClaims  map[*claim]bool // claims that have begun a run
}

// An Option configures New.
type Option func(*config)

type config struct{ elector *leader.Elector }

// WithElector makes only the leader start ticks. A new leader polls all jobs at once. If the leadership is lost, the
// contexts of its runs end. A leader that resigns finishes its runs first. Close of the Service makes e resign, so do
// not share e with a Service that stays open. By default there is no elector: the replicas share the ticks.
func WithElector(e *leader.Elector) Option { return func(c *config) { c.elector = e } }

// New returns a Service of the given name that locks with locker. Replicas of one service use the same name, and
// services that share nodes use different names. After the death of a replica, its job stays taken for as long as the
// TTL of locker. The error names everything that is wrong with the arguments.
func New(locker *core.Locker, service string, opts ...Option) (*Service, error) {
	host, _ := os.Hostname()
	s := &Service{
		name:       service,
		replicaID:  fmt.Sprintf("%s/%d/%s", host, os.Getpid(), rand.Text()[:6]),
		pollSlots:  make(chan struct{}, maxConcurrentPolls),
		jobs:       map[string]*Job{},
		termClaims: map[*claim]bool{},
		runClaims:  map[*claim]bool{},
	}
	s.clocksReadAt.Store(new(time.Time))

	var f faults.List
	faults.Set(&f, &s.config, opts)
	f.Check(locker == nil, "locker is nil")
	f.Check(service == "", "the service name is empty: it keeps the jobs of services that share nodes apart")
	f.Check(!utf8.ValidString(service), "the service name %q is not valid UTF-8", service)
	if err := f.Err("cronlock"); err != nil {
		return nil, err
	}

	// Detached, because the end of a caller's context only tells a run to stop: the lease must last until it has
	// returned.
	var err error
	s.locker, err = locker.With(core.Detached(true), core.MaxHold(0), core.MaxWait(0), core.Note(s.replicaID))
	if err != nil {
		return nil, fmt.Errorf("cronlock: %w", err)
	}

	closing, setClosing := context.WithCancelCause(context.Background()) //nolint:forbidigo // lives until Close
	s.closing = closing
	s.setClosing = setClosing
	abandoned, abandon := context.WithCancel(context.Background()) //nolint:forbidigo // lives until Close stops waiting
	s.abandoned = abandoned
	s.abandon = abandon
	if s.elector != nil {
		s.gate.Go(s.pollWhenElected)
	}
	return s, nil
}

// Add adds a job. Replicas identify a job by its name, which must be the same on all of them and in all releases. From
// now on the engine polls the job. The latest due tick starts at once if it was not started and is within the grace.
//
// The context of fn ends when fn must stop: with the context of the call that began the run, or with a cause that
// matches core.ErrLost when the lease or the leadership was lost. [FromContext] returns the run. The error of Add names
// everything that is wrong with the arguments, such as a name that another job of the Service has. Nothing is added
// then.
func (s *Service) Add(name string, schedule Schedule, fn func(ctx context.Context) error, opts ...JobOption) (*Job, error) {
	ttl := s.locker.TTL()
	j := &Job{
		service:  s,
		name:     name,
		schedule: schedule,
		fn:       fn,
		added:    s.now(),
		policy:   policy{startLimit: 1, grace: max(time.Minute, 3*ttl)},
	}

	var f faults.List
	faults.Set(&f, &j.policy, opts)
	f.Check(fn == nil, "the function is nil")
	f.Check(name == "", "the job name is empty: replicas know the job by it")
	f.Check(!utf8.ValidString(name), "the job name %q is not valid UTF-8", name)
	if err := checkSchedule(schedule, j.added); err != nil {
		f = append(f, err)
	}
	f.Check(j.startLimit < 1 || j.startLimit > maxStarts, "AtLeastOnce(%d): must be 1 to %d", j.startLimit, maxStarts)
	f.Check(j.grace < ttl+time.Second,
		"a grace of %v is shorter than the TTL %v plus 1s: a tick whose replica dies would be lost", j.grace, ttl)
	f.Check(j.grace > year-24*time.Hour, "a grace of %v is longer than 365 days, for which records last", j.grace)
	f.Check(j.hostCount > 0 && j.host == nil, "the host is nil")
	f.Check(j.hostCount > 1, "there are %d hosts", j.hostCount)
	if s.closing.Err() != nil {
		f = append(f, core.ErrClosed)
	}

	s.removeIfGone(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	f.Check(s.jobs[name] != nil, "another job has this name, and both would count as one")
	if err := f.Err(fmt.Sprintf("cronlock: job %q", name)); err != nil {
		return nil, err
	}

	// removed ends with the Service, too.
	removed, remove := context.WithCancelCause(s.closing)
	j.removed = removed
	j.remove = remove
	j.pollSlot = make(chan struct{}, 1)
	j.poller = newPoller(&s.gate, j.poll)
	s.jobs[name] = j

	// The first polls of replicas that start together are spread a little.
	j.poller.pollWithin(jitter() / 5)
	return j, nil
}

// removeIfGone removes the job of a name if its host has removed it.
func (s *Service) removeIfGone(name string) {
	s.mu.Lock()
	j := s.jobs[name]
	s.mu.Unlock()
	if j != nil && j.isHostGone() {
		j.Remove() // locks s.mu
	}
}

// pollWhenElected polls all jobs, now and each time this process becomes leader, until the Service is closed.
func (s *Service) pollWhenElected() {
	for s.closing.Err() == nil {
		// Before the polls, so that no election is missed.
		began := s.elector.Began()

		s.mu.Lock()
		for _, j := range s.jobs {
			j.poller.pollWithin(0)
		}
		s.mu.Unlock()

		select {
		case <-began:
		case <-s.closing.Done():
		}
	}
}

// isLeading reports whether this process may start ticks.
func (s *Service) isLeading() bool { return s.elector == nil || s.elector.IsLeader(s.closing) == nil }

// now returns the time by the nodes' clocks, as far as they are known.
func (s *Service) now() time.Time {
	ahead, _ := s.locker.ClockOffset()
	return time.Now().UTC().Add(ahead)
}

// Close ends the Service. Nothing starts from now on, and calls such as RunDue fail with core.ErrClosed. The elector
// resigns, and the runs of this replica leave the term: they go on under the leases of their jobs, and another process
// may lead. Close waits for these runs, including runs that the engine began, and for the records of their ends. If ctx
// ends first, Close returns its cause and the names of the jobs that run. The runs go on under their leases until the
// Locker is closed. Stop the host before Close, and close the elector and the Locker after it.
//
// In a run of the Service, Close would wait for itself. If ctx is the context of the run, the error matches
// core.ErrInvalid, and nothing is closed. With any other ctx, Close cannot recognize the call, and waits until ctx
// ends.
func (s *Service) Close(ctx context.Context) error {
	if j, inside := ctx.Value(runJobKey{s}).(*Job); inside {
		return fmt.Errorf("cronlock: %w: Close is called in a run of job %q, for which it would wait",
			core.ErrInvalid, j.name)
	}

	// No claim enters from here on. Then the runs leave the term, so that the resignation need not wait for them.
	s.gate.Close()
	s.setClosing(core.ErrClosed)
	s.leaveTerm()
	err := s.waitEmpty(ctx)
	if err == nil {
		return nil
	}

	s.abandon()
	return fmt.Errorf("cronlock: not everything has ended; jobs that run: %q: %w", s.runningJobs(), err)
}

// waitEmpty makes the elector resign, and waits until all claims and polls have left the gate, or until ctx ends.
func (s *Service) waitEmpty(ctx context.Context) error {
	if s.elector != nil {
		s.resignUntilEmpty(ctx)
	}
	return s.gate.Wait(ctx)
}

// resignUntilEmpty makes the elector resign until the gate is empty or ctx ends. If this process is elected in that
// time, it resigns again, because it could not start anything.
func (s *Service) resignUntilEmpty(ctx context.Context) {
	for {
		// Before the resignation, so that no election is missed.
		began := s.elector.Began()
		s.elector.Resign()

		select {
		case <-began:
		case <-s.gate.Empty():
			return
		case <-ctx.Done():
			return
		}
	}
}

// leaveTerm makes all claims exit the term.
func (s *Service) leaveTerm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.termClaims {
		c.term.exitTerm()
	}
}

// addTermClaim adds a claim that has entered the term. It fails once the Service is closed.
func (s *Service) addTermClaim(c *claim) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.termClaims[c] = true
	return context.Cause(s.closing)
}

// addRun adds a claim that begins a run.
func (s *Service) addRun(c *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()

	// A host may call a claim twice.
	if !s.runClaims[c] {
		c.job.activeRuns.Add(1)
	}
	s.runClaims[c] = true
}

// removeClaim removes a claim that has ended.
func (s *Service) removeClaim(c *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.runClaims[c] {
		c.job.activeRuns.Add(-1)
	}
	delete(s.runClaims, c)
	delete(s.termClaims, c)
}

// runningJobs returns the names of the jobs that run, including removed jobs.
func (s *Service) runningJobs() (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.runClaims {
		names = append(names, c.job.name)
	}

	slices.Sort(names)
	return slices.Compact(names)
}
