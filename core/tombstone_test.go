package core

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// tombstones returns the number of tombstones on node i.
func (w *world) tombstones(p *process, i int) int {
	w.t.Helper()
	keys := must(w.nodes[i].Exec("KEYS", p.p.Prefix+"{0}x:*"))
	return len(keys.([]any))
}

// A release leaves a tombstone only on a node where a request of the attempt may still arrive.
func TestTombstonesWhereSomethingMayArrive(t *testing.T) {
	type row struct {
		prepare func(p *process)
		young   bool // the lease is released before its first renewal
		want    [3]int
	}
	bubbles(t, 3, map[string]row{
		"all has been answered": {want: [3]int{0, 0, 0}},
		"an answer is missing":  {prepare: func(p *process) { p.links[1].Next(coretest.Fate{LoseReply: true}, wire.OpAcquire) }, want: [3]int{0, 1, 0}},
		"a request is missing":  {prepare: func(p *process) { p.links[2].Next(coretest.Fate{Lose: true}, wire.OpAcquire) }, want: [3]int{0, 0, 1}},
		"a renewal is missing":  {prepare: func(p *process) { p.links[0].Next(coretest.Fate{Lose: true}, wire.OpRenew) }, want: [3]int{1, 0, 0}},
		"a client may repeat":   {prepare: func(p *process) { p.e.Nodes[1].MayRetry = true }, want: [3]int{0, 1, 0}},
		"the connection broke":  {prepare: func(p *process) { p.links[1].Next(coretest.Fate{Refuse: true}, wire.OpRenew) }, want: [3]int{0, 1, 0}},
		"it is found":           {prepare: func(p *process) { p.links[1].Next(coretest.Fate{LoseReply: true}, wire.OpAcquire) }, young: true},
		"it is not found":       {prepare: func(p *process) { p.links[2].Next(coretest.Fate{Lose: true}, wire.OpAcquire) }, young: true, want: [3]int{0, 0, 1}},
	}, func(t *testing.T, w *world, c row) {
		p := w.process()
		if c.prepare != nil {
			c.prepare(p)
		}
		lease := w.acquire(p, "k")
		time.Sleep(map[bool]time.Duration{false: lease.attempt.p.renewEvery * 3 / 2}[c.young])
		synctest.Wait()
		w.release(lease)
		time.Sleep(lease.attempt.p.nodeTimeout)

		for i, want := range c.want {
			if n := w.tombstones(p, i); n != want {
				t.Errorf("node %d has %d tombstones, want %d", i, n, want)
			}
		}
	})
}

// A client of a Cluster may send a request again on its own. A client of a single server heeds NoRetry.
func TestClientsThatRepeat(t *testing.T) {
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer cluster.Close()
	plain := redis.NewClient(&redis.Options{})
	defer plain.Close()
	if !goredis.MayRetry(cluster) || goredis.MayRetry(plain) {
		t.Error("it is the client of the Cluster that repeats")
	}
}

// A late request of an attempt finds the attempt's tombstone, even if the key has had other owners since.
func TestLateRequestAfterOtherOwners(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		a, b := w.process(WithClockWindow(0)), w.process(WithClockWindow(0))
		lease := w.acquire(a, "k")
		a.links[0].Next(coretest.Fate{Delay: 2 * time.Second}, wire.OpRenew) // arrives long after the release
		go lease.renew()
		synctest.Wait()
		lease.Release(t.Context())
		w.release(w.acquire(b, "k"))
		time.Sleep(5 * time.Second)
		w.wantFree(b, "k")
	})
}

// If the answer to a release is lost, a repeated release is confirmed, however late it is, and even if another process
// has acquired the key since. It cannot know whether the lease was lost before, so it reports no loss.
func TestRepeatedRelease(t *testing.T) {
	type row struct {
		later   time.Duration
		another bool
	}
	bubbles(t, 3, map[string]row{
		"at once":                                 {},
		"after another grant":                     {another: true},
		"when tombstones are over":                {later: 20 * time.Second},
		"when tombstones are over, another":       {later: 20 * time.Second, another: true},
		"after another grant and its own release": {another: true, later: time.Minute},
	}, func(t *testing.T, w *world, c row) {
		p, other := w.process(), w.process()
		lease := w.acquire(p, "k")
		synctest.Wait() // until all nodes have granted the lease
		for _, k := range p.links[1:] {
			k.Sequence(wire.OpRelease, coretest.Fate{LoseReply: true}, coretest.Fate{})
		}
		wantErr(t, lease.Release(t.Context()), ErrUnavailable)
		time.Sleep(c.later)
		if c.another {
			w.acquire(other, "k")
		}

		for range 2 {
			if err := lease.Release(t.Context()); err != nil {
				t.Errorf("released again: %v", err)
			}
		}
	})
}

