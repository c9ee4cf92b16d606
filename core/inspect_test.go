package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/internal/race"
	"github.com/lockkit/lockkit/testutil"
)

// inspect returns the state of a key. It fails the test if there is no quorum.
func (w *world) inspect(p *process, key string) KeyState {
	w.t.Helper()
	state, err := p.Inspect(w.t.Context(), key)
	if err != nil {
		w.t.Fatalf("inspect: %v", err)
	}
	return state
}

// verdicts returns the verdicts of the nodes.
func (s KeyState) verdicts() (all []Verdict) {
	for _, n := range s.Nodes {
		all = append(all, n.Verdict)
	}
	return all
}

// wantState checks the state of a key. The holder must be that of lease, and the record must be want. A nil stands for
// none.
func wantState(t *testing.T, s KeyState, lease *Lease, want *Record, verdicts ...Verdict) {
	t.Helper()
	if !slices.Equal(s.verdicts(), verdicts) {
		t.Errorf("the nodes say %v, want %v", s.verdicts(), verdicts)
	}
	switch h := s.Holder; {
	case (h != nil) != (lease != nil):
		t.Errorf("holder %+v", h)
	case h == nil:
	case h.Token != lease.FencingToken() || h.Attempt != lease.name() || h.Remaining <= 0 || h.Remaining > lease.attempt.p.ttl+time.Millisecond:
		t.Errorf("holder %+v, want token %d of %v", h, lease.FencingToken(), lease.name())
	}
	switch r := s.Record; {
	case (r != nil) != (want != nil):
		t.Errorf("record %+v", r)
	case r != nil && (r.Token != want.Token || string(r.Result) != string(want.Result)):
		t.Errorf("record %+v, want %+v", r, want)
	}
}

// Inspect shows a key that is free, held, waited for, handed over, released and completed.
func TestInspect(t *testing.T) {
	race.SkipSweep(t)
	onNodes(t, []int{1, 3, 5}, func(t *testing.T, w *world) {
		p, other := w.process(Retention(time.Hour)), w.process()
		all := func(v Verdict) []Verdict { return slices.Repeat([]Verdict{v}, len(w.nodes)) }
		wantState(t, w.inspect(other, "k"), nil, nil, all(VerdictGone)...)

		lease := w.holds(p, "k")
		s := w.inspect(other, "k")
		wantState(t, s, lease, nil, all(VerdictHeld)...)
		if d := time.Since(s.Holder.Since); d < 0 || d > time.Second || s.Holder.Remaining < 9*time.Second {
			t.Errorf("just granted: %+v", s.Holder)
		}

		next := w.waits(other, "k")
		waited := 0
		for i := range w.nodes { // a node that was not needed for the refusal need not know of the waiter
			if w.resource(p, i, "k").MayHaveWaiter {
				waited++
			}
		}
		if waited < quorum.Of(len(w.nodes)) {
			t.Errorf("%d nodes know that somebody waits", waited)
		}
		wantState(t, w.inspect(p, "k"), lease, nil, all(VerdictHeld)...)

		w.handsOff(lease, next, 0, time.Second)
		time.Sleep(10 * time.Second) // until the lease is renewed on every node
		wantState(t, w.inspect(p, "k"), next.lease, nil, all(VerdictHeld)...)
		w.release(next.lease)
		synctest.Wait()
		wantState(t, w.inspect(p, "k"), nil, nil, all(VerdictGone)...)

		want := w.complete(w.holds(p, "k"), "result")
		synctest.Wait()
		wantState(t, w.inspect(other, "k"), nil, &want, all(VerdictDone)...)
		time.Sleep(time.Hour - time.Second)
		wantState(t, w.inspect(other, "k"), nil, &want, all(VerdictDone)...)
		time.Sleep(time.Second)
		wantState(t, w.inspect(other, "k"), nil, nil, all(VerdictGone)...)
		if w.recordOn(p, 0, "k") == "" {
			t.Error("the node has dropped the record already")
		}
	})
}

// The remaining time of a lease is that on the nodes, by their own clocks.
func TestInspectLeft(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, other := w.process(WithClockWindow(0)), w.stranger()
		w.nodes[0].StepClock(time.Hour)
		w.nodes[1].StepClock(2 * time.Hour)
		w.holds(p, "k")
		p.cut()

		left := w.inspect(other, "k").Holder.Remaining
		wantBetween(t, "left", left, 9*time.Second, 10*time.Second+time.Millisecond)

		time.Sleep(left - time.Millisecond)
		if w.inspect(other, "k").Holder == nil {
			t.Errorf("over before %v", left)
		}
		time.Sleep(time.Millisecond)
		if h := w.inspect(other, "k").Holder; h != nil {
			t.Errorf("%+v after %v", h, left)
		}
	})

	uneven := func(t *testing.T, w *world) {
		p, other := w.process(), w.stranger()
		w.holds(p, "k")
		now := time.Now().UnixMilli()
		for i, left := range []int64{1000, 3000, 2000} {
			w.change(p, i, "k", func(r *testutil.Resource) { r.Expiry = now + left - 1 })
		}
		if left := w.inspect(other, "k").Holder.Remaining; left != 2*time.Second {
			t.Errorf("a quorum has it for %v", left)
		}
	}
	t.Run("uneven", func(t *testing.T) { bubble(t, 3, uneven) })
}

