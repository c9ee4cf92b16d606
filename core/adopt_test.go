package core

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// These tests are about records that are not decided yet: cut short, overtaken, completed by others, repaired.

// A contender that got one node and gave up has raised the node's counter above the token that completes. This does not
// undo the record.
func TestGreaterCounterDoesNotUndoARecord(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		a, x, y := w.process(), w.process(), w.process()
		lease := w.acquire(a.reaches(0, 1), "k")
		w.partly(x, 2, "k")
		want := w.complete(lease, "result")
		_, err := y.reaches(0, 2).TryAcquire(t.Context(), "k")
		wantDone(t, err, want)
		w.wantDoneEverywhere("k", want)
	})
}

// The next acquirer that sees an unfinished record completes it. This takes a quorum: until then the record is not
// reported.
func TestCutShortIsAdopted(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		want := w.cutShort(w.process(), "k", "result")
		p := w.process().reaches(0, 1)
		for _, k := range p.links[:2] {
			k.Set(coretest.Fate{Refuse: true}, wire.OpComplete)
		}
		_, err := p.TryAcquire(t.Context(), "k") // sees the record, but cannot complete it
		if err == nil || errors.Is(err, ErrDone) {
			t.Fatalf("a record on one node of three: %v", err)
		}
		if w.recordOn(p, 1, "k") != "" || w.recordOn(p, 2, "k") != "" {
			t.Fatal("the schedule is off: COMPLETE came through")
		}

		_, err = w.process().reaches(0, 2).TryAcquire(t.Context(), "k")
		wantDone(t, err, want)
		w.wantDoneEverywhere("k", want)
	})
}

// A record on one node may count if a node that does not answer has it, too. No attempt holds the key then, so the
// error of a call whose time ends meanwhile is not ErrHeld.
func TestRecordThatMayCountIsNoHolder(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		w.cutShort(w.process(), "k", "result")
		p := w.process()
		p.links[2].Set(coretest.Fate{Lose: true})
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()

		_, err := p.TryAcquire(ctx, "k")
		if ClassOf(err) != ClassUnavailable || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("one node has a record, one granted the key, and one is silent: %v (%v)", err, ClassOf(err))
		}
	})
}

// A call that completes an unfinished record waits for this no longer than for the key, whatever ends the wait. Its
// requests may still complete the record.
func TestWaitEndsWhileARecordIsSettled(t *testing.T) {
	const wait = 100 * time.Millisecond
	bubbles(t, 3, map[string]func(ctx context.Context, p *process) error{
		"deadline": func(ctx context.Context, p *process) error {
			ctx, cancel := context.WithTimeout(ctx, wait)
			defer cancel()
			_, err := p.Acquire(ctx, "k")
			return err
		},
		"cancelled": func(ctx context.Context, p *process) error {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(wait, cancel)
			_, err := p.TryAcquire(ctx, "k")
			return err
		},
		"max wait": func(ctx context.Context, p *process) error {
			_, err := p.Acquire(ctx, "k", MaxWait(wait))
			return err
		},
	}, func(t *testing.T, w *world, acquire func(context.Context, *process) error) {
		want := w.cutShort(w.process(), "k", "result")
		p := w.process().reaches(0, 1)
		for _, k := range p.links[:2] {
			k.Set(coretest.Fate{ReplyDelay: 2 * wait}, wire.OpComplete)
		}

		start := time.Now()
		if err := acquire(t.Context(), p); err == nil || errors.Is(err, ErrDone) {
			t.Errorf("acquire: %v", err)
		}

		wantBetween(t, "it took", time.Since(start), wait, wait+10*time.Millisecond)
		_, err := w.process().TryAcquire(t.Context(), "k")
		wantDone(t, err, want) // completed by the call that gave up
		w.wantDoneEverywhere("k", want)
	})
}

// If the lease of an unfinished record is still on the other nodes, the key is held. The record is completed when that
// lease is over.
func TestCutShortIsAdoptedAfterTheLease(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		a := w.process()
		lease := w.acquire(a, "k")
		synctest.Wait() // the lease is on all nodes
		a.records(0)
		wantErr(t, lease.Complete(over(), []byte("result")), ErrUnavailable)
		start, b := time.Now(), w.process().reaches(0, 1)
		_, err := b.TryAcquire(t.Context(), "k")
		wantErr(t, err, ErrHeld)
		_, err = b.Acquire(t.Context(), "k")
		if d := time.Since(start); d < a.p.ttl {
			t.Errorf("settled after %v, while the lease was on a quorum", d)
		}
		want := Record{lease.FencingToken(), []byte("result")}
		wantDone(t, err, want)
		w.wantDoneEverywhere("k", want)
	})
}