// No renewal is sent after the end of the lease. It could undo the release, and after a loss it would only keep the key
// from other callers.
func TestNothingIsSentAfterTheEnd(t *testing.T) {
	bubbles(t, 1, map[string]func(*Lease){
		"released": func(lease *Lease) { lease.Release(context.Background()) },
		"lost":     func(lease *Lease) { lease.declareLost(LossClosed); lease.attempt.releaseAll(context.Background()) },
	}, func(t *testing.T, w *world, end func(*Lease)) {
		p := w.process()
		lease := w.acquire(p, "k")
		r := lease.renewalNow() // the watchdog is about to send it
		end(lease)
		synctest.Wait()

		renewals := p.counting(wire.OpRenew)
		r.start()
		synctest.Wait()
		if n := renewals.Load(); n > 0 {
			t.Errorf("%d renewals sent", n)
		}
		w.wantFree(p, "k")
	})
}

// If another process has taken the key, and no earlier release is unanswered, Release returns ErrLost.
func TestReleaseOfATakenKey(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, other := w.process(), w.process()
		lease := w.acquire(p, "k")
		synctest.Wait()
		for i := range w.nodes {
			w.forget(p, i, "k")
		}
		held := w.acquire(other, "k")
		err := lease.Release(t.Context())
		wantErr(t, err, ErrLost)
		wantReason(t, err, LossTaken)
		wantValid(t, held)
	})
}

// The request that a node did not get because it was unfit does not count as the answer to a later one: the release
// leaves a tombstone for the later request.
func TestTombstoneOnANodeThatWasUnfit(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		fit := w.unfit(p, 2)
		lease := w.acquire(p, "k")
		fit()
		p.links[2].Next(coretest.Fate{Lose: true}, wire.OpRenew)
		time.Sleep(lease.attempt.p.renewEvery * 3 / 2)
		w.release(lease)
		synctest.Wait()
		if got := w.tombstones(p, 2); got != 1 {
			t.Errorf("%d tombstones on the node, where a renewal may still arrive", got)
		}
	})
}

// pausing is an attempt whose process is stopped for 10 ms whenever the lane checks whether the attempt is over.
type pausing struct {
	*attempt
	looked *time.Time
}

func (p pausing) StartSend(op wire.Op, node int) bool {
	*p.looked = time.Now()
	time.Sleep(10 * time.Millisecond)
	return p.attempt.StartSend(op, node)
}

// The time in a request was read before the last check whether its attempt is over. If the attempt ends after this
// check, while the process is stopped, its tombstone therefore outlives every request that still seems fresh to the
// node.
func TestStampBeforeTheLastLook(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process()
		m := &manifest{}
		p.e.Nodes[0].Client.(*redis.Client).AddHook(m)
		lease := p.newLease(t.Context(), "k")
		r := lease.attempt.newAcquireRound(false)
		var looked time.Time
		r.Init(p.e.Buckets[0], wire.OpAcquire, r.Timeout, pausing{&lease.attempt, &looked}, r.Decided)
		r.Send(t.Context(), quorum.All(1))

		// StartSend sleeps with a mutex held that Wait locks. In a bubble, no time passes while a goroutine waits for a
		// mutex, so Wait must be called later.
		time.Sleep(20 * time.Millisecond)
		r.Wait(t.Context())
		if r.Count(wire.Granted) != 1 || looked.IsZero() {
			t.Fatalf("%v", r.Votes)
		}
		if stamp := m.batches[0][0].Wall; stamp.After(looked) {
			t.Errorf("stamped %v after the last look", stamp.Sub(looked))
		}
	})
}
