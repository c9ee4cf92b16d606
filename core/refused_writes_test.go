package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/testutil"
)

// This file tests nodes that refuse a write of a script. Their reply is an error, which tells nothing about the lease.

// A refusingWrites selects the writes of a script that a node refuses, and has the error.
type refusingWrites struct {
	text string
	nth  int // from 1; 0 = writes that take memory, until any write has succeeded, as if out of memory; -1 = all
}

const outOfMemory = "OOM command not allowed when used memory > 'maxmemory'."

var writeCommands = []string{"SET", "DEL", "HSET", "HDEL", "ZADD", "ZREM", "ZREMRANGEBYRANK", "PEXPIRE", "PUBLISH"}

// refuse makes a node refuse writes from now on. The returned function reports whether it has refused one.
func (w *world) refuse(node int, r refusingWrites) (refused func() bool) {
	var hit atomic.Bool
	writes := 0
	w.nodes[node].OnCall(func(n int, args []string) string {
		if n == 1 {
			writes = 0
		}
		if !slices.Contains(writeCommands, args[0]) {
			return ""
		}
		takesMemory := args[0] == "SET" || args[0] == "HSET" || args[0] == "ZADD"
		switch {
		case r.nth == 0 && (writes > 0 || !takesMemory):
			writes++
			return ""
		case r.nth > 0:
			if writes++; writes != r.nth {
				return ""
			}
		}
		hit.Store(true)
		return r.text
	})
	return hit.Load
}

// A refusedScene has the key "k" on one node, the process that holds it, and another process.
type refusedScene struct {
	*world
	p, other *process
	lease    *Lease
}

// A refusedCall is a call whose requests reach the node. Whatever the node refuses, if the call returns nil, check must
// pass when the node accepts writes again. If want is set, the call must return want.
type refusedCall struct {
	opts  []Option
	first func(s *refusedScene) // called before the node refuses writes; may be nil
	call  func(s *refusedScene) error
	check func(s *refusedScene)
	want  error
	frees bool // the key is free in the end, whatever the call returns
}

