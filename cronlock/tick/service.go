package tick

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/faults"
	"github.com/lockkit/lockkit/internal/gate"
	"github.com/lockkit/lockkit/internal/join"
	"github.com/lockkit/lockkit/internal/pause"
)

// source names events, and is that of package cronlock: they are the same wherever ticks come from.
const source = "cronlock"

// A Service makes the ticks of its jobs run once across the replicas of a service. It is safe for concurrent use.
type Service struct {
	config
	locker *core.Locker
	name   string
	self   string // who runs a tick, in its record

	closing context.Context // ends with Close
	close   context.CancelFunc
	gate    gate.Gate     // runs, and goroutines that follow others' runs
	owed    chan struct{} // has one when a job may have ticks to catch up
	begun   sync.Once     // the goroutines that listen and catch up

	mu      sync.Mutex
	jobs    map[string]*Job
	running map[*Claim]struct{} // also of jobs that were removed
	board   board
	today   func() int64 // the day by the nodes' clocks
}

// New returns a Service of the given name, whose locks are taken with locker: replicas of one service share the name,
// others do not. The TTL of locker says how long a job stays taken after its replica died. The error names every fault of
// the options.
func New(locker *core.Locker, name string, opts ...Option) (*Service, error) {
	c := defaults()
	var f faults.List
	faults.Apply(&f, opts, func(o Option) { o.apply(&c) })
	f.Check(locker == nil, "locker is nil")
	f.Check(name == "", "the service's name is empty: it keeps the jobs of services apart that share nodes")
	c.check(&f)
	if err := f.Err("tick"); err != nil {
		return nil, err
	}
	host, _ := os.Hostname()
	s := &Service{config: c, locker: locker, name: name, jobs: map[string]*Job{}, running: map[*Claim]struct{}{}, owed: make(chan struct{}, 1),
		self: fmt.Sprintf("%s/%d/%s", host, os.Getpid(), rand.Text()[:6])}
	s.today = func() int64 { return s.Now().Unix() / int64(day/time.Second) }
	s.closing, s.close = context.WithCancel(context.Background()) //nolint:forbidigo // lives until Close
	return s, nil
}

// Add adds a job, whose ticks each run fn once across the replicas. Replicas know the job by its name, which must be the
// same on all of them and in all releases. The context of fn ends when the one that the host runs it under does, and when
// fn must not go on: with a cause matching core.ErrLost when a lease was lost, [ErrLeadershipLost], or [ErrReplaced].
// [FromContext] describes the run, core.FromContext has its lease.
//
// The error of Add names every fault of the options; a name that is empty or not valid UTF-8, or that another job
// of this Service has, is one.
func (s *Service) Add(name string, fn func(ctx context.Context) error, opts ...JobOption) (*Job, error) {
	p := s.policy
	var f faults.List
	faults.Apply(&f, opts, func(o JobOption) { o.applyJob(&p) })
	f.Check(fn == nil, "the function is nil")
	f.Check(name == "", "the job's name is empty: replicas know the job by it")
	f.Check(!utf8.ValidString(name), "the job's name is not valid UTF-8: a pause of the job could not be recorded under it")
	p.check(&f, s.clockLimit)
	p.checkSchedule(&f, s.clock())
	if err := f.Err(fmt.Sprintf("tick: job %q", name)); err != nil {
		return nil, err
	}
	j := newJob(s, name, fn, p)
	for before := s.register(j); before != j; before = s.register(j) {
		if before.policy.host.Has() {
			return nil, fmt.Errorf("tick: job %q: another job has this name, and both would count as one", name)
		}
		before.Remove()
	}
	if p.catchUp > 0 {
		j.owe()
	}
	s.begun.Do(func() {
		s.gate.Go(s.listen)
		s.gate.Go(s.catchUp)
	})
	return j, nil
}

// register returns the job that has the name of j: j itself, if there was none.
func (s *Service) register(j *Job) *Job {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before := s.jobs[j.name]; before != nil {
		return before
	}
	s.jobs[j.name] = j
	return j
}

// all returns the jobs known.
func (s *Service) all() []*Job {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.jobs))
}

// Close ends the Service: no run starts from now on, with core.ErrClosed as the reason, and runs of others are not
// followed any more. It waits for own runs to end; when ctx ends first, it returns its cause and the names of their jobs, and
// the runs go on under their leases until the Locker is closed. Close the elector and the Locker after.
func (s *Service) Close(ctx context.Context) error {
	s.gate.Close()
	s.close()
	err := s.gate.Wait(ctx)
	if err == nil {
		return nil
	}
	if jobs := s.busy(); len(jobs) > 0 {
		return fmt.Errorf("tick: runs are still under way, of %q: %w", jobs, err)
	}
	return fmt.Errorf("tick: requests to the nodes are still under way: %w", err)
}

// busy returns the names of jobs that have runs under way.
func (s *Service) busy() (jobs []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r := range s.running {
		jobs = append(jobs, r.job.name)
	}
	slices.Sort(jobs)
	return slices.Compact(jobs)
}

// term returns the fencing token of the term in which this process leads, 0 where nobody has to, and reports whether it may
// run ticks. It asks nobody.
func (s *Service) term() (token uint64, leads bool) {
	if s.elector == nil {
		return 0, true
	}
	t, err := s.elector.Term()
	return t.FencingToken, err == nil
}

// ClockOffset returns by how much the nodes' clocks are ahead of this replica's (see WithClock). It is false before any
// node has replied: then the offset is only that of the replica's clock from the machine's.
func (s *Service) ClockOffset() (time.Duration, bool) {
	ahead, ok := s.locker.ClockOffset()
	return ahead + time.Now().Round(0).Sub(s.clock().Round(0)), ok // wall clocks: a clock may have no other
}

// Now returns the time by the nodes' clocks, as far as they are known.
func (s *Service) Now() time.Time {
	ahead, _ := s.ClockOffset()
	return s.clock().Add(ahead)
}

// pause reports false when ctx has ended before, or the Service is closed.
func (s *Service) pause(ctx context.Context, d time.Duration) bool {
	ctx, stop := join.Contexts(ctx, s.closing)
	defer stop()
	return pause.For(ctx, d)
}
