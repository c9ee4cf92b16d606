package core

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/testutil"
)

// A refused caller learns what keeps the key taken.
func TestKindsOfHeld(t *testing.T) {
	under := func(lease *Lease) context.Context { return lease.Context() }
	type row struct {
		// The scene returns the context of the call, or nil for that of the test.
		scene func(w *world, holder, asker *process) context.Context
		want  HeldKind
		says  string
	}
	bubbles(t, 3, map[string]row{
		"of another process": {func(w *world, holder, _ *process) context.Context {
			w.holds(holder, "k")
			return nil
		}, HeldByOther, "held by another holder, retry after 10"},
		"of this process": {func(w *world, _, asker *process) context.Context {
			w.holds(asker, "k")
			return nil
		}, HeldByOther, "held by another holder, retry after 10"},
		"where a minority is down": {func(w *world, holder, _ *process) context.Context {
			w.holds(holder, "k")
			w.nodes[1].Down()
			return nil
		}, HeldByOther, "held by another holder"},
		"a vote each": {func(w *world, holder, _ *process) context.Context {
			w.holds(holder, "k")
			for i := range w.nodes {
				w.change(holder, i, "k", func(r *testutil.Resource) { r.Owner = fmt.Sprint("attempt", i) })
			}
			return nil
		}, HeldSplit, "held by several that ask for it, none with a quorum"},
		"after a release": {func(w *world, holder, _ *process) context.Context {
			w.releaseFor(w.holds(holder, "k"), time.Minute)
			synctest.Wait()
			return nil
		}, HeldCooldown, "held by no holder: the key rests after its last one, retry after 1m0"},
		"after a revocation": {func(w *world, holder, asker *process) context.Context {
			lease := w.holds(holder, "k")
			if _, err := asker.Revoke(w.t.Context(), "k", lease.FencingToken()); err != nil {
				w.t.Error(err)
			}
			return nil
		}, HeldCooldown, "held by no holder: the key rests after its last one, retry after 10"},
		"under the lease": {func(w *world, _, asker *process) context.Context { return under(w.acquire(asker, "k")) }, HeldByCaller, "the caller itself"},
		"under a lease under it": {func(w *world, _, asker *process) context.Context {
			return under(w.awaitUnder(under(w.acquire(asker, "k")), asker, "l"))
		}, HeldByCaller, "the caller itself"},
		"for who waits in another process": {func(w *world, holder, asker *process) context.Context {
			lease := w.holds(holder, "k")
			dead := w.process()
			w.waits(dead, "k")
			w.awaitPlaces(dead, "k")
			dead.cut()
			w.release(lease)
			synctest.Wait()
			return nil
		}, HeldForWaiter, "held for a waiter that came earlier, retry after 50ms"},
		"for who asks in this process": {func(w *world, _, asker *process) context.Context {
			asker.set(coretest.Fate{Delay: 10 * time.Millisecond})
			go func() {
				if lease, err := asker.TryAcquire(w.t.Context(), "k"); err == nil {
					w.release(lease)
				}
			}()
			synctest.Wait()
			return nil
		}, HeldForWaiter, "held for a waiter that came earlier"},
		"nothing is known": {func(w *world, _, _ *process) context.Context {
			for _, n := range w.nodes {
				n.Down()
			}
			return nil
		}, HeldUnknown, "no quorum of nodes available"},
	}, func(t *testing.T, w *world, c row) {
		asker := w.process()
		ctx := c.scene(w, w.process(), asker)
		if ctx == nil {
			ctx = t.Context()
		}
		_, err := asker.TryAcquire(ctx, "k")
		op, ok := errors.AsType[*OpError](err)
		if !ok || op.Held != c.want || (c.want != HeldUnknown) != errors.Is(err, ErrHeld) || !strings.Contains(op.Error(), c.says) {
			t.Errorf("%v: %+v, want %q", err, op, c.says)
		}
		w.pass(time.Minute)
	})
}

