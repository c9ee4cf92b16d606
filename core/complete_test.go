package core

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/internal/race"
	"github.com/lockkit/lockkit/testutil"
)

// These tests are about completion records: single-decree Paxos per key, with fencing tokens as ballots. Nodes are
// counted from 0.

// wantDone checks that err reports the record.
func wantDone(t *testing.T, err error, want Record) {
	t.Helper()
	wantErr(t, err, ErrDone)
	op, ok := errors.AsType[*OpError](err)
	if !ok || op.Record == nil {
		t.Fatalf("no record with %v", err)
	}
	if op.Record.Token != want.Token || !bytes.Equal(op.Record.Result, want.Result) {
		t.Fatalf("record %d %q, want %d %q", op.Record.Token, op.Record.Result, want.Token, want.Result)
	}
}

// wantDoneEverywhere checks that every minimal quorum reports the record to new processes, and that no node holds
// another record in the end.
func (w *world) wantDoneEverywhere(key string, want Record) {
	w.t.Helper()
	synctest.Wait()
	p := w.stranger()
	for range 2 { // the first pass may complete the records that the second finds
		for i := range w.nodes {
			for j := range i {
				_, err := w.stranger().reaches(i, j).TryAcquire(w.t.Context(), key)
				wantDone(w.t, err, want)
			}
		}
	}
	synctest.Wait()
	for i := range w.nodes {
		got := w.recordOn(p, i, key)
		if got != "" && !strings.HasSuffix(got, fmt.Sprintf(" %d %s", want.Token, want.Result)) {
			w.t.Fatalf("node %d holds %q, want %d %q", i, got, want.Token, want.Result)
		}
	}
}

// recordOn returns the completion record as node i stores it, or "" if it has none.
func (w *world) recordOn(p *process, i int, key string) string {
	w.t.Helper()
	r := w.resource(p, i, key).Record
	if r == nil {
		return ""
	}
	return fmt.Sprintf("%d %d %d %s", r.Ballot, r.KeptUntil, r.Origin, r.Result)
}

// cutShort completes key on node 0 alone, waits until the lease is over, and returns the record.
func (w *world) cutShort(p *process, key, result string) Record {
	w.t.Helper()
	lease := w.acquire(p, key)
	p.records(0)
	wantErr(w.t, lease.Complete(over(), []byte(result)), ErrUnavailable)
	time.Sleep(p.p.ttl + time.Second)
	return Record{lease.FencingToken(), []byte(result)}
}

func (w *world) complete(lease *Lease, result string) Record {
	w.t.Helper()
	if err := lease.Complete(w.t.Context(), []byte(result)); err != nil {
		w.t.Fatalf("complete: %v", err)
	}
	return Record{lease.FencingToken(), []byte(result)}
}

func TestCompletedKeyIsDone(t *testing.T) {
	bubbles(t, 3, map[string]string{"none": "", "binary": " \x00\xff\r\n 1 2 ", "digits": "1 2 3"}, func(t *testing.T, w *world, result string) {
		p, other := w.process(), w.process()
		lease := w.acquire(p, "k")
		want := w.complete(lease, result)
		if err := lease.Context().Err(); err == nil {
			t.Error("the lease outlives its completion")
		}
		wantErr(t, context.Cause(lease.Context()), ErrReleased)
		p.wantNothingLeft(t)

		for _, p := range []*process{p, other} {
			_, err := p.Acquire(t.Context(), "k")
			wantDone(t, err, want)
			_, err = p.TryAcquire(t.Context(), "k")
			wantDone(t, err, want)
			for _, do := range []func(context.Context, string, func(context.Context) error, ...CallOption) error{p.Do, p.TryDo, p.Once} {
				wantDone(t, do(t.Context(), "k", w.never), want)
			}
		}

		w.release(w.acquire(p, "another key"))
		w.wantDoneEverywhere("k", want)
	})
}

// A waiter learns that the key was completed.
func TestWaiterIsToldDone(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, other := w.process(), w.process()
		lease := w.acquire(p, "k")

		told := make(chan error, 2)
		for _, p := range []*process{p, other} {
			go func() {
				_, err := p.Acquire(t.Context(), "k")
				told <- err
			}()
		}

		time.Sleep(5 * time.Second)
		want := w.complete(lease, "result")
		for range 2 {
			wantDone(t, testutil.Receive(t, told), want)
		}
	})
}

