package core

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/testutil"
)

// These tests are about the texts that leases carry for waiters.

// A bearer is an observer whose hint is the text in the context of the acquisition or, without one, the field says.
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
		next := must(elsewhere.Acquire(t.Context(), "k")) // it succeeds in the end
		synctest.Wait()                                   // the release by the first process is over

		here.TryAcquire(t.Context(), "k")
		w.release(next)
		synctest.Wait()
		w.release(w.acquire(here, "k")) // no holder is in the way

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

// A waiter in line behind others of its process gets the hint of the last holder before it, in this process or
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
		p.Acquire(short, "k") // while the first caller contends
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

// A hint that is too long is not carried, and does no harm.
func TestCarriedIsBounded(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		o, forged := &recording{}, &recording{}
		for _, says := range []string{"", strings.Repeat("x", wire.MaxHint), strings.Repeat("x", wire.MaxHint+1), " two words\x00\xff\n ", "\x00begins like a mark", "\x00"} {
			lease := w.acquire(w.process(WithObserver((&bearer{says: says}).observer())), "k")
			w.process(WithObserver(o.observer())).TryAcquire(t.Context(), "k")
			p := w.process(WithObserver(forged.observer()))
			// Nor is a hint believed that is too long because another client wrote it.
			w.change(p, 0, "k", func(r *testutil.Resource) { r.Metadata = strings.Repeat("y", wire.MaxHint+1) })
			p.TryAcquire(t.Context(), "k")
			w.release(lease)
		}
		_, outs := o.of(t, OpAcquire)
		for i, want := range []string{"", strings.Repeat("x", wire.MaxHint), "", " two words\x00\xff\n ", "\x00begins like a mark", "\x00"} {
			if outs[i].HolderHint != want {
				t.Errorf("%d: carried %q, want %q", i, outs[i].HolderHint, want)
			}
		}
		if _, outs := forged.of(t, OpAcquire); len(outs) != 6 || outs[0].HolderHint != "" {
			t.Errorf("forged: %q", outs[0].HolderHint)
		}
	})
}

// Inspect shows the note, the name and the hint of a lease. A waiter sees only the hint.
func TestNote(t *testing.T) {
	long := strings.Repeat("ö", wire.MaxNote/2)
	bubbles(t, 3, map[string]struct {
		opts       []Option
		note, name string
		hint, seen string
	}{
		"nothing":           {opts: []Option{Note("")}},
		"by default":        {note: thisProcess()},
		"a name":            {opts: []Option{Note(""), Name("invoices")}, name: "invoices"},
		"a hint":            {opts: []Option{Note("")}, hint: "hint", seen: "hint"},
		"all":               {opts: []Option{Note("web-1"), Name("invoices")}, note: "web-1", name: "invoices", hint: "hint", seen: "hint"},
		"all that there is": {opts: []Option{Note(long), Name(long[:wire.MaxName])}, note: long, name: long[:wire.MaxName], hint: long[:wire.MaxHint], seen: long[:wire.MaxHint]},
		"more than that":    {opts: []Option{Note("\x00"), Name("x" + long)}, note: "\x00", name: "x" + long[:wire.MaxName-2], hint: long[:wire.MaxHint+2]},
	}, func(t *testing.T, w *world, c struct {
		opts       []Option
		note, name string
		hint, seen string
	}) {
		holder, waiter := &bearer{says: c.hint}, &bearer{}
		p := w.process(append(c.opts, WithObserver(holder.observer()))...)
		lease, here := w.holds(p, "k"), w.process(WithObserver(waiter.observer()))
		here.TryAcquire(t.Context(), "k")
		if _, outs := waiter.of(t, OpAcquire); outs[0].HolderHint != c.seen {
			t.Errorf("who waits sees %q", outs[0].HolderHint)
		}

		p.TryAcquire(t.Context(), "k")
		if _, outs := holder.of(t, OpAcquire); outs[1].HolderHint != c.seen {
			t.Errorf("who waits in the same process sees %q", outs[1].HolderHint)
		}

		if h := w.inspect(here, "k").Holder; h.Hint != c.seen || h.Note != c.note || h.Name != c.name {
			t.Errorf("who looks sees %q, %q, %q", h.Note, h.Name, h.Hint)
		}

		for i := range w.nodes { // one after the other, so that a renewal brings the lease back to each of them
			w.forget(p, i, "k")
			time.Sleep(p.p.ttl)
		}

		wantValid(t, lease)
		if h := w.inspect(here, "k").Holder; h.Hint != "" || h.Note != c.note || h.Name != c.name {
			t.Errorf("of a lease that was brought back, who looks sees %q, %q, %q", h.Note, h.Name, h.Hint)
		}

		w.release(lease)
		next := must(p.TryAcquire(t.Context(), "other", Name("call"), Note("other")))
		synctest.Wait()
		if h := w.inspect(p, "other").Holder; h.Name != "call" || h.Note != "other" {
			t.Errorf("of a call: %q, %q", h.Note, h.Name)
		}
		w.release(next)
	})

	_, err := New(nil, Note(strings.Repeat("x", wire.MaxNote+1)))
	if wantErr(t, err, ErrInvalid); !strings.Contains(err.Error(), "129 bytes") {
		t.Error(err)
	}
}