// A caller does not wait for a key whose cooldown ends after the caller's wait. Every other caller waits.
func TestRestThatOutlastsTheWait(t *testing.T) {
	const rest = 8 * time.Second // no quorum can grant the key for this long
	type row struct {
		most, deadline time.Duration
		refused        bool
	}
	bubbles(t, 3, map[string]row{
		"max wait":              {most: rest - time.Second, refused: true},
		"deadline":              {deadline: rest - time.Second, refused: true},
		"the sooner of them":    {most: time.Minute, deadline: time.Second, refused: true},
		"longer":                {most: rest + time.Second},
		"a later deadline":      {deadline: rest + time.Second},
		"for as long as it may": {},
	}, func(t *testing.T, w *world, c row) {
		p := w.process()
		lease := w.holds(p, "k")
		w.releaseFor(lease, rest)
		synctest.Wait()

		ctx, cancel := t.Context(), context.CancelFunc(func() {})
		if c.deadline > 0 {
			ctx, cancel = context.WithTimeout(ctx, c.deadline)
		}
		defer cancel()

		began := time.Now()
		next, err := p.Acquire(ctx, "k", MaxWait(c.most))
		took := time.Since(began)
		if !c.refused {
			if err != nil || took < rest-10*time.Millisecond {
				t.Fatalf("%v after %v", err, took)
			}
			w.release(next)
			return
		}

		op, ok := errors.AsType[*OpError](err)
		if !ok || !errors.Is(err, ErrHeld) || op.Held != HeldCooldown || errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		wantBetween(t, "refused after", took, 0, 10*time.Millisecond)
		wantBetween(t, "retry after", op.RetryAfter, rest-took-10*time.Millisecond, rest+10*time.Millisecond)
	})
}

// A caller learns of a cooldown at once, even if another caller of its process waits for the end of it.
func TestRestIsToldInLine(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		w.releaseFor(w.holds(p, "k"), time.Minute)
		w.waits(p, "k")
		time.Sleep(10 * time.Second)
		began := time.Now()
		_, err := p.Acquire(t.Context(), "k", MaxWait(49*time.Second))
		op, ok := errors.AsType[*OpError](err)
		if !ok || op.Held != HeldCooldown || time.Since(began) != 0 {
			t.Fatalf("%v after %v", err, time.Since(began))
		}
		wantBetween(t, "retry after", op.RetryAfter, 49*time.Second, 50*time.Second+10*time.Millisecond)
	})
}

// A node that has not answered yet counts as free, because a quorum may grant the key before the nodes that have
// answered.
func TestRestsOfNodes(t *testing.T) {
	t.Parallel()
	kept := func(s time.Duration) quorum.Vote {
		return quorum.Vote{Reply: wire.Reply{Verdict: wire.Held, Owner: wire.CooldownPrefix + "a", Remaining: s}}
	}
	other := quorum.Vote{Reply: wire.Reply{Verdict: wire.Held, Owner: "b", Remaining: time.Hour}}

	for _, c := range []struct {
		votes []quorum.Vote
		want  time.Duration
	}{
		{[]quorum.Vote{kept(9), kept(5), kept(7)}, 7},
		{[]quorum.Vote{kept(9), kept(5), quorum.NewVote(wire.Pending, nil)}, 5},
		{[]quorum.Vote{kept(9), quorum.NewVote(wire.Failed, nil), quorum.NewVote(wire.Granted, nil)}, 0},
		{[]quorum.Vote{kept(9), kept(8), other}, 8},
		{[]quorum.Vote{kept(9), other, other}, 0},
		{[]quorum.Vote{kept(4)}, 4},
		{[]quorum.Vote{kept(1), kept(2), kept(3), kept(4), quorum.NewVote(wire.Pending, nil)}, 2},
	} {
		ta := quorum.New(nil, len(c.votes), quorum.All(len(c.votes)))
		for i, v := range c.votes {
			ta.Add(i, v)
		}
		if got := ta.CooldownLeft(); got != c.want {
			t.Errorf("%v: %d, want %d", c.votes, got, c.want)
		}
	}
}