// A key in its cooldown has no holder.
func TestInspectCooldown(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		w.releaseFor(w.holds(p, "k"), time.Minute)
		synctest.Wait()
		wantState(t, w.inspect(p, "k"), nil, nil, VerdictHeld, VerdictHeld, VerdictHeld)
	})
}

// Inspect works while a minority of nodes is missing. Without a quorum it fails, and the error has the answer of each
// node.
func TestInspectWithNodesDown(t *testing.T) {
	for fault, begin := range map[string]struct {
		of    func(n *testutil.Node)
		says  Verdict
		heeds bool
	}{
		"down":              {of: (*testutil.Node).Down, says: VerdictFailed},
		"hung":              {of: (*testutil.Node).Hang, says: VerdictTimedOut},
		"hung, by deadline": {of: (*testutil.Node).Hang, says: VerdictTimedOut, heeds: true},
		"denied":            {of: func(n *testutil.Node) { n.Refuse("GET", "NOPERM this user has no permissions") }, says: VerdictFailed},
		"no time":           {of: func(n *testutil.Node) { n.Refuse("TIME", "NOPERM this user has no permissions") }, says: VerdictFailed},
	} {
		bubbleNamed(t, fault, 3, func(t *testing.T, w *world) {
			w.heeds = begin.heeds
			p, other := w.process(), w.process()
			lease := w.holds(p, "k")

			begin.of(w.nodes[2])
			start := time.Now()
			wantState(t, w.inspect(other, "k"), lease, nil, VerdictHeld, VerdictHeld, begin.says)

			begin.of(w.nodes[0])
			state, err := other.Inspect(t.Context(), "k")
			wantErr(t, err, ErrUnavailable)
			if d := time.Since(start); d > 2*other.p.nodeTimeout {
				t.Errorf("it took %v", d)
			}

			op, _ := errors.AsType[*OpError](err)
			if op.Op != OpInspect || op.Key != "k" || op.Nodes[0].Err == nil || op.Nodes[1].Verdict != VerdictHeld || op.Nodes[2].Err == nil {
				t.Errorf("%+v", op)
			}
			if state.Holder != nil || len(state.Nodes) != 3 || state.Nodes[1].Holder == nil || !strings.Contains(err.Error(), "inspect") {
				t.Errorf("%+v, %v", state, err)
			}
		})
	}
}

// An unfit node does not count for Inspect.
func TestInspectOfUnfitNodes(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		synctest.Wait() // late answers to Provision
		w.unfit(p, 1)
		w.unfit(p, 2)
		_, err := p.Inspect(t.Context(), "k")
		wantErr(t, err, ErrUnavailable)
		wantInError(t, err, "WRONGPASS")
	})
}

// Inspect ends early with its context, and returns what is known by then. It refuses invalid keys and a closed Locker.
func TestInspectEnds(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		lease := w.holds(p, "k")
		w.nodes[0].Hang()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if s, err := p.Inspect(ctx, "k"); err != nil || s.Holder == nil || s.Nodes[0].Verdict != VerdictPending {
			t.Errorf("a quorum has answered: %+v, %v", s, err)
		}

		w.nodes[1].Hang()
		ctx, cancel = context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		s, err := p.Inspect(ctx, "k")
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrUnavailable) {
			t.Errorf("too soon to tell: %v", err)
		}
		wantState(t, s, nil, nil, VerdictPending, VerdictPending, VerdictHeld)

		w.nodes[1].Up()
		why := errors.New("why")
		gone, leave := context.WithCancelCause(t.Context())
		leave(why)
		before := w.nodes[1].Calls()["TIME"]
		_, err = p.Inspect(gone, "k")
		synctest.Wait()
		if n := w.nodes[1].Calls()["TIME"] - before; n > 0 {
			t.Error("a node was asked for nobody")
		}
		wantErr(t, err, why)
		wantErr(t, err, context.Canceled)

		for _, key := range []string{"", strings.Repeat("k", wire.MaxKey+1)} {
			_, err = p.Inspect(t.Context(), key)
			wantErr(t, err, ErrInvalid)
		}

		lease.Release(over())
		p.Close(over())
		_, err = p.Inspect(t.Context(), "k")
		wantErr(t, err, ErrClosed)
	})
}

