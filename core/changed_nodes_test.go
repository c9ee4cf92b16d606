package core

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/internal/race"
	"github.com/lockkit/lockkit/testutil/history"
)

// These tests change the list of nodes while old processes go on with the old list.

// on returns the world of a process that has only these nodes in its list.
func (w *world) on(nodes ...int) *world {
	some := &world{t: w.t}
	for _, i := range nodes {
		some.nodes = append(some.nodes, w.nodes[i])
	}
	return some
}

// If a list has one node more or less than the list before, any two of their quorums have a node in common. With two
// nodes more, or with a node replaced in one step, some have none. docs/deploy.md says so.
func TestOneNodeMoreOrLess(t *testing.T) {
	race.SkipSweep(t)
	bubbles(t, 5, map[string]struct {
		before, after []int
		safe          bool
	}{
		"1 to 2":               {[]int{0}, []int{0, 1}, true},
		"2 to 3":               {[]int{0, 1}, []int{0, 1, 2}, true},
		"3 to 4":               {[]int{0, 1, 2}, []int{0, 1, 2, 3}, true},
		"4 to 5":               {[]int{0, 1, 2, 3}, []int{0, 1, 2, 3, 4}, true},
		"5 to 4":               {[]int{0, 1, 2, 3, 4}, []int{0, 1, 2, 3}, true},
		"4 to 3":               {[]int{0, 1, 2, 3}, []int{0, 1, 2}, true},
		"3 to 2":               {[]int{0, 1, 2}, []int{0, 1}, true},
		"in another order":     {[]int{0, 1, 2}, []int{2, 0, 1}, true},
		"3 to 5":               {[]int{0, 1, 2}, []int{0, 1, 2, 3, 4}, false},
		"5 to 3":               {[]int{0, 1, 2, 3, 4}, []int{0, 1, 2}, false},
		"1 to 3":               {[]int{0}, []int{0, 1, 2}, false},
		"replaced in one step": {[]int{0, 1, 2}, []int{0, 1, 3}, false},
	}, func(t *testing.T, w *world, c struct {
		before, after []int
		safe          bool
	}) {
		guarded := WithRestartGuard(true)
		w.on(c.before...).process(guarded)
		twice := 0
		for n, quorum := range quorums(c.before) {
			key := fmt.Sprint("key ", n)

			holder, newcomer := w.on(c.before...).stranger(guarded), w.on(c.after...).stranger(guarded)
			holder.cutOff(func(i int) bool { return !slices.Contains(quorum, c.before[i]) })
			lease := w.acquire(holder, key)

			newcomer.cutOff(func(i int) bool { return slices.Contains(quorum, c.after[i]) })
			newcomer.TryAcquire(t.Context(), "another key") // nodes that are new to it are in quarantine from now on
			w.pass(newcomer.p.MaxTTL + 2*time.Second)

			other, err := newcomer.TryAcquire(t.Context(), key)
			if lease.Context().Err() != nil {
				t.Fatalf("the holder on %v lost its lease", quorum)
			}
			if err == nil {
				twice++
				w.release(other)
			}
			w.release(lease)
		}
		if (twice == 0) != c.safe {
			t.Errorf("%d keys had two holders, want some: %v", twice, !c.safe)
		}
	})
}

// While the guard is being turned on, process by process, processes with the guard and processes without it exclude
// each other. A process with the guard waits for the max TTL once.
func TestGuardIsTurnedOn(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		without, with := w.process(), w.stranger(WithRestartGuard(true))
		lease := w.acquire(without, "k")

		start := time.Now()
		if _, err := with.TryAcquire(t.Context(), "free"); !errors.Is(err, ErrUnavailable) {
			t.Errorf("beside a node without a guard record: %v", err)
		}
		if _, err := with.Acquire(t.Context(), "free"); err != nil || time.Since(start) < with.p.MaxTTL {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		if _, err := with.TryAcquire(t.Context(), "k"); !errors.Is(err, ErrHeld) {
			t.Errorf("held by a process without the guard: %v", err)
		}

		w.release(lease)
		again := w.acquire(with, "k")
		if _, err := without.TryAcquire(t.Context(), "k"); !errors.Is(err, ErrHeld) || again.FencingToken() <= lease.FencingToken() {
			t.Errorf("held by a process with the guard, token %d after %d: %v", again.FencingToken(), lease.FencingToken(), err)
		}
	})
}

// quorums returns the smallest majorities of nodes.
func quorums(nodes []int) (all [][]int) {
	for set := range 1 << len(nodes) {
		var some []int
		for i, node := range nodes {
			if set&(1<<i) != 0 {
				some = append(some, node)
			}
		}
		if len(some) == len(nodes)/2+1 {
			all = append(all, some)
		}
	}
	return all
}