var refusedCalls = map[string]refusedCall{
	"acquire": {
		first: func(s *refusedScene) { s.release(s.lease) },
		call:  func(s *refusedScene) error { _, err := s.acquireNow(); return err },
		check: func(s *refusedScene) { s.wantRefused(s.other, "k", ErrHeld) },
	},
	"acquire, as the first": {
		opts: []Option{WithRestartGuard(true)},
		first: func(s *refusedScene) {
			s.release(s.lease)
			s.nodes[0].Flush()
		},
		call:  func(s *refusedScene) error { _, err := s.acquireNow(); return err },
		check: func(s *refusedScene) { s.t.Error("granted by a node that was new") },
	},
	"acquire, waiting for a holder": {
		call: func(s *refusedScene) error {
			_, err := s.other.Acquire(s.t.Context(), "k", MaxWait(100*time.Millisecond))
			return err
		},
		check: func(s *refusedScene) { s.t.Error("granted while it is held") },
	},
	"acquire, in its turn": {
		call: func(s *refusedScene) error {
			c := s.waits(s.other, "k")
			time.AfterFunc(30*time.Second, c.cancel)
			s.lease.Release(s.t.Context())
			<-c.done
			return c.err
		},
		check: func(s *refusedScene) { s.wantRefused(s.p, "k", ErrHeld) },
	},
	"provision": {
		opts: []Option{WithRestartGuard(true)},
		first: func(s *refusedScene) {
			s.release(s.lease)
			s.nodes[0].Flush()
		},
		call: func(s *refusedScene) error {
			ctx, cancel := context.WithTimeout(s.t.Context(), 500*time.Millisecond)
			defer cancel()
			return s.p.Provision(ctx)
		},
		check: func(s *refusedScene) { s.release(s.acquire(s.other, "k")) },
	},
	"renew": {
		call: func(s *refusedScene) error {
			s.pass(time.Second)
			return s.lease.renewOnce()
		},
		check: func(s *refusedScene) {
			if left := s.resource(s.p, 0, "k").Expiry - time.Now().UnixMilli(); left < 9999 {
				s.t.Errorf("renewed, and lasts for %d ms", left)
			}
		},
	},
	"renew, where it was forgotten": {
		first: func(s *refusedScene) { s.forget(s.p, 0, "k") },
		call:  func(s *refusedScene) error { return s.lease.renewOnce() },
		check: func(s *refusedScene) { s.wantRefused(s.other, "k", ErrHeld) },
	},
	"release": {
		call:  func(s *refusedScene) error { return s.lease.Release(s.t.Context()) },
		check: func(s *refusedScene) { s.release(s.acquire(s.other, "k")) },
		frees: true,
	},
	"release, while somebody waits": {
		call: func(s *refusedScene) error {
			c := s.waits(s.other, "k")
			time.AfterFunc(30*time.Second, c.cancel)
			err := s.lease.Release(s.t.Context())
			<-c.done
			if c.lease != nil {
				s.release(c.lease)
			}
			return errors.Join(err, c.err)
		},
		check: func(s *refusedScene) { s.release(s.acquire(s.other, "k")) },
		frees: true,
	},
	"release, where something may still arrive": {
		call: func(s *refusedScene) error {
			s.p.links[0].Next(coretest.Fate{LoseReply: true}, wire.OpRenew)
			s.lease.renew()
			synctest.Wait()
			return s.lease.Release(s.t.Context())
		},
		check: func(s *refusedScene) {
			s.lease.renewAlone(wire.NodeTimeOf(time.Now().Add(time.Minute)))
			s.release(s.acquire(s.other, "k"))
		},
		frees: true,
	},
	"release with a cooldown": {
		call: func(s *refusedScene) error { return s.lease.Release(s.t.Context(), Cooldown(time.Minute)) },
		check: func(s *refusedScene) {
			s.pass(59 * time.Second)
			s.wantRefused(s.other, "k", ErrHeld)
		},
	},
	"complete": {
		call:  func(s *refusedScene) error { return s.lease.Complete(over(), []byte("result")) },
		check: func(s *refusedScene) { s.wantRefused(s.other, "k", ErrDone) },
	},
	"complete, where others were": {
		call: func(s *refusedScene) error {
			s.setCounter(s.p, 0, "k", int64(s.lease.attempt.token)+1)
			return s.lease.Complete(over(), nil)
		},
		want: ErrLost,
	},
	"complete, after others": {
		call: func(s *refusedScene) error {
			s.change(s.p, 0, "k", recorded(int64(s.lease.attempt.token)+1))
			return s.lease.Complete(over(), nil)
		},
		want: ErrLost,
	},
	"revoke": {
		call: func(s *refusedScene) error {
			_, err := s.other.Revoke(s.t.Context(), "k", s.lease.FencingToken())
			return err
		},
		check: func(s *refusedScene) {
			wantErr(s.t, s.lease.renewOnce(), ErrLost)
			wantErr(s.t, s.lease.Complete(over(), nil), ErrLost)
			wantReason(s.t, s.lease.Release(s.t.Context()), LossRevoked)
		},
	},
	"forget": {
		first: func(s *refusedScene) {
			s.release(s.lease)
			s.change(s.p, 0, "k", recorded(5))
		},
		call:  func(s *refusedScene) error { return s.other.ForgetRecord(s.t.Context(), "k", 5) },
		check: func(s *refusedScene) { s.release(s.acquire(s.other, "k")) },
	},
}

// Whatever write of a script a node refuses, no call succeeds as if it had been written.
func TestRefusedWrites(t *testing.T) {
	for name, c := range refusedCalls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, text := range []string{outOfMemory, "READONLY You can't write against a read only replica.", "NOPERM this user has no permissions"} {
				for nth := 1; ; nth++ {
					if nth > 20 {
						t.Fatal("no end of writes")
					}
					if !c.meets(t, refusingWrites{text, nth}) {
						if nth == 1 {
							t.Error("writes nothing")
						}
						break
					}
				}
			}
			c.meets(t, refusingWrites{outOfMemory, 0})
			c.meets(t, refusingWrites{outOfMemory, -1})
		})
	}
}

// meets plays the scene, and reports whether the node has refused a write.
func (c refusedCall) meets(t *testing.T, r refusingWrites) (met bool) {
	t.Run(fmt.Sprintf("%.7s %d", r.text, r.nth), func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &refusedScene{world: &world{t: t, nodes: testutil.NewNodes(t, 1)}}
			s.p, s.other = s.process(c.opts...), s.process(c.opts...)
			s.lease = s.holds(s.p, "k")
			if c.first != nil {
				c.first(s)
			}

			refused := s.refuse(0, r)
			err := c.call(s)
			met = refused()
			s.nodes[0].OnCall(nil)

			switch {
			case c.want != nil:
				wantErr(t, err, c.want)
			case err == nil:
				c.check(s)
			case c.frees:
				s.pass(2*s.p.p.nodeTimeout + time.Millisecond) // the release is sent again
				s.release(s.acquire(s.other, "k"))
			}
		})
	})
	return met
}