// If an acquirer gets the key without seeing an unfinished record and then only releases the key, the record is
// removed. The node with the record may answer after the outcome was decided, or may be unreachable at that time.
func TestCutShortIsOvertakenAndReleased(t *testing.T) {
	bubbles(t, 3, map[string]func(p *process){
		"seen after the grant": func(p *process) { p.links[0].Next(coretest.Fate{Delay: 50 * time.Millisecond}, wire.OpAcquire) },
		"not seen":             func(p *process) { p.links[0].Next(coretest.Fate{Refuse: true}, wire.OpAcquire) },
	}, func(t *testing.T, w *world, prepare func(p *process)) {
		w.cutShort(w.process(), "k", "stale")
		b := w.process()
		prepare(b)
		lease := w.acquire(b, "k")
		time.Sleep(100 * time.Millisecond)
		w.release(lease)
		synctest.Wait()
		if got := w.recordOn(b, 0, "k"); got != "" {
			t.Errorf("node 0 still holds %q", got)
		}
		w.release(w.acquire(w.process().reaches(0, 1), "k"))
	})
}

// An acquirer that sees an unfinished record completes it, even if it has a quorum without the node of the record.
func TestCutShortIsSettledOnSight(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		want := w.cutShort(w.process(), "k", "result")
		p := w.process()
		p.links[1].Next(coretest.Fate{ReplyDelay: time.Millisecond}, wire.OpAcquire)
		p.links[2].Next(coretest.Fate{ReplyDelay: time.Millisecond}, wire.OpAcquire)
		_, err := p.TryAcquire(t.Context(), "k")
		wantDone(t, err, want)
		w.wantDoneEverywhere("k", want)
	})
}

// Two records were cut short on different nodes: the one with the greater ballot counts. Two nodes with different
// ballots decide nothing by themselves.
func TestTwoCutShort(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		w.cutShort(w.process(), "k", "first")
		b := w.process()
		lease := w.acquire(b.reaches(1, 2), "k")
		b.records(1)
		b.links[0].Set(coretest.Fate{Refuse: true})
		wantErr(t, lease.Complete(over(), []byte("second")), ErrUnavailable)
		time.Sleep(11 * time.Second)

		p := w.process().reaches(0, 1)
		for _, k := range p.links {
			k.Decide(func(s wire.Op, _ coretest.Sent) coretest.Fate {
				return coretest.Fate{Refuse: s == wire.OpComplete || k == p.links[2]}
			})
		}
		if _, err := p.TryAcquire(t.Context(), "k"); err == nil || errors.Is(err, ErrDone) {
			t.Fatalf("two records on one node each: %v", err)
		}

		want := Record{lease.FencingToken(), []byte("second")}
		_, err := w.process().reaches(0, 1).TryAcquire(t.Context(), "k")
		wantDone(t, err, want)
		w.wantDoneEverywhere("k", want)
	})
}

// A late request to complete an unfinished record must not take the key from an attempt that was granted it meanwhile.
func TestAdoptionIsRefusedByALiveHolder(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		late := WithClockWindow(0)
		w.cutShort(w.process(late), "k", "stale")
		c, b := w.process(late).reaches(0, 1), w.process(late).reaches(1, 2)
		c.links[0].Set(coretest.Fate{Refuse: true}, wire.OpComplete)
		c.links[1].Set(coretest.Fate{Delay: 5 * time.Second}, wire.OpComplete)
		_, err := c.TryAcquire(t.Context(), "k")
		wantErr(t, err, ErrUnavailable)

		lease := w.acquire(b, "k")
		time.Sleep(10 * time.Second) // c's COMPLETE has arrived
		if owner, record := w.owner(b, 1, "k"), w.recordOn(b, 1, "k"); owner != lease.name() || record != "" {
			t.Fatalf("node 1 belongs to %q, with record %q", owner, record)
		}

		wantValid(t, lease)
		want := w.complete(lease, "result")
		w.wantDoneEverywhere("k", want)
	})
}

// A process that learns that a key is done passes the record to the nodes that lack it, so that the record survives the
// loss of another node.
func TestReadRepair(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		want := w.complete(w.acquire(p, "k"), "result")
		synctest.Wait()

		outlive := func(i int) { // node i loses its memory, and votes again later
			w.nodes[i].RestartEmpty()
			w.stranger().TryAcquire(t.Context(), "another key")
			time.Sleep(p.p.MaxTTL + time.Second)
		}

		outlive(2)
		if w.recordOn(p, 2, "k") != "" {
			t.Fatal("the schedule is off: node 2 remembers")
		}

		_, err := w.stranger().TryAcquire(t.Context(), "k")
		wantDone(t, err, want)
		synctest.Wait()
		if w.recordOn(p, 2, "k") == "" {
			t.Error("not handed to the node that lacks it")
		}

		outlive(0)
		_, err = w.stranger().reaches(0, 2).TryAcquire(t.Context(), "k")
		wantDone(t, err, want)
		w.wantDoneEverywhere("k", want)
	})
}

// A call that finds the key done leaves the queue of a node that does not know this yet.
func TestDoneLeavesTheQueues(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, other := w.process(), w.process()
		w.completeBarely(p, "k") // node 2 still has the lease

		_, err := other.Acquire(t.Context(), "k")
		wantErr(t, err, ErrDone)
		time.Sleep(time.Second)
		if in := w.queue(other, 2, "k"); len(in) != 0 {
			t.Errorf("node 2 has in its queue: %v", in)
		}
	})
}
