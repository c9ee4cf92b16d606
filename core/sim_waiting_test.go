package core

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/queue"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/internal/sim"
)

// TestSimulationOfWaiting makes the processes of a throng wait for one key over and over, under faults drawn from a
// seed: notifications are lost, subscriptions break, nodes are down, hung or restarted, and processes die or give up
// while they wait.
//
// No call starves. Without faults, and again throngCalms after the last fault, nearly all calls are served in the order
// in which they began, and no call waits much longer than the holds of the throng take.
func TestSimulationOfWaiting(t *testing.T) {
	sim.Seeds(t, 60, nil, func(t *testing.T, seed uint64, _ sim.Counts) {
		r := rand.New(rand.NewPCG(seed, 13))
		c := throng{t: t, r: r, size: 2 + r.IntN(12), hold: time.Duration(8+r.IntN(20)) * time.Millisecond, faulty: r.IntN(3) > 0}
		bubbleNow(t, []int{1, 2, 3, 3, 5}[r.IntN(5)], func(t *testing.T, w *world) {
			sim.ByModel(seed, w.nodes...)
			c.run(t, w)
		})
	})
}

// A throng is a set of processes that wait for one key.
type throng struct {
	t      *testing.T
	r      *rand.Rand
	size   int
	hold   time.Duration
	faulty bool

	mu    sync.Mutex
	calls []throngCall // in the order in which they were served
}

// A throngCall is one call of Acquire that got the key.
type throngCall struct {
	began, served time.Time
	overtaken     int // number of calls that began later and were served earlier
}

const (
	throngFault = time.Second // the longest duration of a fault
	// throngCalms is the time after the last fault within which all waiters have asked again, and all nodes vote.
	throngCalms = 12*time.Second + queue.FallbackMax
)

func (c *throng) run(t *testing.T, w *world) {
	var all sync.WaitGroup
	over := make(chan struct{})
	for i := range c.size {
		p := w.process()
		delay := time.Duration(20+c.r.IntN(200)) * time.Microsecond
		seed := c.r.Uint64()
		p.set(coretest.Fate{Delay: delay, ReplyDelay: delay})
		all.Go(func() { c.member(t, p, rand.New(rand.NewPCG(seed, uint64(i))), over) })
	}

	calm := time.Now()
	if c.faulty {
		c.trouble(w, calm.Add(3*time.Second))
		time.Sleep(throngCalms)
		calm = time.Now()
	}
	time.Sleep(time.Second)
	close(over)
	all.Wait()
	synctest.Wait()

	overtaken, most, calls, longest := 0, 0, 0, time.Duration(0)
	for _, call := range c.calls {
		if call.served.Before(calm) {
			continue
		}
		calls++
		if call.began.Before(calm) {
			call.began = calm
		} else if call.overtaken > 0 {
			overtaken++
			most = max(most, call.overtaken)
		}
		longest = max(longest, call.served.Sub(call.began))
	}
	t.Logf("%d nodes, %d processes, holds of %v, faults %v: %d grants, %d of them in peace, of which %d overtaken, at most by %d, longest wait %v",
		len(w.nodes), c.size, c.hold, c.faulty, len(c.calls), calls, overtaken, most, longest)

	ideal := time.Duration(c.size) * (c.hold + 2*time.Millisecond)
	if calls == 0 {
		t.Error("nobody was served")
	}
	if most > 2 || overtaken > max(1, calls*35/1000) {
		t.Errorf("%d of %d calls were overtaken, one by %d", overtaken, calls, most)
	}
	if longest > 2*ideal+queue.TurnTime {
		t.Errorf("somebody waited for %v, where it takes %v", longest, ideal)
	}
}

// member waits for the key, holds it, and begins again, until over is closed.
func (c *throng) member(t *testing.T, p *process, r *rand.Rand, over <-chan struct{}) {
	for {
		select {
		case <-over:
			return
		default:
		}

		ctx, cancel := context.WithCancel(t.Context())
		gaveUp := c.faulty && r.IntN(20) == 0
		if gaveUp {
			time.AfterFunc(time.Duration(r.Int64N(int64(time.Duration(c.size)*c.hold))), cancel)
		}

		call := throngCall{began: time.Now()}
		lease, err := p.Acquire(ctx, "k")
		call.served = time.Now()
		if err != nil {
			cancel()
			if !gaveUp && !errors.Is(err, ErrUnavailable) {
				t.Errorf("waited in vain: %v", err)
			}
			continue
		}

		c.served(call)
		time.Sleep(c.hold)
		lease.Release(t.Context())
		cancel()
	}
}

// served records a call, and counts the calls that overtook it: they began later and were served earlier.
func (c *throng) served(call throngCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(c.calls) - 1; i >= 0 && c.calls[i].served.After(call.began); i-- {
		if c.calls[i].began.After(call.began) {
			call.overtaken++
		}
	}
	c.calls = append(c.calls, call)
}

// trouble causes faults, one after another, until a time.
func (c *throng) trouble(w *world, until time.Time) {
	for time.Now().Before(until) {
		time.Sleep(time.Duration(c.r.Int64N(int64(time.Second))))
		n := w.nodes[c.r.IntN(len(w.nodes))]
		lasts := time.Duration(c.r.Int64N(int64(throngFault)))

		switch c.r.IntN(6) {
		case 0:
			n.DropMessages(true)
			time.Sleep(lasts)
			n.DropMessages(false)
		case 1:
			n.BreakSubscriptions()
		case 2:
			n.Down()
			time.Sleep(lasts)
			n.Up()
		case 3:
			n.Hang()
			time.Sleep(lasts)
			n.Up()
		case 4:
			n.Restart()
		case 5:
			p := w.stranger() // a process that dies while it waits
			p.set(coretest.Fate{LoseReply: true}, wire.OpRelease)
			go func() {
				if lease, err := p.Acquire(w.t.Context(), "k"); err == nil {
					lease.Release(w.t.Context())
				}
			}()
			synctest.Wait()
			p.set(coretest.Fate{Lose: true}, wire.OpAcquire)
		}
	}
}