func TestRetention(t *testing.T) {
	type row struct {
		opts []Option
		want time.Duration
	}
	bubbles(t, 3, map[string]row{
		"short":   {[]Option{Retention(time.Minute)}, time.Minute},
		"default": {nil, 24 * time.Hour},
		"long":    {[]Option{Retention(1000 * time.Hour)}, 1000 * time.Hour},
	}, func(t *testing.T, w *world, c row) {
		p := w.process(append(c.opts, untouched)...) // simulating weeks of touches takes minutes
		want := w.complete(w.acquire(p, "k"), "result")
		time.Sleep(c.want - time.Millisecond)
		_, err := p.TryAcquire(t.Context(), "k")
		wantDone(t, err, want)
		time.Sleep(time.Millisecond)
		again := w.acquire(p, "k")
		if again.FencingToken() <= want.Token {
			t.Errorf("token %d after %d", again.FencingToken(), want.Token)
		}
		w.complete(again, "another")
	})
}

// The retention is that of the record, whichever process completes the record, and however old a reply is.
func TestRetentionOfAnAdoptedRecord(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		start := time.Now()
		want := w.cutShort(w.process(Retention(time.Minute)), "k", "result")
		p := w.process(Retention(time.Hour)).reaches(0, 1)
		for _, k := range p.links[:2] {
			k.Set(coretest.Fate{ReplyDelay: 500 * time.Millisecond}, wire.OpAcquire)
		}
		time.Sleep(30 * time.Second)
		_, err := p.TryAcquire(t.Context(), "k")
		wantDone(t, err, want)
		time.Sleep(time.Minute - time.Since(start) - 10*coretest.Refusing)
		w.wantDoneEverywhere("k", want)
		time.Sleep(10 * coretest.Refusing)
		w.release(w.acquire(w.process().reaches(0, 1), "k"))
	})
}

// Requests for a key do not prolong its record. A process that brings the record to nodes that lack it, or that only
// answer late, knows the remaining time from a reply that is as old as its way back. The callers and the nodes are 100
// ms apart.
func TestRetentionWhileSomebodyAsks(t *testing.T) {
	race.SkipSweep(t)
	bubble(t, 3, func(t *testing.T, w *world) {
		var callers []*process
		for range 6 {
			p := w.process(Retention(time.Minute))
			p.set(coretest.Fate{Delay: 100 * time.Millisecond, ReplyDelay: 100 * time.Millisecond})
			callers = append(callers, p)
		}

		lease := w.acquire(callers[0], "k")
		start := time.Now()
		w.complete(lease, "result")

		granted := make(chan time.Duration, 1)
		var asking sync.WaitGroup
		for i := 0; len(granted) == 0 && time.Since(start) < 5*time.Minute; i++ {
			time.Sleep(100 * time.Millisecond)
			asking.Go(func() {
				if _, err := callers[i%6].TryAcquire(t.Context(), "k"); err == nil {
					select {
					case granted <- time.Since(start):
					default:
					}
				}
			})
		}

		asking.Wait()
		if len(granted) == 0 {
			t.Fatal("never granted again")
		}
		wantBetween(t, "granted again after", <-granted, time.Minute, time.Minute+time.Second)
	})
}

func TestResultLimit(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		lease := w.acquire(p, "k")
		result := strings.Repeat("\x00", maxResult)
		wantErr(t, lease.Complete(t.Context(), []byte(result+"x")), ErrInvalid)
		time.Sleep(time.Minute)
		if err := lease.Context().Err(); err != nil {
			t.Fatalf("a result that is too large ended the lease: %v", context.Cause(lease.Context()))
		}
		want := w.complete(lease, result)
		_, err := p.TryAcquire(t.Context(), "k")
		wantDone(t, err, want)
	})
}

// loses makes p lose a lease on the key: its renewals do not get through.
func (w *world) loses(p *process, key string) *Lease {
	w.t.Helper()
	lease := w.acquire(p, key)
	p.refused()
	time.Sleep(p.p.ttl + time.Second)
	wantErr(w.t, context.Cause(lease.Context()), ErrLost)
	return lease
}

// A late completion is recorded on the node that did not grant the key to the next holder, but this decides nothing.
func TestLateCompletionReachesOneNode(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		a, b := w.process(), w.process()
		stale := w.loses(a, "k")
		lease := w.acquire(b.reaches(1, 2), "k")
		a.reaches(0, 1, 2)
		wantErr(t, stale.Complete(t.Context(), []byte("stale")), ErrLost)
		synctest.Wait()
		if w.recordOn(a, 0, "k") == "" {
			t.Fatal("the schedule is off: node 0 refused")
		}
		wantValid(t, lease)
		want := w.complete(lease, "result")
		w.wantDoneEverywhere("k", want)
	})
}