// If no attempt has a quorum, the key has no holder. A record is decided only if a quorum has it with the same ballot.
func TestInspectMinorities(t *testing.T) {
	race.SkipSweep(t)
	bubble(t, 3, func(t *testing.T, w *world) {
		a, b, other := w.process(), w.process(), w.process()
		for i, p := range []*process{a, b} {
			lease := p.newLease(t.Context(), "k")
			if v := askOf(lease.attempt.newAcquireRound(false), i); v.Verdict != wire.Granted {
				t.Fatal(v.Verdict)
			}
		}

		s := w.inspect(other, "k")
		wantState(t, s, nil, nil, VerdictHeld, VerdictHeld, VerdictGone)
		if s.Nodes[0].Holder.Attempt == s.Nodes[1].Holder.Attempt || s.Nodes[2].Holder != nil {
			t.Errorf("%+v", s.Nodes)
		}
	})

	bubbleNamed(t, "record", 3, func(t *testing.T, w *world) {
		p := w.process()
		want := w.cutShort(p, "k", "result")
		s := w.inspect(p, "k")
		wantState(t, s, nil, nil, VerdictDone, VerdictGone, VerdictGone)
		if r := s.Nodes[0].Record; r.Token != want.Token {
			t.Errorf("%+v", r)
		}

		// Another process offered the same record under its own ballot, and died as well.
		w.change(p, 1, "k", func(r *testutil.Resource) {
			r.Record = &testutil.ResourceRecord{Ballot: int64(want.Token) + 1, KeptUntil: time.Now().Add(time.Hour).UnixMilli(), Origin: int64(want.Token), Result: "result"}
		})
		wantState(t, w.inspect(p, "k"), nil, nil, VerdictDone, VerdictDone, VerdictGone)
	})
}

// The token is the one that a quorum has among the nodes with the lease. If they do not agree, there is no token.
func TestInspectToken(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, other := w.process(), w.process()
		lease := w.holds(p, "k")
		counter := func(i, more int) { w.setCounter(p, i, "k", int64(lease.FencingToken())+int64(more)) }
		counter(2, 7) // as if it had granted the key to another attempt before the lease was brought back
		wantState(t, w.inspect(other, "k"), lease, nil, VerdictHeld, VerdictHeld, VerdictHeld)
		counter(2, -7)
		wantState(t, w.inspect(other, "k"), lease, nil, VerdictHeld, VerdictHeld, VerdictHeld)

		w.nodes[0].Down()
		if h := w.inspect(other, "k").Holder; h.Token != 0 || !h.Since.IsZero() || h.Attempt != lease.name() {
			t.Errorf("%+v", h)
		}
	})
}

// A value that this version does not know is an error of its node, not a free key.
func TestInspectForeign(t *testing.T) {
	bubbles(t, 1, map[string]string{
		"text": "mine", "empty": "", "a mark": "\x04", "cut short": "\x04\x00\x00", "a mark from the future": "\x06" + testutil.Resource{}.String()[1:], "the layout before": "\x02" + testutil.Resource{}.String()[1:],
		"another length": "\x05" + testutil.Resource{Before: -1}.String()[1:],
		"a fraction":     strings.Replace(testutil.Resource{Expiry: 1, Owner: "a"}.String(), "\xf0\x3f", "\xf8\x3f", 1),
		"a hash":         "",
	}, func(t *testing.T, w *world, text string) {
		p := w.process()
		if strings.HasSuffix(t.Name(), "hash") {
			must(w.nodes[0].Exec("HSET", p.e.Keys.Resource("k"), "e", "0"))
		} else {
			must(w.nodes[0].Exec("SET", p.e.Keys.Resource("k"), text))
		}
		for range 2 * node.MaxFailures { // the node does not count as one in trouble
			_, err := p.Inspect(t.Context(), "k")
			wantErr(t, err, ErrUnavailable)
			if !strings.Contains(err.Error(), "this version") && !strings.Contains(err.Error(), "WRONGTYPE") {
				t.Error(err)
			}
		}
		w.release(w.acquire(p, "another"))
	})
}

// contents returns everything that the nodes store, with its time to live.
func (w *world) contents() string {
	w.t.Helper()
	var text strings.Builder
	for i, n := range w.nodes {
		for _, key := range slices.Sorted(slices.Values(n.Keys())) {
			dump, err := n.Exec("GET", key)
			if err != nil {
				dump = must(n.Exec("TYPE", key))
			}
			fmt.Fprintf(&text, "%d %q %q %v\n", i, key, dump, must(n.Exec("PTTL", key)))
		}
	}
	return text.String()
}