// Nodes that are out of memory cost no holder its lease: they still execute renewals and releases. It does not matter
// what else a script has to write.
func TestOutOfMemoryCostsNoLease(t *testing.T) {
	bubbles(t, 3, map[string]func(w *world, p *process){
		"held": func(*world, *process) {},
		"forgotten": func(w *world, p *process) {
			for i := range w.nodes {
				w.forget(p, i, "k")
			}
		},
		"under a longer max TTL than nodes know": func(w *world, p *process) {
			p.e.LearnMaxTTL(time.Minute)
		},
		"on nodes that have granted nothing else": func(w *world, p *process) {
			for i := range w.nodes {
				w.forget(p, i, "k")
				w.nodes[i].Exec("SET", p.e.Keys.Guard(0), must(w.nodes[i].Exec("GET", p.e.Keys.Guard(0))).(string)+" claim")
			}
		},
		"while another is asked for": func(w *world, p *process) {
			go func() {
				for range 300 { // within the minute
					other, err := p.TryAcquire(w.t.Context(), "other")
					if err == nil { // if it was sent together with a renewal
						other.Release(w.t.Context())
					}
					time.Sleep(100 * time.Millisecond)
				}
			}()
		},
	}, func(t *testing.T, w *world, change func(*world, *process)) {
		p := w.process()
		lease := w.holds(p, "k")
		for i := range w.nodes {
			w.refuse(i, refusingWrites{outOfMemory, 0})
		}

		change(w, p)
		w.pass(time.Minute)
		if err := context.Cause(lease.Context()); err != nil {
			t.Fatalf("lost: %v", err)
		}

		w.release(lease)
		for i := range w.nodes {
			w.nodes[i].OnCall(nil)
		}
		w.pass(time.Second)
		w.release(w.acquire(p, "k"))
	})
}

// On real servers with too little memory, a lease is still renewed and released.
func TestLeaseSurvivesMaxmemory(t *testing.T) {
	r := onRedis(t, 3)
	p := r.process(sturdy)
	lease := r.acquire(p, "k")
	for _, s := range r.servers {
		if err := s.Client().ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
			t.Fatal(err)
		}
	}

	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := p.TryAcquire(ctx, "other"); !errors.Is(err, ErrUnavailable) {
		t.Errorf("another key: %v", err)
	}

	for range 2 {
		until := lease.ValidUntil().Add(100 * time.Millisecond)
		testutil.Await(t, "renewed or lost", func() bool { return lease.Context().Err() != nil || lease.ValidUntil().After(until) })
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// A release that a node refuses is sent twice, and no more. The second one still starts the cooldown.
func TestReleaseIsToldTwice(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process()
		lease := w.acquire(p, "k")
		told := p.counting(wire.OpRelease)
		w.refuse(0, refusingWrites{outOfMemory, -1})
		wantErr(t, lease.Release(t.Context()), ErrUnavailable)
		w.pass(10 * p.p.nodeTimeout)
		if n := told.Load(); n != 2 {
			t.Errorf("told %d times", n)
		}
		w.nodes[0].OnCall(nil)

		rests := w.acquire(p, "rests")
		w.refuse(0, refusingWrites{outOfMemory, -1})
		wantErr(t, rests.Release(t.Context(), Cooldown(time.Minute)), ErrUnavailable)
		w.nodes[0].OnCall(nil)
		w.pass(2 * p.p.nodeTimeout)
		if r := w.resource(p, 0, "rests"); r.Owner != wire.CooldownPrefix+rests.name() {
			t.Errorf("told again, it has %+v", r)
		}
	})
}

// acquireNow tries to acquire the key once.
func (s *refusedScene) acquireNow() (*Lease, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Millisecond)
	defer cancel()
	return s.p.TryAcquire(ctx, "k")
}

// recorded adds the record of a completion under a token to a resource.
func recorded(token int64) func(r *testutil.Resource) {
	return func(r *testutil.Resource) {
		r.Record = &testutil.ResourceRecord{Ballot: token, KeptUntil: time.Now().Add(time.Hour).UnixMilli(), Origin: token}
	}
}