// A lost lease can still be completed if the key was not granted since.
func TestCompleteAfterTheLeaseWasLost(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		lease := w.loses(p, "k")
		p.reaches(0, 1, 2)
		time.Sleep(time.Minute)
		want := w.complete(lease, "result")
		wantErr(t, context.Cause(lease.Context()), ErrLost)
		w.wantDoneEverywhere("k", want)
	})
}

// Nodes forget that they granted the key to another holder when its counter has been idle for too long. A late
// completion must fail all the same.
func TestCompleteLongAfterTheLeaseWasLost(t *testing.T) {
	race.SkipSweep(t)
	bubble(t, 3, func(t *testing.T, w *world) {
		a, b := w.process(), w.process()
		stale := w.loses(a, "k")
		w.release(w.acquire(b, "k"))
		time.Sleep(wire.IdleFence + wire.ClockJump + time.Minute)
		a.reaches(0, 1, 2)
		wantErr(t, stale.Complete(t.Context(), nil), ErrLost)
		w.release(w.acquire(b, "k"))
	})
}

// A node that forgot the key cannot know whether it granted the key to another attempt, so a late completion fails.
func TestCompleteOnNodesThatForgot(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		lease := w.loses(p, "k")
		w.nodes[0].RestartEmpty()
		w.nodes[1].RestartEmpty()
		p.reaches(0, 1, 2)
		err := lease.Complete(t.Context(), nil)
		if op, ok := errors.AsType[*OpError](err); !ok || !errors.Is(err, ErrLost) || op.Reason != LossForgotten {
			t.Fatalf("error is %v, want ErrLost for the reason forgotten", err)
		}
	})
}

func TestCompleteRepeated(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		lease := w.acquire(p, "k")
		p.next(coretest.Fate{Lose: true}, wire.OpComplete)
		p.links[0].Set(coretest.Fate{LoseReply: true}, wire.OpComplete) // one node has the record
		result := []byte("first")
		wantErr(t, lease.Complete(over(), result), ErrUnavailable)

		p.mend()
		copy(result, "spoilt")
		for range 2 { // the first result stays
			if err := lease.Complete(t.Context(), []byte("second")); err != nil {
				t.Fatalf("repeated: %v", err)
			}
			time.Sleep(time.Minute)
		}
		w.wantDoneEverywhere("k", Record{lease.FencingToken(), []byte("first")})
	})
}

// If a caller changes a result afterwards, nodes that still wait for the record get the old one.
func TestResultIsCopied(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, other := w.process(), w.process()
		lease := w.acquire(p, "k")
		p.links[2].Set(coretest.Fate{Delay: 100 * time.Millisecond}, wire.OpComplete)
		result := []byte("result")
		succeeds(t, lease.Complete(t.Context(), result))
		copy(result, "spoilt")
		time.Sleep(time.Second)
		want := Record{lease.FencingToken(), []byte("result")}
		w.wantDoneEverywhere("k", want)

		w.change(p, 2, "k", func(r *testutil.Resource) { r.Record = nil })
		other.links[2].Set(coretest.Fate{Delay: 100 * time.Millisecond}, wire.OpComplete)
		_, err := other.TryAcquire(t.Context(), "k")
		wantDone(t, err, want)
		op, _ := errors.AsType[*OpError](err)
		copy(op.Record.Result, "spoilt")
		time.Sleep(time.Second)
		if got := w.recordOn(p, 2, "k"); !strings.HasSuffix(got, " result") {
			t.Errorf("node 2 holds %q", got)
		}
	})
}

func TestCompleteAndRelease(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		lease := w.acquire(p, "released")
		w.release(lease)
		wantErr(t, lease.Complete(t.Context(), nil), ErrReleased)
		w.release(w.acquire(p, "released"))
		time.Sleep(time.Minute)
		if err := lease.Release(t.Context()); err != nil { // the tombstones are gone
			t.Errorf("release repeated after a minute: %v", err)
		}

		lease = w.acquire(p, "k")
		want := w.complete(lease, "result")
		// No tombstone lasts for as long as the last pause.
		for _, after := range []time.Duration{0, time.Second, time.Minute} {
			time.Sleep(after)
			if err := lease.Release(t.Context()); err != nil {
				t.Fatalf("released %v after the completion: %v", after, err)
			}
		}
		w.wantDoneEverywhere("k", want)
	})
}

// Do succeeds if fn has completed the lease and goes on for a while.
func TestCompleteInsideDo(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		err := p.Do(t.Context(), "k", func(ctx context.Context) error {
			lease, _ := FromContext(ctx)
			w.complete(lease, "result")
			time.Sleep(time.Minute) // as if it cleaned up
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}
