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

// A bearer is an observer whose leases carry what it says.
type bearer struct {
	recording
	says string
}

func (b *bearer) Carry(ctx context.Context) string {
	if ctx.Value(opKey{}) != OpAcquire {
		return "not in the context of the acquisition"
	}
	return b.says
}

func TestWaitersSeeWhatTheHolderCarries(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		holder, waiter := &bearer{says: "of the holder"}, &bearer{says: "of the waiter"}
		here, elsewhere := w.process(WithObserver(holder)), w.process(WithObserver(waiter))
		lease := w.acquire(here, "k")
		here.TryAcquire(t.Context(), "k")      // in this process
		elsewhere.TryAcquire(t.Context(), "k") // in another
		time.AfterFunc(5*time.Second, func() { lease.Release(t.Context()) })
		next, err := elsewhere.Acquire(t.Context(), "k") // that succeeds in the end
		if err != nil {
			t.Fatal(err)
		}
		here.TryAcquire(t.Context(), "k")
		w.release(next)
		w.release(w.acquire(here, "k")) // nobody in the way
		_, outs := holder.of(t, OpAcquire)
		_, there := waiter.of(t, OpAcquire)
		for i, want := range []string{"", "of the holder", "of the waiter", ""} {
			if got := outs[i].Holder; got != want {
				t.Errorf("acquisition %d of the first process was behind %q, want %q", i, got, want)
			}
		}
		for i, out := range there {
			if out.Holder != "of the holder" {
				t.Errorf("acquisition %d of the second process was behind %q", i, out.Holder)
			}
		}
	})
}

// A waiter in line behind others of its process learns who was the last to hold the key before it, here or
// elsewhere.
func TestLocalWaitersSeeWhatTheHolderCarries(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		var mine [3]*bearer
		elsewhere := w.acquire(w.process(WithObserver(&bearer{says: "elsewhere"})), "k")
		p := w.process()
		for i, says := range []string{"of the first", "of the second", "of the third"} {
			mine[i] = &bearer{says: says}
			l, err := p.With(WithObserver(mine[i]))
			if err != nil {
				t.Fatal(err)
			}
			go l.Do(t.Context(), "k", func(context.Context) error {
				time.Sleep(time.Second)
				return nil
			})
			synctest.Wait()
		}
		time.Sleep(time.Second)
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		gaveUp := &bearer{}
		l, err := p.With(WithObserver(gaveUp))
		if err != nil {
			t.Fatal(err)
		}
		l.Acquire(short, "k") // while the first contends
		w.release(elsewhere)
		time.Sleep(time.Minute)
		synctest.Wait()
		for i, want := range []string{"elsewhere", "of the first", "of the second"} {
			if _, outs := mine[i].of(t, OpAcquire); outs[0].Err != nil || outs[0].Holder != want {
				t.Errorf("%d is behind %q (%v), want %q", i, outs[0].Holder, outs[0].Err, want)
			}
		}
		if _, outs := gaveUp.of(t, OpAcquire); outs[0].Holder != "elsewhere" {
			t.Errorf("the one that gave up was behind %q", outs[0].Holder)
		}
	})
}

// What does not fit is not carried, and does no harm.
func TestCarriedIsBounded(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		o, forged := &recording{}, &recording{}
		for _, says := range []string{"", strings.Repeat("x", maxCarried), strings.Repeat("x", maxCarried+1), " two words\x00\xff\n "} {
			lease := w.acquire(w.process(WithObserver(Observers(&recording{}, &bearer{}, &bearer{says: says}))), "k")
			w.process(WithObserver(o)).TryAcquire(t.Context(), "k")
			p := w.process(WithObserver(forged))
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
			if outs[i].Holder != want {
				t.Errorf("%d: carried %q, want %q", i, outs[i].Holder, want)
			}
		}
		if _, outs := forged.of(t, OpAcquire); len(outs) != 4 || outs[0].Holder != "" {
			t.Errorf("forged: %q", outs[0].Holder)
		}
	})
}
