package core

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/testutil"
)

// wantNotReady checks an error of Ready.
func wantNotReady(t *testing.T, err error, parts ...string) {
	t.Helper()
	wantErr(t, err, ErrUnavailable)
	wantInError(t, err, append(parts, "lockkit: ready: ")...)
	if op, ok := errors.AsType[*OpError](err); !ok || op.Op != OpReady || op.Op.String() != "ready" {
		t.Errorf("error is %#v", err)
	}
}

// Ready succeeds if a quorum of nodes votes, and returns an error otherwise.
func TestReady(t *testing.T) {
	onNodes(t, []int{1, 3, 5}, func(t *testing.T, w *world) {
		p := w.process(WithRestartGuard(true))
		for i := range len(w.nodes) - quorum.Of(len(w.nodes)) {
			if err := p.Ready(t.Context()); err != nil {
				t.Fatalf("with %d nodes down: %v", i, err)
			}
			w.nodes[i].Down()
		}
		if err := p.Ready(t.Context()); err != nil {
			t.Fatalf("with as many nodes down as may be: %v", err)
		}

		w.nodes[len(w.nodes)-1].Down()
		start := time.Now()
		wantNotReady(t, p.Ready(t.Context()), "connection refused")
		wantBetween(t, "not ready after", time.Since(start), 0, p.p.nodeTimeout)

		for _, n := range w.nodes {
			n.Up()
		}
		time.Sleep(2 * p.p.nodeTimeout)
		if err := p.Ready(t.Context()); err != nil {
			t.Errorf("with all nodes back: %v", err)
		}
	})
}

// Ready sends one request to each node, and adds no keys.
func TestReadyIsCheap(t *testing.T) {
	bubbles(t, 3, map[string]bool{"guarded": true, "unguarded": false}, func(t *testing.T, w *world, guard bool) {
		p := w.process(WithRestartGuard(guard))
		synctest.Wait()
		keys, asked := w.nodes[0].Keys(), make([]int, 3)
		for i, n := range w.nodes {
			asked[i] = n.Calls()["EVALSHA"]
		}
		succeeds(t, p.Ready(t.Context()))
		synctest.Wait()
		for i, n := range w.nodes {
			if requests := n.Calls()["EVALSHA"] - asked[i]; requests != 1 {
				t.Errorf("%d requests to node %d", requests, i)
			}
		}
		if now := w.nodes[0].Keys(); len(now) != len(keys) {
			t.Errorf("keys %v, were %v", now, keys)
		}
	})
}

// Ready does not wait for a node that hangs if the others decide the result, whatever it is.
func TestReadyWaitsForNobody(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		w.nodes[1].Hang()
		start := time.Now()
		if err := p.Ready(t.Context()); err != nil || time.Since(start) > 0 {
			t.Errorf("%v after %v", err, time.Since(start))
		}

		for _, i := range []int{0, 2} {
			p.links[i].Set(coretest.Fate{Refuse: true})
		}
		start = time.Now()
		wantNotReady(t, p.Ready(t.Context()), "node 0 (", "node 2 (")
		wantBetween(t, "not ready after", time.Since(start), 0, coretest.Refusing)
	})
}

// Ready returns an error if two of three nodes would not grant a key, or do not answer.
func TestNotReady(t *testing.T) {
	each := func(w *world, f func(*testutil.Node)) {
		for _, n := range w.nodes[1:] {
			f(n)
		}
	}

	type row struct {
		breaks func(*testutil.Node)
		guard  bool
		says   string
	}
	bubbles(t, 3, map[string]row{
		"emptied":        {(*testutil.Node).Flush, true, "quarantined for another 10s"},
		"clock":          {func(n *testutil.Node) { n.StepClock(time.Second) }, false, "clock is off by 1s"},
		"replica":        {func(n *testutil.Node) { n.SetReplica(true) }, true, "is a replica"},
		"out of memory":  {func(n *testutil.Node) { n.Refuse("SET", "OOM command not allowed when used memory > 'maxmemory'.") }, false, "OOM"},
		"few replicas":   {func(n *testutil.Node) { n.Refuse("SET", "NOREPLICAS Not enough good replicas to write.") }, true, "NOREPLICAS"},
		"nobody answers": {(*testutil.Node).Hang, true, "no answer within the node timeout"},
	}, func(t *testing.T, w *world, c row) {
		p := w.process(WithRestartGuard(c.guard))
		each(w, c.breaks)
		err := p.Ready(t.Context())
		wantNotReady(t, err, "node 1 (", "node 2 (", c.says)
		_, held := p.TryAcquire(t.Context(), "k")
		wantErr(t, held, ErrUnavailable)
		each(w, (*testutil.Node).Up)
	})
}

// A node that lost its memory begins its quarantine when Ready asks it. RetryAfter of the error has the time until the
// quarantine is over.
func TestReadyBeginsTheQuarantine(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		w.nodes[0].Flush()
		w.nodes[1].Flush()
		err := p.Ready(t.Context())
		op, ok := errors.AsType[*OpError](err)
		if !ok || op.RetryAfter <= 9*time.Second || op.RetryAfter > 10*time.Second {
			t.Fatalf("%#v", err)
		}
		time.Sleep(op.RetryAfter)
		if err := p.Ready(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// One server with two addresses does not have two votes.
func TestReadyWithOneServerTwice(t *testing.T) {
	bubble(t, 2, func(t *testing.T, w *world) {
		p := w.sameServerTwice()
		p.links[2].Set(coretest.Fate{Refuse: true})
		wantErr(t, p.Ready(t.Context()), node.ErrSameServer)
	})
}

func TestReadyEnds(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		errGone := errors.New("the prober has gone")
		gone, cancel := context.WithCancelCause(t.Context())
		cancel(errGone)
		err := p.Ready(gone)
		wantErr(t, err, context.Canceled)
		wantErr(t, err, errGone)

		for _, n := range w.nodes[1:] {
			n.Hang()
		}
		hurried, stop := context.WithTimeout(t.Context(), p.p.nodeTimeout/2)
		defer stop()
		start := time.Now()
		err = p.Ready(hurried)
		wantErr(t, err, context.DeadlineExceeded)
		wantBetween(t, "ended after", time.Since(start), p.p.nodeTimeout/2, p.p.nodeTimeout/2)
		if errors.Is(err, ErrUnavailable) {
			t.Errorf("two nodes might have answered yet: %v", err)
		}
		for _, n := range w.nodes {
			n.Up()
		}

		time.Sleep(10 * time.Second)
		succeeds(t, p.Close(t.Context()))
		err = p.Ready(t.Context())
		wantErr(t, err, ErrClosed)
		if text := slog.AnyValue(err).Resolve().String(); strings.Contains(text, "key_hash") {
			t.Errorf("there is no key: %s", text)
		}
		var none *Locker
		wantErr(t, none.Ready(t.Context()), ErrInvalid)
	})
}
