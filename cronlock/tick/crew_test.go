package tick

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/cronlock/leader"
	"github.com/lockkit/lockkit/testutil"
	"github.com/lockkit/lockkit/testutil/locktest"
)

// A crew is the members of a service that has one job, and what they ran, in a bubble.
type crew struct {
	t      *testing.T
	nodes  []*testutil.Node
	events locktest.Events
	first  *locktest.Locker

	mu      sync.Mutex
	starts  []start
	refused []error
}

// A start is one of the job's function.
type start struct {
	Run
	by      string
	at      time.Time
	claimed time.Time // when the host asked for it; zero where it did not
}

func inCrew(t *testing.T, f func(t *testing.T, c *crew)) {
	t.Helper()
	inCrewOn(t, 3, 0, f)
}

// inCrewOn is inCrew with so many nodes, which start so long after midnight. One is not touched when it is idle, which tests
// that last for weeks can do without.
func inCrewOn(t *testing.T, nodes int, after time.Duration, f func(t *testing.T, c *crew)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(after)
		c := &crew{t: t, nodes: testutil.NewNodes(t, nodes)}
		c.first = locktest.NewOn(t, c.nodes, core.WithObserver(c.events.Observer()))
		f(t, c)
	})
}

// A post is how a member differs.
type post struct {
	every time.Duration // 0: its host does not call
	ahead time.Duration // of its clock
	led   bool
	opts  []Option
	job   []JobOption
	work  func(ctx context.Context) error
}

// A member is one process of the service.
type member struct {
	*Job
	c       *crew
	name    string
	link    *testutil.Link
	elector *leader.Elector
	stop    context.CancelFunc
	calls   sync.WaitGroup
	once    sync.Once
}

type claimedKey struct{}

func (c *crew) join(name string, p post) *member {
	c.t.Helper()
	locks := c.first.Replica()
	m := &member{c: c, name: name, link: locks.Link}
	clock := func() time.Time { return time.Now().Add(p.ahead) }
	opts := append([]Option{WithClock(clock)}, p.opts...)
	if p.led {
		e, err := leader.New(locks.Locker, "group")
		if err != nil {
			c.t.Fatal(err)
		}
		m.elector, opts = e, append(opts, WithElector(e))
	}
	s, err := New(locks.Locker, "service", opts...)
	if err != nil {
		c.t.Fatal(err)
	}
	job := p.job
	if p.every > 0 {
		job = append([]JobOption{WithSchedule(every(p.every))}, job...)
	}
	m.Job, err = s.Add("job", func(ctx context.Context) error {
		run, _ := FromContext(ctx)
		claimed, _ := ctx.Value(claimedKey{}).(time.Time)
		c.mu.Lock()
		c.starts = append(c.starts, start{run, name, time.Now(), claimed})
		c.mu.Unlock()
		if p.work == nil {
			return nil
		}
		return p.work(ctx)
	}, job...)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	if p.every > 0 {
		m.calls.Go(func() { m.host(ctx, clock, every(p.every)) })
	}
	c.t.Cleanup(m.leave)
	return m
}

// host calls for each tick, as a cron library does.
func (m *member) host(ctx context.Context, clock func() time.Time, schedule every) {
	next := func() time.Duration { at := clock(); return schedule.Next(at).Sub(at) }
	for pause(ctx, next()) {
		m.calls.Go(func() {
			err := m.RunDue(context.WithValue(ctx, claimedKey{}, time.Now()))
			m.c.mu.Lock()
			defer m.c.mu.Unlock()
			m.c.refused = append(m.c.refused, err)
		})
	}
}

func (m *member) leave() {
	m.once.Do(func() {
		m.stop()
		m.calls.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		err := m.service.Close(ctx)
		if m.elector != nil {
			err = errors.Join(err, m.elector.Close(ctx))
		}
		if err != nil {
			m.c.t.Errorf("%s: %v", m.name, err)
		}
	})
}

// die is what the death of the process looks like to all others.
func (m *member) die() {
	m.link.Kill()
	m.stop()
}

// do is for Pause, Resume and the like, which succeed.
func (c *crew) do(f func(context.Context) error) {
	c.t.Helper()
	if err := f(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
}

func (m *member) trigger(id string) {
	m.c.t.Helper()
	m.c.do(func(ctx context.Context) error { return m.Trigger(ctx, id) })
}

// ran returns the starts so far.
func (c *crew) ran() []start {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.starts)
}

// within returns how many ticks have started that fell due in a span of time, and checks that each has once.
func (c *crew) within(from, to time.Time) int {
	c.t.Helper()
	seen := map[time.Time]int{}
	for _, s := range c.ran() {
		if s.Trigger == "" && !s.Tick.Before(from) && s.Tick.Before(to) {
			if seen[s.Tick]++; seen[s.Tick] > 1 {
				c.t.Errorf("tick %v started %d times", s.Tick, seen[s.Tick])
			}
		}
	}
	return len(seen)
}

// triggered returns the starts of a trigger.
func (c *crew) triggered(id string) []start {
	return slices.DeleteFunc(c.ran(), func(s start) bool { return s.Trigger != id })
}

// isPaused checks what a member says.
func (m *member) isPaused(want bool) {
	m.c.t.Helper()
	all, err := m.service.paused(m.c.t.Context())
	if p, is := all["job"]; err != nil || is != want || is && (p.By == "" || p.At.IsZero()) {
		m.c.t.Errorf("%s: paused is %v, %v, want %v", m.name, all, err, want)
	}
}

// members joins three.
func (c *crew) members(p post) (all []*member) {
	c.t.Helper()
	for i := range 3 {
		all = append(all, c.join(fmt.Sprint(i), p))
	}
	return all
}

// whoLeads waits until a member does.
func whoLeads(t *testing.T, all ...*member) *member {
	t.Helper()
	for range 6000 {
		for _, m := range all {
			if m.elector.IsLeader(t.Context()) == nil {
				return m
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("nobody leads")
	return nil
}

// paused returns the pauses that go on, by job.
func (s *Service) paused(ctx context.Context) (map[string]pausing, error) {
	b, err := s.read(ctx)
	all := map[string]pausing{}
	for _, p := range b.Paused {
		all[p.Job] = p
	}
	return all, err
}
