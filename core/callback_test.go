package core

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/internal/logbook"
	"github.com/lockkit/lockkit/internal/race"
)

// These tests make user code misbehave in every way, at every place where it is called. It may spoil its own call, but
// nothing else.

// culprit is the context key of calls whose callbacks misbehave.
type culprit struct{}

// A misbehaviour is the code that a callback runs instead of returning soon.
type misbehaviour func(until <-chan struct{})

var misbehaviours = map[string]misbehaviour{
	"panics":       func(<-chan struct{}) { panic("callback") },
	"blocks":       func(until <-chan struct{}) { <-until },
	"is slow":      func(<-chan struct{}) { time.Sleep(3 * time.Second) },
	"ends the run": func(<-chan struct{}) { runtime.Goexit() },
}

// A callbackSite is a place where user code is called. There, misbehave is called with the context that the user code
// gets.
type callbackSite struct {
	option func(misbehave func(context.Context)) Option
	silent bool // its panic is not logged
}

// callbackSites returns all callback sites except the hooks of clients.
func callbackSites() map[string]callbackSite {
	all := map[string]callbackSite{
		"Hint": {option: func(misbehave func(context.Context)) Option {
			return WithObserver(Observer{Hint: func(ctx context.Context) string { misbehave(ctx); return "hint" }})
		}},
		"Event": {option: func(misbehave func(context.Context)) Option {
			return WithObserver(Observer{Event: func(ctx context.Context, _ Event) { misbehave(ctx) }})
		}},
		"logger": {option: func(misbehave func(context.Context)) Option {
			return WithLogger(slog.New(faultyHandler{misbehave}))
		}, silent: true},
	}

	for _, kind := range []OpKind{OpAcquire, OpHold, OpRenew, OpRelease, OpComplete} {
		all["Start of "+kind.String()] = callbackSite{option: func(misbehave func(context.Context)) Option {
			return WithObserver(Observer{Start: func(ctx context.Context, op Op) (context.Context, func(Outcome)) {
				if op.Kind == kind {
					misbehave(ctx)
				}
				return ctx, nil
			}})
		}}
		all["end of "+kind.String()] = callbackSite{option: func(misbehave func(context.Context)) Option {
			return WithObserver(Observer{Start: func(ctx context.Context, op Op) (context.Context, func(Outcome)) {
				return ctx, func(Outcome) {
					if op.Kind == kind {
						misbehave(ctx)
					}
				}
			}})
		}}
	}

	for _, kind := range []OpKind{OpAcquire, OpRenew, OpRelease, OpComplete, OpTouch} {
		all["Node of "+kind.String()] = callbackSite{option: func(misbehave func(context.Context)) Option {
			return WithObserver(Observer{Node: func(ctx context.Context, of OpKind, _ NodeReply) {
				if of == kind {
					misbehave(ctx)
				}
			}})
		}}
	}
	return all
}

// A faultyHandler is a log handler that misbehaves at each line.
type faultyHandler struct {
	misbehave func(context.Context)
}

func (h faultyHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h faultyHandler) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h faultyHandler) WithGroup(string) slog.Handler            { return h }
func (h faultyHandler) Handle(context.Context, slog.Record) error {
	h.misbehave(context.WithValue(context.Background(), culprit{}, true))
	return nil
}

func TestCallbackMisbehaves(t *testing.T) {
	race.SkipSweep(t)
	for where, at := range callbackSites() {
		for how, misbehave := range misbehaviours {
			bubbleNamed(t, where+" "+how, 3, func(t *testing.T, w *world) {
				var log logbook.Book
				w.connections = 2 // so few that a connection that a callback keeps is missed
				v := &victim{world: w, until: make(chan struct{})}
				v.process = w.process(WithLogger(log.Logger()), at.option(func(ctx context.Context) { v.misbehave(ctx, misbehave) }))
				v.judge(how == "ends the run")
				if said := log.Lines("panicked", "callback_test.go"); how == "panics" && !at.silent && len(said) == 0 {
					t.Error("the log does not have the panic with its stack")
				}
			})
		}
	}
}

// A panic changes no result of the call in which it happens: a key is granted, and it is free as soon as it is released.
func TestPanicChangesNoResult(t *testing.T) {
	for where, at := range callbackSites() {
		bubbleNamed(t, where, 3, func(t *testing.T, w *world) {
			var panics atomic.Int32
			p := w.process(at.option(func(context.Context) {
				panics.Add(1)
				panic("callback")
			}))
			other := w.process()

			lease := w.acquire(p, "released")
			w.pass(5 * time.Second) // it was renewed
			w.release(lease)
			w.release(w.acquire(other, "released"))

			err := p.Do(t.Context(), "done with", func(context.Context) error { return nil })
			if err != nil {
				t.Errorf("Do: %v", err)
			}
			w.release(w.acquire(other, "done with"))

			w.complete(w.acquire(p, "completed"), "result")
			_, err = other.TryAcquire(t.Context(), "completed")
			wantErr(t, err, ErrDone)

			lost := must(p.TryAcquire(t.Context(), "lost", MaxHold(time.Second)))
			w.pass(2 * time.Second)
			wantReason(t, lost.Lost(), LossMaxHold)

			p.Event(t.Context(), Event{Source: "core", Kind: "test"})
			p.Ready(t.Context())
			synctest.Wait()
			if panics.Load() == 0 {
				t.Error("nothing panicked")
			}
		})
	}
}

