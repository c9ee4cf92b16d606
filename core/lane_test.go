package core

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/internal/race"
)

// turnTime is the longest time that a request waits for its turn while most of the connections are free.
const turnTime = 10 * time.Millisecond

// A manifest records which requests were sent together.
type manifest struct {
	coretest.CommandsOnly
	mu      sync.Mutex
	batches [][]coretest.Sent
	hold    map[int]chan struct{} // batches that are held up, by their number
}

func (m *manifest) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		all := coretest.RequestsOf(cmd.Args())
		if len(all) == 0 {
			return next(ctx, cmd)
		}
		m.mu.Lock()
		hold := m.hold[len(m.batches)]
		m.batches = append(m.batches, all)
		m.mu.Unlock()
		if hold != nil {
			<-hold
		}
		return next(ctx, cmd)
	}
}

// jam keeps node 0 busy with a request until free is called. Requests that are made meanwhile are sent together, and m
// records them.
func (p *process) jam(ctx context.Context) (m *manifest, free func()) {
	hold := make(chan struct{})
	m = &manifest{hold: map[int]chan struct{}{0: hold}}
	p.e.Nodes[0].Client.(*redis.Client).AddHook(m)
	go p.TryAcquire(ctx, "slow")
	synctest.Wait()
	return m, sync.OnceFunc(func() { close(hold) })
}

func (m *manifest) sizes() (sizes []int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range m.batches {
		sizes = append(sizes, len(b))
	}
	return sizes
}

// crowd acquires n keys at once. The function wait returns when all calls have returned.
func (p *process) crowd(ctx context.Context, n int) (leases []*Lease, wait func()) {
	leases = make([]*Lease, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { leases[i], _ = p.TryAcquire(ctx, fmt.Sprint("crowd ", i)) })
	}
	return leases, all.Wait
}

// Requests that come while another one is under way are sent together, soon, and however long that one takes.
func TestRequestsTravelTogether(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process()
		m, free := p.jam(t.Context())
		start := time.Now()
		leases, wait := p.crowd(t.Context(), 20)
		wait()
		if took := time.Since(start); took > turnTime {
			t.Errorf("held up for %v by a request that is not answered", took)
		}
		if sizes := m.sizes(); !slices.Equal(sizes, []int{1, 20}) {
			t.Errorf("sent in batches of %d", sizes)
		}
		for i, lease := range leases {
			if lease == nil || w.owner(p, 0, lease.Key()) != lease.name() {
				t.Fatalf("lease %d: %+v", i, lease)
			}
		}
		free()
	})
}

// Many requests are split into batches that keep the server busy for a millisecond or so.
func TestBatchesAreBounded(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		const crowd = 5*node.MaxBatch + 1
		p := w.process()
		m, free := p.jam(t.Context())
		defer free()
		_, wait := p.crowd(t.Context(), crowd)
		wait()

		sent := 0
		for _, size := range m.sizes()[1:] {
			sent += size
			if size > node.MaxBatch {
				t.Errorf("%d requests in a batch", size)
			}
		}
		if sent != crowd {
			t.Errorf("%d requests for %d acquisitions", sent, crowd)
		}
	})
}

// Renewals and the ends of attempts are sent before acquisitions that have waited for longer.
func TestLeasesGoFirst(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process()
		held := w.acquire(p, "held")
		ended := w.acquire(p, "ended")
		p.e.Nodes[0].Connections = 1
		m, free := p.jam(t.Context())

		_, wait := p.crowd(t.Context(), node.MaxBatch)
		synctest.Wait() // in line
		p.e.Tasks.Go(held.renew)
		p.e.Tasks.Go(func() { ended.Release(t.Context()) })
		synctest.Wait()

		free()
		wait()
		m.mu.Lock()
		defer m.mu.Unlock()
		second := m.batches[1]
		if a, b := second[0].Op, second[1].Op; len(second) != node.MaxBatch || a == wire.OpAcquire || b == wire.OpAcquire {
			t.Errorf("a batch of %d begins with %v and %v", len(second), a, b)
		}
	})
}

// An error of one request does not affect the other requests of its batch.
func TestErrorsInABatch(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process()
		if _, err := w.nodes[0].Exec("HSET", p.e.Keys.Resource("crowd 3"), "a", "hash"); err != nil {
			t.Fatal(err)
		}
		_, free := p.jam(t.Context())

		var failed atomic.Pointer[error]
		var all sync.WaitGroup
		for i := range 5 {
			all.Go(func() {
				_, err := p.TryAcquire(t.Context(), fmt.Sprint("crowd ", i))
				switch {
				case i == 3:
					failed.Store(&err)
				case err != nil:
					t.Errorf("%d: %v", i, err)
				}
			})
		}

		all.Wait()
		wantInError(t, *failed.Load(), "WRONGTYPE")
		free()
	})
}