// Inspect changes nothing on the nodes, whatever they store, and runs no script.
func TestInspectChangesNothing(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, other := w.process(), w.process()
		lease := w.holds(p, "held")
		w.waits(other, "held")
		w.everywhere(p, "free")
		w.complete(w.holds(p, "done"), "result")
		w.cutShort(p, "half done", "result")
		p.mend()
		synctest.Wait()

		before, scripts := w.contents(), w.nodes[0].Calls()["EVALSHA"]
		for _, key := range []string{"held", "free", "done", "half done", "never used"} {
			w.inspect(other, key)
			w.inspect(p, key)
		}

		synctest.Wait()
		if after := w.contents(); after != before {
			t.Errorf("before:\n%safter:\n%s", before, after)
		}
		if n := w.nodes[0].Calls()["EVALSHA"] - scripts; n > 0 {
			t.Errorf("%d scripts", n)
		}
		wantValid(t, lease)
	})
}

// However many callers inspect a key, another caller can acquire it.
func TestInspectDisturbsNobody(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, other := w.process(), w.process()
		for _, n := range w.nodes {
			n.Slow(time.Millisecond)
		}

		stop := make(chan struct{})
		var looking sync.WaitGroup
		for range 20 {
			looking.Go(func() {
				for !isClosed(stop) {
					if _, err := other.Inspect(t.Context(), "k"); err != nil {
						t.Error(err)
					}
				}
			})
		}

		for range 50 {
			w.release(w.acquire(p, "k"))
		}
		close(stop)
		looking.Wait()
		w.wantAtEase(other)
	})
}

// Close waits for an Inspect that is under way.
func TestInspectAndClose(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		for _, n := range w.nodes {
			n.Slow(p.p.nodeTimeout / 8) // each of four commands
		}
		looked := make(chan error, 1)
		go func() { _, err := p.Inspect(t.Context(), "k"); looked <- err }()
		synctest.Wait()
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if err := testutil.Receive(t, looked); err != nil {
			t.Error(err)
		}
	})
}

func TestInspectOnRealServers(t *testing.T) {
	r := onRedis(t, 3)
	p := r.process(Note("who"))
	lease := r.acquire(p, "inspected")
	testutil.Await(t, "everywhere", func() bool {
		s := must(p.Inspect(t.Context(), "inspected"))
		return slices.Equal(s.verdicts(), []Verdict{VerdictHeld, VerdictHeld, VerdictHeld})
	})
	if h := must(p.Inspect(t.Context(), "inspected")).Holder; h.Token != lease.FencingToken() || h.Note != "who" || h.Remaining <= 0 {
		t.Errorf("%+v", h)
	}

	succeeds(r, lease.Complete(t.Context(), []byte("result")))
	if s := must(p.Inspect(t.Context(), "inspected")); s.Holder != nil || string(s.Record.Result) != "result" {
		t.Errorf("%+v", s)
	}
}

// Nodes that have lost their memory may have had the lease that another node has. Whether the key is held is unknown
// until the lease is renewed or the quarantine is over.
func TestInspectOfNodesThatForgot(t *testing.T) {
	bubbles(t, 3, map[string]func(*testutil.Node){
		"emptied": (*testutil.Node).Flush, "restarted": (*testutil.Node).RestartEmpty,
	}, func(t *testing.T, w *world, forget func(*testutil.Node)) {
		p, other := w.process(), w.process()
		w.holds(p, "k")

		forget(w.nodes[1])
		s := w.inspect(other, "k")
		if s.Holder == nil || s.Unknown() || s.Nodes[1].Verdict != VerdictQuarantined || s.Nodes[1].Remaining != 10*time.Second {
			t.Errorf("one: %+v", s)
		}

		forget(w.nodes[2])
		if s = w.inspect(other, "k"); s.Holder != nil || !s.Unknown() || s.Nodes[0].Holder == nil {
			t.Errorf("two: %+v", s)
		}
		if s = w.inspect(other, "another"); !s.Unknown() {
			t.Errorf("a key that one node does not have: %+v", s)
		}

		w.pass(4 * time.Second)
		if s = w.inspect(other, "k"); s.Holder == nil || s.Unknown() {
			t.Errorf("renewed: %+v", s)
		}

		w.pass(20 * time.Second)
		if s = w.inspect(other, "another"); s.Unknown() || s.Nodes[1].Verdict != VerdictGone {
			t.Errorf("after the quarantine: %+v", s)
		}
	})
}

// A promoted replica may have lost data of its primary, even before a process has asked it for a lock.
func TestInspectOfPromotedNodes(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		for _, n := range w.nodes[1:] {
			n.Promote()
		}
		if s := w.inspect(p, "k"); !s.Unknown() || s.Nodes[2].Verdict != VerdictQuarantined {
			t.Errorf("%+v", s)
		}
	})
}
