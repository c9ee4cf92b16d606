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

	"github.com/lockkit/lockkit/internal/race"

	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// turnTime is how long no request waits for its turn while most of the connections are free.
const turnTime = 10 * time.Millisecond

// A manifest notes what travelled together.
type manifest struct {
	commandsOnly
	mu      sync.Mutex
	batches [][]sentRequest
	hold    map[int]chan struct{} // batches that are held up, by their number
}

func (m *manifest) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		all := requestsOf(cmd.Args())
		if len(all) == 0 {
			return next(ctx, cmd)
		}
		m.mu.Lock()
		for i := range all {
			all[i].args = slices.Clone(all[i].args) // the lane uses its list again
		}
		hold := m.hold[len(m.batches)]
		m.batches = append(m.batches, all)
		m.mu.Unlock()
		if hold != nil {
			<-hold
		}
		return next(ctx, cmd)
	}
}

// jam keeps node 0 busy with as many requests as may be under way at a time, until the function it returns is called:
// what is asked meanwhile travels together. It notes what is sent.
func (p *process) jam(ctx context.Context) (m *manifest, free func()) {
	hold := make(chan struct{})
	m = &manifest{hold: map[int]chan struct{}{}}
	busy := min(2, p.e.nodes[0].connections)
	for i := range busy {
		m.hold[i] = hold
	}
	p.e.nodes[0].client.(*redis.Client).AddHook(m)
	for i := range busy {
		go p.TryAcquire(ctx, fmt.Sprint("slow ", i))
	}
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

// crowd acquires n keys at once, and returns when all calls have their outcome.
func (p *process) crowd(ctx context.Context, n int) (leases []*Lease, wait func()) {
	leases = make([]*Lease, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { leases[i], _ = p.TryAcquire(ctx, fmt.Sprint("crowd ", i)) })
	}
	return leases, all.Wait
}

// What comes while a request is under way travels together, soon, and however long that one takes.
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
		if sizes := m.sizes(); !slices.Equal(sizes, []int{1, 1, 20}) {
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

// A crowd is cut into batches that keep the server for a millisecond or so.
func TestBatchesAreBounded(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		const crowd = 5*maxBatch + 1
		p := w.process()
		m, free := p.jam(t.Context())
		defer free()
		_, wait := p.crowd(t.Context(), crowd)
		wait()
		sent := 0
		for _, size := range m.sizes()[2:] {
			sent += size
			if size > maxBatch {
				t.Errorf("%d requests in a batch", size)
			}
		}
		if sent != crowd {
			t.Errorf("%d requests for %d acquisitions", sent, crowd)
		}
	})
}

// Renewals and the ends of attempts go before acquisitions that have waited for longer.
func TestLeasesGoFirst(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process()
		held := w.acquire(p, "held")
		ended := w.acquire(p, "ended")
		p.e.nodes[0].connections = 1
		m, free := p.jam(t.Context())
		_, wait := p.crowd(t.Context(), maxBatch)
		synctest.Wait() // in line
		p.e.spawn(held.renew)
		p.e.spawn(func() { ended.Release(t.Context()) })
		synctest.Wait()
		free()
		wait()
		m.mu.Lock()
		defer m.mu.Unlock()
		second := m.batches[1]
		if a, b := second[0].op, second[1].op; len(second) != maxBatch || a == wire.OpAcquire || b == wire.OpAcquire {
			t.Errorf("a batch of %d begins with %v and %v", len(second), a, b)
		}
	})
}