// A replica refuses a whole batch. By the error, a client that follows failovers knows that it has to look for the
// primary.
func TestRealBatchOnAReplica(t *testing.T) {
	r := onRedis(t, 1)
	p := r.process(unhurried)
	lease := r.acquire(p, "k")
	client := r.servers[0].Client()
	if err := client.SlaveOf(t.Context(), "127.0.0.1", "1").Err(); err != nil { // no server answers there
		t.Fatal(err)
	}
	_, err := sendTogether(client, p.Locker, []wire.Request{to(lease.attempt.newReleaseRound(0), 0), to(lease.attempt.newReleaseRound(0), 0)}, time.Now())
	if !redis.IsReadOnlyError(err) || coretest.VoteOf(wire.Reply{}, err).Verdict != wire.Replica {
		t.Errorf("the batch has the error %v", err)
	}
	succeeds(t, client.SlaveOf(t.Context(), "NO", "ONE").Err())
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// A reply that does not answer every request of its batch is an error of all of them.
func TestBatchAnsweredInPart(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process()
		short := shortReplies{}
		_, free := p.jam(t.Context())
		p.e.Nodes[0].Client.(*redis.Client).AddHook(short)
		for i := range 2 {
			go func() {
				_, err := p.TryAcquire(t.Context(), fmt.Sprint("k", i))
				wantErr(t, err, wire.ErrBadReply)
			}()
		}
		time.Sleep(time.Second)
		free()
	})
}

// shortReplies cuts short the reply to each batch of several requests.
type shortReplies struct{ coretest.CommandsOnly }

func (shortReplies) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if once, ok := cmd.(goredis.Once); ok && err == nil && len(coretest.RequestsOf(cmd.Args())) > 1 {
			once.SetVal([]any{once.Val(), int64(2)})
		}
		return err
	}
}

// A silent server occupies half of the connections, and hardly more. Requests that wait are sent when it answers again.
func TestFewBatchesToASilentServer(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process(unhurried)
		p.set(coretest.Fate{Delay: time.Millisecond})
		const crowd = 24
		p.e.Nodes[0].Connections = crowd
		leases, wait := p.crowd(t.Context(), crowd)
		wait()

		m, hung := &manifest{hold: map[int]chan struct{}{}}, make(chan struct{})
		for i := range crowd {
			m.hold[i] = hung
		}
		p.e.Nodes[0].Client.(*redis.Client).AddHook(m)

		var all sync.WaitGroup
		for _, lease := range leases {
			all.Go(func() { w.release(lease) })
			time.Sleep(turnTime)
		}
		if n := len(m.sizes()); n > crowd/2+1 {
			t.Errorf("%d batches are under way to a silent server", n)
		}

		close(hung)
		all.Wait()
	})
}

// A request that waits for its turn is trusted from when it was made, and stamped when it is sent.
func TestStampOfABatch(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process()
		p.e.Nodes[0].Connections = 1
		m, free := p.jam(t.Context())
		asked := time.Now()
		leases, wait := p.crowd(t.Context(), 2)

		const line = 200 * time.Millisecond
		time.Sleep(line)
		free()
		wait()

		m.mu.Lock()
		defer m.mu.Unlock()
		for _, q := range m.batches[1] {
			if !q.Wall.Equal(asked.Add(line).Truncate(time.Microsecond)) {
				t.Errorf("stamped %v, and left at %v", q.Wall, asked.Add(line))
			}
		}
		for _, lease := range leases {
			if trusted := lease.ValidUntil().Sub(asked); trusted > p.p.validity-p.p.margin {
				t.Errorf("trusted for %v since it was asked for, more than %v", trusted, p.p.validity-p.p.margin)
			}
		}
	})
}

// If all nodes stop for a while, requests that wait for them are dropped when they are stale, and no lease is lost that
// has time left.
func TestAllNodesStopForAWhile(t *testing.T) {
	race.SkipSweep(t)
	bubble(t, 3, func(t *testing.T, w *world) {
		const leases, rtt, stop = 600, 10 * time.Millisecond, 1500 * time.Millisecond
		p := w.process()
		for _, n := range p.e.Nodes {
			n.Connections = 20
		}
		p.set(coretest.Fate{Delay: rtt / 2, ReplyDelay: rtt / 2})

		held := w.holdMany(p, leases, 0)
		time.Sleep(5 * time.Second)
		start := time.Now()
		for _, k := range p.links {
			k.Decide(func(wire.Op, coretest.Sent) coretest.Fate {
				return coretest.Fate{Delay: max(rtt/2, stop-time.Since(start)), ReplyDelay: rtt / 2}
			})
		}

		time.Sleep(12 * time.Second)
		w.wantHeld(held)
		p.mend()
	})
}

// holdMany acquires n leases, with a pause after each.
func (w *world) holdMany(p *process, n int, every time.Duration) (held []*Lease) {
	w.t.Helper()
	for i := range n {
		held = append(held, w.acquire(p, fmt.Sprint("held ", i)))
		time.Sleep(every)
	}
	return held
}

func (w *world) wantHeld(leases []*Lease) {
	w.t.Helper()
	lost := 0
	for _, lease := range leases {
		if lease.Context().Err() != nil {
			lost++
		}
	}
	if lost > 0 {
		w.t.Errorf("%d of %d leases are lost", lost, len(leases))
	}
}

// The ends of attempts do not need the guard, so they succeed even if the guard record cannot be read.
func TestEndsInABatchWithoutAGuard(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process(WithRestartGuard(true))
		lease := w.acquire(p, "held")
		synctest.Wait()
		guard := p.e.Keys.Guard(0)
		must(w.nodes[0].Exec("DEL", guard))
		must(w.nodes[0].Exec("HSET", guard, "of", "another type"))
		batch := []wire.Request{to(p.newLease(t.Context(), "k").attempt.newAcquireRound(false), 0), to(lease.attempt.newReleaseRound(0), 0)}
		replies, err := sendTogether(p.e.Nodes[0].Client, p.Locker, batch, time.Now())
		if err != nil || len(replies) != 2 || replies[0].Verdict != wire.Failed || replies[1].Verdict != wire.Granted {
			t.Errorf("the batch answers %+v, %v", replies, err)
		}
	})
}