// A faultyHook is a client hook that misbehaves before each command that is sent for a single call.
type faultyHook struct {
	coretest.CommandsOnly
	misbehave func(context.Context)
}

func (h faultyHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.misbehave(ctx)
		return next(ctx, cmd)
	}
}

// A hook of one client costs only the requests for which it is called, like a node that fails.
func TestHookMisbehaves(t *testing.T) {
	for how, misbehave := range misbehaviours {
		bubbleNamed(t, how, 3, func(t *testing.T, w *world) {
			v := &victim{world: w, until: make(chan struct{})}
			v.process = w.process()
			v.e.Nodes[0].Client.(*redis.Client).AddHook(faultyHook{misbehave: func(ctx context.Context) { v.misbehave(ctx, misbehave) }})
			v.judge(false)
		})
	}
}

// A victim is a process whose callbacks misbehave in the calls of the culprit, and in no others.
type victim struct {
	*world
	*process
	until chan struct{} // closed to unblock the callbacks that block
	times atomic.Int32  // number of misbehaviours so far
}

func (v *victim) misbehave(ctx context.Context, how misbehaviour) {
	if ctx.Value(culprit{}) != nil {
		v.times.Add(1)
		how(v.until)
	}
}

// judge makes the culprit's calls beside other calls, and fails the test if the other calls notice them.
func (v *victim) judge(endsRuns bool) {
	t := v.t
	kept := v.world.acquire(v.process, "kept")

	var runs sync.WaitGroup
	for _, calls := range v.culprits() {
		runs.Go(func() { calls(context.WithValue(t.Context(), culprit{}, true)) })
	}
	for i := range 30 {
		v.pass(time.Second)
		began := time.Now()
		err := v.TryDo(t.Context(), fmt.Sprintf("other %d", i), func(context.Context) error { return nil })
		if took := time.Since(began); err != nil || took > time.Second/2 {
			t.Fatalf("after %d s, another key: %v, in %v", i, err, took)
		}
	}
	if err := kept.Lost(); err != nil {
		t.Errorf("another lease: %v", err)
	}

	close(v.until)
	runs.Wait()
	if v.times.Load() == 0 {
		t.Error("nothing misbehaved")
	}
	v.nothingIsLeft(kept)
}

// nothingIsLeft fails the test if a key stays taken for longer than its TTL, or if Close waits for something.
func (v *victim) nothingIsLeft(kept *Lease) {
	t := v.t
	stranger := v.world.process()
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
	defer cancel()
	for _, key := range []string{"released", "lost", "done with"} {
		lease, err := stranger.Acquire(ctx, key)
		if err != nil {
			t.Errorf("%s, afterwards: %v", key, err)
			continue
		}
		v.release(lease)
	}
	v.release(kept)
	if err := v.process.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// culprits returns calls that reach every callback site. The first one holds its key for long enough that the lease is
// renewed.
func (v *victim) culprits() []func(ctx context.Context) {
	return []func(ctx context.Context){
		func(ctx context.Context) {
			lease, err := v.Acquire(ctx, "released")
			if err != nil {
				return // a hook may fail the acquisition
			}
			defer lease.Release(ctx)
			time.Sleep(8 * time.Second)
			if err := lease.Lost(); err != nil {
				v.t.Errorf("the culprit's own lease: %v", err)
			}
		},
		func(ctx context.Context) {
			lease, err := v.Acquire(ctx, "completed")
			if err == nil {
				lease.Complete(ctx, nil)
			}
		},
		func(ctx context.Context) { v.Acquire(ctx, "lost", MaxHold(5*time.Second)) },
		func(ctx context.Context) {
			v.Do(ctx, "done with", func(context.Context) error { return nil })
		},
		func(ctx context.Context) { v.Event(ctx, Event{Source: "core", Kind: "test"}) },
		func(ctx context.Context) { v.Ready(ctx) },
	}
}

// While an observer does not return, a lease is renewed all the same. The events that the observer misses are counted
// and logged. Every operation whose beginning it saw also ends for it.
func TestEventsAreDroppedWhileAnObserverBlocks(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		var log logbook.Book
		var begun, ended, blocked atomic.Int32
		until := make(chan struct{})
		p := w.process(WithLogger(log.Logger()), WithObserver(Observer{Start: func(ctx context.Context, op Op) (context.Context, func(Outcome)) {
			begun.Add(1)
			if op.Kind == OpRenew && blocked.Add(1) == 1 {
				<-until
			}
			return ctx, func(Outcome) { ended.Add(1) }
		}}))

		lease := w.acquire(p, "k")
		w.pass(20 * time.Minute)
		wantValid(t, lease)
		if n := begun.Load(); n > 5 {
			t.Errorf("it was called %d times while it did not return", n)
		}
		if p.e.Callbacks.Dropped() == 0 || log.Count("events are dropped") == 0 {
			t.Errorf("%d events dropped, %d lines", p.e.Callbacks.Dropped(), log.Count("events are dropped"))
		}

		close(until)
		w.release(lease)
		synctest.Wait()
		if begun.Load() != ended.Load() {
			t.Errorf("%d operations began, %d have ended", begun.Load(), ended.Load())
		}
	})
}