// One request's error is its own.
func TestErrorsInABatch(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process()
		if _, err := w.nodes[0].Exec("HSET", p.e.keys.Resource("crowd 3"), "a", "hash"); err != nil {
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

// A replica refuses all of a batch, as an error by which a client that follows failovers looks for the primary.
func TestRealBatchOnAReplica(t *testing.T) {
	r := onRedis(t, 1)
	p := r.process(unhurried)
	lease := r.acquire(p, "k")
	client := r.servers[0].Client()
	if err := client.SlaveOf(t.Context(), "127.0.0.1", "1").Err(); err != nil { // nobody answers there
		t.Fatal(err)
	}
	_, err := sendTogether(client, p.Locker, []wire.Request{lease.releasing(0).to(0), lease.releasing(0).to(0)}, time.Now())
	if !redis.IsReadOnlyError(err) || failed(err).Verdict != wire.Replica {
		t.Errorf("the batch has the error %v", err)
	}
	if err := client.SlaveOf(t.Context(), "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// An answer that is not one to each request is none.
func TestBatchAnsweredInPart(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process()
		short := shortReplies{}
		_, free := p.jam(t.Context())
		p.e.nodes[0].client.(*redis.Client).AddHook(short)
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

// shortReplies leaves out the last answer of each batch.
type shortReplies struct{ commandsOnly }

func (shortReplies) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if list, ok := cmd.(goredis.OnceList); ok && err == nil {
			list.SetVal(list.Val()[1:])
		}
		return err
	}
}

// A server that has gone silent takes half of the connections, and hardly more. What waits goes when it is back.
func TestFewBatchesToASilentServer(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process(unhurried)
		p.set(fate{delay: time.Millisecond})
		const crowd = 24
		p.e.nodes[0].connections = crowd
		leases, wait := p.crowd(t.Context(), crowd)
		wait()
		m, hung := &manifest{hold: map[int]chan struct{}{}}, make(chan struct{})
		for i := range crowd {
			m.hold[i] = hung
		}
		p.e.nodes[0].client.(*redis.Client).AddHook(m)
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

// Whatever waits for its turn is trusted from when it was asked for, and stamped when it leaves.
func TestStampOfABatch(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process()
		p.e.nodes[0].connections = 1
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
			if wall := q.args[wallArg(q.args)]; wall != asked.Add(line).UnixMicro() {
				t.Errorf("stamped %v, and left at %v", wall, asked.Add(line).UnixMicro())
			}
		}
		for _, lease := range leases {
			if trusted := lease.ValidUntil().Sub(asked); trusted > p.p.validity-p.p.margin {
				t.Errorf("trusted for %v since it was asked for, more than %v", trusted, p.p.validity-p.p.margin)
			}
		}
	})
}

// All nodes stop for a while: what waits for them is shed when it is stale, and no lease is lost that has the time.
func TestAllNodesStopForAWhile(t *testing.T) {
	race.Campaign(t)
	bubble(t, 3, func(t *testing.T, w *world) {
		const leases, rtt, stop = 600, 10 * time.Millisecond, 1500 * time.Millisecond
		p := w.process()
		for _, n := range p.e.nodes {
			n.connections = 20
		}
		p.set(fate{delay: rtt / 2, replyDelay: rtt / 2})
		held := w.holdMany(p, leases, 0)
		time.Sleep(5 * time.Second)
		start := time.Now()
		for _, k := range p.links {
			k.decide(func(wire.Op, []any) fate {
				return fate{delay: max(rtt/2, stop-time.Since(start)), replyDelay: rtt / 2}
			})
		}
		time.Sleep(12 * time.Second)
		w.wantHeld(held)
		p.mend()
	})
}

// holdMany takes n leases, one every so often.
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

// A slot that the first lane in line has no use for any more goes to the next.
func TestSlotsGoToWhoCanUseThem(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process()
		n := p.e.nodes[0]
		b := n.breaker(0)
		b.slots = &slots{}
		lanes := []*lane{{e: &p.e.ensemble, n: n}, {e: &p.e.ensemble, n: n}}
		for _, l := range lanes {
			l.mu.Lock()
			b.slots.enter(l)
			l.mu.Unlock()
		}
		lease := p.newLease(t.Context(), "k")
		r := lease.acquiring(false)
		r.decided = func(*round) bool { return false }
		r.send(t.Context(), 0)
		n.inFlight++
		b.inFlight++
		lanes[1].submit(request{r: r, b: b})
		b.slots.exit()
		synctest.Wait()
		if owner := w.owner(p, 0, "k"); owner != lease.name() {
			t.Errorf("the second lane has not sent: the node has %q", owner)
		}
		lease.releasing(0).alone(0)
	})
}

// A batch that is lost is one failure of the node, not one for each request.
func TestLostBatchIsOneFailure(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process()
		_, free := p.jam(t.Context())
		defer free()
		p.links[0].next(fate{refuse: true}, wire.OpAcquire)
		_, wait := p.crowd(t.Context(), 20)
		wait()
		n := p.e.nodes[0]
		n.mu.Lock()
		defer n.mu.Unlock()
		if failures := n.breaker(0).failures; failures > 1 || n.voting.failed > 1 {
			t.Errorf("%d failures, %d in the log", failures, n.voting.failed)
		}
	})
}

// Each guard bucket has a lane of its own on each node, also where a Cluster stands beside a plain server.
func TestLanesOfAMixedList(t *testing.T) {
	cluster := newFakeCluster(t)
	plain := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { plain.Close() })
	l, err := New([]redis.UniversalClient{cluster, plain}, quietly)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close(over())
	for _, n := range l.e.nodes {
		seen := map[*lane]bool{}
		for b := range l.e.keys.Buckets() {
			seen[n.lane(b)] = true
		}
		if len(seen) != wire.Buckets {
			t.Errorf("%v: %d lanes", n, len(seen))
		}
	}
}
