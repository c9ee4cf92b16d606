package core

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/quorum"
)

// loaded is a flight with all that waits in the lane, before it leaves.
func (l *lane) loaded() *flight {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := &flight{l: l}
	l.urgent = f.load(l.urgent)
	l.asking = f.load(l.asking)
	return f
}

// Between a batch's leaving the queue and its leaving the process, a request that was counted as not sent, or whose
// attempt has ended, is left out: nobody would release what it grants.
func TestNotEveryRequestBoards(t *testing.T) {
	for name, meanwhile := range map[string]func(r *round, lease *Lease){
		"it was counted as not sent": func(r *round, _ *Lease) { r.wait(context.Background()) },
		"its attempt has ended":      func(_ *round, lease *Lease) { lease.over() },
		"it is too old":              func(r *round, _ *Lease) { time.Sleep(r.p.nodeTimeout/2 + 1) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, w *world) {
				p := w.process()
				n := p.e.nodes[0]
				n.connections = 0 // nothing leaves by itself
				lease := p.newLease(t.Context(), "k")
				r := lease.acquiring(false)
				r.decided = func(*round) bool { return false }
				r.send(t.Context(), quorum.All(1))
				f := n.lanes[0].loaded()
				meanwhile(r, lease)
				if f.board(p.e.clock.Now()); len(f.batch) != 0 {
					t.Error("sent all the same")
				}
				if n.inFlight != 0 {
					t.Errorf("%d requests booked", n.inFlight)
				}
				n.connections = 1
			})
		})
	}
}

// Nor does every renewal.
func TestNotEveryRenewalBoards(t *testing.T) {
	for name, meanwhile := range map[string]func(r *renewal, lease *Lease){
		"it was counted as not sent": func(r *renewal, _ *Lease) { r.expire() },
		"its attempt has ended":      func(_ *renewal, lease *Lease) { lease.over() },
		"it is too old":              func(r *renewal, _ *Lease) { time.Sleep(r.p.nodeTimeout + 1) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, w *world) {
				p := w.process()
				n := p.e.nodes[0]
				lease := w.acquire(p, "k")
				synctest.Wait()
				connections := n.connections
				n.connections = 0 // nothing leaves by itself
				p.stopTimers()
				r := lease.renewalNow()
				r.send(t.Context(), quorum.All(1))
				f := n.lanes[0].loaded()
				meanwhile(r, lease)
				if f.board(p.e.clock.Now()); len(f.batch) != 0 {
					t.Error("sent all the same")
				}
				n.connections = connections
			})
		})
	}
}

// pausing is an attempt whose process is stopped whenever the lane looks whether it is over.
type pausing struct {
	*attempt
	looked *time.Time
}

func (p pausing) isEnded() bool {
	*p.looked = time.Now()
	time.Sleep(10 * time.Millisecond)
	return p.attempt.isEnded()
}

// A request bears a time from before the last look whether its attempt is over: what ends after that look, while the
// process is stopped, has a tombstone that outlives every request which still seems fresh to the node.
func TestStampBeforeTheLastLook(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process()
		m := &manifest{}
		p.e.nodes[0].client.(*redis.Client).AddHook(m)
		lease := p.newLease(t.Context(), "k")
		r := lease.acquiring(false)
		var looked time.Time
		r.asker = pausing{&lease.attempt, &looked}
		r.send(t.Context(), quorum.All(1))
		r.wait(t.Context())
		if r.Count(wire.Granted) != 1 || looked.IsZero() {
			t.Fatalf("%v", r.Votes)
		}
		args := m.batches[0][0].args
		if stamp := time.UnixMicro(args[wallArg(args)].(int64)); stamp.After(looked) {
			t.Errorf("stamped %v after the last look", stamp.Sub(looked))
		}
	})
}

// A round ends with the last vote, whatever its outcome; and a vote that comes later is not counted.
func TestRoundEndsWithTheLastVote(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 5; n++ {
		r := round{decided: func(*round) bool { return false }, Tally: quorum.New(nil, n, quorum.All(n))}
		for i := range n {
			if r.over {
				t.Fatalf("%d nodes: over after %d votes", n, i)
			}
			r.hear(i, quorum.Said(wire.TimedOut, nil))
		}
		if !r.over {
			t.Fatalf("%d nodes: not over after all votes", n)
		}
		r.hear(0, quorum.Said(wire.Granted, nil))
		if got := r.Count(wire.Granted); got != 0 || r.Pending != 0 {
			t.Errorf("%d nodes: a late vote counts: %d granted, %d pending", n, got, r.Pending)
		}
	}
}