// A lease that is lost while the observer is being notified of the hold ends for the observer, too.
func TestLossWhileTheHoldIsTold(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		var r recording
		until := make(chan struct{})
		p := w.process(WithObserver(Observer{Start: func(ctx context.Context, op Op) (context.Context, func(Outcome)) {
			if op.Kind == OpHold {
				<-until
			}
			return r.start(ctx, op)
		}}))

		go p.Acquire(t.Context(), "k", MaxHold(time.Second))
		w.pass(time.Minute)

		close(until)
		synctest.Wait()
		_, outs := r.of(t, OpHold)
		if len(outs) != 1 || outs[0].Reason != LossMaxHold {
			t.Errorf("heard %+v", outs)
		}
	})
}

// Close returns when its context has ended, even if an observer does not return.
func TestCloseWhileAnObserverBlocks(t *testing.T) {
	for _, kind := range []OpKind{OpHold, OpRelease, OpRenew} {
		bubbleNamed(t, kind.String(), 3, func(t *testing.T, w *world) {
			until := make(chan struct{})
			p := w.process(WithObserver(Observer{Start: func(ctx context.Context, op Op) (context.Context, func(Outcome)) {
				return ctx, func(Outcome) {
					if op.Kind == kind {
						<-until
					}
				}
			}}))

			lease := w.acquire(p, "k")
			w.pass(5 * time.Second)
			go lease.Release(t.Context())
			synctest.Wait()

			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			began := time.Now()
			err := p.Close(ctx)
			if err == nil || !strings.Contains(err.Error(), "has not returned") || time.Since(began) > 2*time.Minute {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
			close(until)
		})
	}
}

// If an observer returns no context, the operation keeps its own.
func TestObserverDerivesNoContext(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process(WithObserver(Observer{Start: func(context.Context, Op) (context.Context, func(Outcome)) { return nil, nil }}))
		lease := w.acquire(p, "k")
		w.pass(5 * time.Second)
		w.release(lease)
	})
}

// The observer is notified of the nodes' replies to the requests of one lease one at a time. While it does not return,
// one goroutine waits for it, however many renewals there are, and the renewals succeed.
func TestRepliesOfALeaseAreToldInTurn(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		until := make(chan struct{})
		var atOnce, told atomic.Int32
		p := w.process(WithObserver(Observer{Node: func(_ context.Context, kind OpKind, _ NodeReply) {
			if kind == OpRenew {
				atOnce.Add(1)
				<-until
				atOnce.Add(-1)
				told.Add(1)
			}
		}}))
		lease := w.acquire(p, "k")
		w.pass(5 * p.p.renewEvery)
		if n := atOnce.Load(); n != 1 {
			t.Errorf("%d replies are being told at once", n)
		}
		if err := lease.Context().Err(); err != nil {
			t.Errorf("the lease has ended: %v", err)
		}

		close(until)
		synctest.Wait()
		if n := told.Load(); n < 9 {
			t.Errorf("of the replies to at least three renewals on three nodes, %d were told", n)
		}
		w.release(lease)
	})
}

// A hook that ends the goroutine of a request ends nothing else: a request that waits for the only connection is sent
// at once.
func TestRequestsGoOnAfterAHookHasEndedItsGoroutine(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		w.known = 1
		p := w.process(TTL(time.Minute))
		first, second := w.acquire(p, "a"), w.acquire(p, "b")
		w.pass(time.Second)
		until := make(chan struct{})
		var calls atomic.Int32
		p.e.Nodes[0].Client.(*redis.Client).AddHook(faultyHook{misbehave: func(context.Context) {
			if calls.Add(1) == 1 {
				<-until
				runtime.Goexit()
			}
		}})

		go first.Release(context.Background())
		synctest.Wait()
		ended := make(chan time.Time, 1)
		go func() {
			second.Release(context.Background())
			ended <- time.Now()
		}()
		synctest.Wait()
		if n := calls.Load(); n != 1 {
			t.Fatalf("%d requests are under way over one connection", n)
		}
		began := time.Now()
		close(until)
		synctest.Wait()
		if n := calls.Load(); n != 2 {
			t.Errorf("%d requests were sent by the time that the hook had ended the first one's goroutine", n)
		}
		if took := (<-ended).Sub(began); took > 0 {
			t.Errorf("the second release took %v", took)
		}
	})
}
