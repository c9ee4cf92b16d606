package core

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/testutil"
)

// What leases carry for those that wait for them.

// A bearer is an observer whose leases carry what it says, or what the context of the acquisition says.
type bearer struct {
	recording
	says string
}

type saysKey struct{}

func (b *bearer) observer() Observer { return Observer{Start: b.start, Hint: b.hint} }

func (b *bearer) hint(ctx context.Context) string {
	if ctx.Value(opKey{}) != OpAcquire {
		return "not in the context of the acquisition"
	}
	if says, ok := ctx.Value(saysKey{}).(string); ok {
		return says
	}
	return b.says
}

func TestWaitersSeeWhatTheHolderCarries(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		holder, waiter := &bearer{says: "of the holder"}, &bearer{says: "of the waiter"}
		here, elsewhere := w.process(WithObserver(holder.observer())), w.process(WithObserver(waiter.observer()))
		lease := w.acquire(here, "k")
		here.TryAcquire(t.Context(), "k")      // in this process
		elsewhere.TryAcquire(t.Context(), "k") // in another
		time.AfterFunc(5*time.Second, func() { lease.Release(t.Context()) })
		next, err := elsewhere.Acquire(t.Context(), "k") // that succeeds in the end
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the first process is done with its release
		here.TryAcquire(t.Context(), "k")
		w.release(next)
		synctest.Wait()
		w.release(w.acquire(here, "k")) // nobody in the way
		_, outs := holder.of(t, OpAcquire)
		_, there := waiter.of(t, OpAcquire)
		for i, want := range []string{"", "of the holder", "of the waiter", ""} {
			if got := outs[i].HolderHint; got != want {
				t.Errorf("acquisition %d of the first process was behind %q, want %q", i, got, want)
			}
		}
		for i, out := range there {
			if out.HolderHint != "of the holder" {
				t.Errorf("acquisition %d of the second process was behind %q", i, out.HolderHint)
			}
		}
	})
}

// A waiter in line behind others of its process learns who was the last to hold the key before it, here or
// elsewhere.
func TestLocalWaitersSeeWhatTheHolderCarries(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		elsewhere := w.acquire(w.process(WithObserver((&bearer{says: "elsewhere"}).observer())), "k")
		mine := &bearer{}
		p := w.process(WithObserver(mine.observer()))
		for _, says := range []string{"of the first", "of the second", "of the third"} {
			go p.Do(context.WithValue(t.Context(), saysKey{}, says), "k", func(context.Context) error {
				time.Sleep(time.Second)
				return nil
			})
			synctest.Wait()
		}
		time.Sleep(time.Second)
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		p.Acquire(short, "k") // while the first contends
		w.release(elsewhere)
		w.pass(time.Minute)
		_, outs := mine.of(t, OpAcquire)
		for i, want := range []string{"elsewhere", "of the first", "of the second", "elsewhere"} {
			if gaveUp := i == 3; outs[i].HolderHint != want || (outs[i].Err != nil) != gaveUp {
				t.Errorf("%d is behind %q (%v), want %q", i, outs[i].HolderHint, outs[i].Err, want)
			}
		}
	})
}

// What does not fit is not carried, and does no harm.
func TestCarriedIsBounded(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		o, forged := &recording{}, &recording{}
		for _, says := range []string{"", strings.Repeat("x", maxCarried), strings.Repeat("x", maxCarried+1), " two words\x00\xff\n "} {
			lease := w.acquire(w.process(WithObserver(Observers(new(recording).observer(), new(bearer).observer(), (&bearer{says: says}).observer()))), "k")
			w.process(WithObserver(o.observer())).TryAcquire(t.Context(), "k")
			p := w.process(WithObserver(forged.observer()))
			if r := w.resource(p, 0, "k"); len(r.Carried) > maxCarried {
				t.Errorf("on the node: %+v", r)
			}
			// What another has put there is not believed either.
			w.change(p, 0, "k", func(r *testutil.Resource) { r.Carried = strings.Repeat("y", maxCarried+1) })
			p.TryAcquire(t.Context(), "k")
			w.release(lease)
		}
		_, outs := o.of(t, OpAcquire)
		for i, want := range []string{"", strings.Repeat("x", maxCarried), "", " two words\x00\xff\n "} {
			if outs[i].HolderHint != want {
				t.Errorf("%d: carried %q, want %q", i, outs[i].HolderHint, want)
			}
		}
		if _, outs := forged.of(t, OpAcquire); len(outs) != 4 || outs[0].HolderHint != "" {
			t.Errorf("forged: %q", outs[0].HolderHint)
		}
	})
}