// cutOff makes the requests of p to some nodes fail.
func (p *process) cutOff(from func(i int) bool) {
	for i, k := range p.links {
		if from(i) {
			k.Set(coretest.Fate{Refuse: true})
		}
	}
}

// Three nodes become five and then three others, one at a time. Meanwhile processes are replaced one by one, and lock
// all the time. The network of each process loses a request or a reply now and then, and does not reach one node for a
// quarter of the time.
func TestNodesChangeUnderLoad(t *testing.T) {
	race.SkipSweep(t)
	bubble(t, 5, func(t *testing.T, w *world) {
		m := &moving{w: w, random: rand.New(rand.NewPCG(7, 7)), hold: 200 * time.Millisecond}
		if testing.Short() {
			m.hold = 600 * time.Millisecond
		}
		w.on(0, 1, 2).process()
		const fleet = 4
		for range fleet {
			m.start(0, 1, 2)
		}

		for _, list := range [][]int{{0, 1, 2, 3}, {0, 1, 2, 3, 4}, {1, 2, 3, 4}, {2, 3, 4}} {
			before := m.granted.Load()
			m.complete(fmt.Sprint("before ", list))
			for range fleet {
				w.pass(3 * time.Second)
				m.stop()
				m.start(list...)
			}
			// Then the leases of stopped processes and the quarantines are over.
			w.pass(defaults().ttl + 5*time.Second)
			m.seeDone()
			if now := m.granted.Load(); now-before < 50 {
				t.Errorf("%d grants until all had the nodes %v", now-before, list)
			}
		}

		for len(m.members) > 0 {
			m.stop()
		}
		if err := m.history.Check(); err != nil {
			t.Error(err)
		}
	})
}

// moving is a fleet of processes whose list of nodes changes.
type moving struct {
	w       *world
	random  *rand.Rand
	history history.History
	hold    time.Duration
	members []*member // the oldest first
	started int
	granted atomic.Int64
	jobs    []string
}

// A member is a process of the fleet.
type member struct {
	*process
	name string
	quit context.CancelFunc
	work sync.WaitGroup
}

// start adds a process, in which two goroutines lock one key each.
func (m *moving) start(nodes ...int) {
	m.started++
	p := &member{process: m.w.on(nodes...).stranger(), name: fmt.Sprint("process ", m.started)}
	away := m.random.IntN(len(nodes))
	for i, k := range p.links {
		r := rand.New(rand.NewPCG(uint64(m.started), uint64(i)))
		k.Decide(func(wire.Op, coretest.Sent) coretest.Fate {
			return coretest.Fate{Delay: exponential(r, 2*time.Millisecond), Lose: r.IntN(300) == 0, LoseReply: r.IntN(300) == 0, Refuse: i == away && time.Now().Second()%8 < 2}
		})
	}
	ctx, quit := context.WithCancel(context.Background())
	p.quit = quit
	for line := range 2 {
		p.work.Go(func() { m.lock(ctx, p, fmt.Sprint("key ", line)) })
	}
	m.members = append(m.members, p)
}

// lock acquires the key again and again, and holds it for a moment.
func (m *moving) lock(ctx context.Context, p *member, key string) {
	for n := 0; ctx.Err() == nil; n++ {
		holder := fmt.Sprintf("%s %s %d", p.name, key, n)
		m.history.Attempt(key, holder, time.Now())
		lease, err := p.Acquire(ctx, key)
		if err != nil {
			continue
		}
		m.history.Granted(key, holder, lease.FencingToken(), time.Now())
		m.granted.Add(1)
		select {
		case <-lease.Context().Done():
		case <-time.After(m.hold):
		}
		m.history.Ended(key, holder, lease.FencingToken(), time.Now())
		lease.Release(context.Background())
		time.Sleep(150 * time.Millisecond)
	}
}

// stop ends the oldest process.
func (m *moving) stop() {
	p := m.members[0]
	m.members = m.members[1:]
	p.quit()
	p.work.Wait()
	p.Close(context.Background())
}

// complete makes a process of the fleet complete a job.
func (m *moving) complete(job string) {
	m.jobs = append(m.jobs, job)
	err := m.members[0].Once(context.Background(), job, func(context.Context) error { return nil })
	if err != nil {
		m.w.t.Errorf("%s: %v", job, err)
	}
}

// seeDone checks that each process finds all jobs done.
func (m *moving) seeDone() {
	for _, p := range m.members {
		for _, job := range m.jobs {
			err := p.Once(context.Background(), job, func(context.Context) error {
				m.w.t.Errorf("%s runs again, in %s", job, p.name)
				return nil
			})
			if !errors.Is(err, ErrDone) {
				m.w.t.Errorf("%s: %v", job, err)
			}
		}
	}
}
