package core

import (
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/testutil"
)

// These tests take bugs of other lock libraries with messages that are lost, late or sent twice, and check what must
// happen instead.

// With rueidislock and redsync, a retry after a lost reply finds the key taken by the caller itself. Here the key is
// released.
func TestReplyOfAcquireLost(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process()
		p.links[0].Next(coretest.Fate{LoseReply: true}, wire.OpAcquire)
		_, err := p.TryAcquire(t.Context(), "k")
		wantErr(t, err, ErrUnavailable)
		time.Sleep(2 * p.p.nodeTimeout) // the release runs in the background
		w.release(w.acquire(p, "k"))
	})
}

// A grant that comes after the attempt was given up is released, even if the first release was lost, too.
func TestLateGrantAfterGivingUp(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process(WithClockWindow(0))
		p.links[0].Decide(func(s wire.Op, _ coretest.Sent) coretest.Fate {
			if s == wire.OpAcquire {
				return coretest.Fate{Delay: 5 * time.Second}
			}
			return coretest.Fate{Refuse: true}
		})
		_, err := p.TryAcquire(t.Context(), "k")
		wantErr(t, err, ErrUnavailable)
		time.Sleep(3500 * time.Millisecond)
		p.links[0].Mend()
		time.Sleep(2 * time.Second)
		w.wantFree(p, "k", 0)
	})
}

// node-redlock and Redisson accept a grant whose reply comes too late. Here validity counts from the request, and a
// grant is no lease after its validity.
func TestReplyAfterValidity(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process(unrenewed, withNodeTimeout(7*time.Second))
		p.links[0].Next(coretest.Fate{ReplyDelay: 6900 * time.Millisecond}, wire.OpAcquire)
		lease := w.acquire(p, "k")
		if left := time.Until(lease.ValidUntil()); left > time.Second {
			t.Errorf("%v left of a lease that took 6.9s to get: trust starts with the reply", left)
		}
		w.release(lease)
	})
	bubbleNamed(t, "write-back", 3, func(t *testing.T, w *world) {
		w.partly(w.process(), 0, "k")
		p := w.process(unrenewed, withNodeTimeout(5*time.Second))
		p.links[2].Set(coretest.Fate{Refuse: true})
		p.links[1].Set(coretest.Fate{ReplyDelay: 4 * time.Second}, wire.OpAcquire, wire.OpRenew)
		if lease, err := p.TryAcquire(t.Context(), "k"); err == nil {
			t.Fatalf("a lease that is %v over", -time.Until(lease.ValidUntil()))
		}
		time.Sleep(10 * time.Second)
		w.wantFree(p, "k", 0)
	})
}

// With Redisson and redsync, a renewal that meets a release brings the lock back. Here it does not, in either order.
func TestRenewalRacesRelease(t *testing.T) {
	bubbles(t, 3, map[string]wire.Op{"renewal late": wire.OpRenew, "release late": wire.OpRelease}, func(t *testing.T, w *world, late wire.Op) {
		p := w.process()
		lease := w.acquire(p, "k")
		begun := make(chan struct{})
		var once sync.Once
		for _, k := range p.links {
			k.Decide(func(s wire.Op, _ coretest.Sent) (f coretest.Fate) {
				if s == wire.OpRenew {
					once.Do(func() { close(begun) })
				}
				if s == late {
					f.Delay = 200 * time.Millisecond
				}
				return f
			})
		}

		testutil.Receive(t, begun)
		w.release(lease)
		time.Sleep(time.Second)
		w.wantFree(p, "k")
	})
}

// With Redisson, an unlock that is repeated after a lost reply fails, because the caller is not the owner any more.
// Here it succeeds.
func TestReleaseRepeated(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process()
		lease := w.acquire(p, "k")
		p.links[0].Next(coretest.Fate{LoseReply: true}, wire.OpRelease)
		wantErr(t, lease.Release(t.Context()), ErrUnavailable)
		if err := lease.Release(t.Context()); err != nil {
			t.Errorf("repeated: %v", err)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Errorf("and again: %v", err)
		}
	})
}

// With rueidislock and go-redis, a stock client sends a script again by itself if the reply is lost. Here it must not.
func TestClientDoesNotRetryScripts(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		client := w.nodes[0].ClientWith(func(o *redis.Options) { o.MaxRetries = 3 })
		l := must(New([]redis.UniversalClient{client}, quietly))
		defer l.Close(t.Context())
		lease := must(l.TryAcquire(t.Context(), "k"))

		before := w.nodes[0].Calls()["EVALSHA"]
		w.nodes[0].DropReplies(1)
		l.TryAcquire(t.Context(), "other")
		time.Sleep(5 * time.Second)
		if sent := w.nodes[0].Calls()["EVALSHA"] - before; sent > 1+2+3 { // the attempt, its release twice, renewals
			t.Errorf("%d scripts sent", sent)
		}
		lease.Release(t.Context())
	})
}
