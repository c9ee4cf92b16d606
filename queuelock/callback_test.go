package queuelock

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/race"
)

// A callbackSite is a place at which a delivery calls the user's code. The code misbehaves there. observer wraps an
// Observer.
type callbackSite struct {
	observer func(o core.Observer, misbehave func()) core.Observer
	key      func(misbehave func()) Option
	late     bool // the handler returns nil after its context has ended
	fails    func(misbehave func()) error
}

// The keys of the task whose callbacks misbehave.
var victimIdentity, victimKey = core.Key("queue", "task", idPrefix+core.Key("victim")), core.Key("order", "1")

// atStart returns the site at the beginning of an operation.
func atStart(kind core.OpKind, key string) callbackSite {
	return callbackSite{observer: func(o core.Observer, misbehave func()) core.Observer {
		start := o.Start
		o.Start = func(ctx context.Context, op core.Op) (context.Context, func(core.Outcome)) {
			if op.Kind == kind && op.Key == key {
				misbehave()
			}
			return start(ctx, op)
		}
		return o
	}}
}

// atEnd returns the site at the end of an operation.
func atEnd(kind core.OpKind, key string) callbackSite {
	return callbackSite{observer: func(o core.Observer, misbehave func()) core.Observer {
		start := o.Start
		o.Start = func(ctx context.Context, op core.Op) (context.Context, func(core.Outcome)) {
			ctx, end := start(ctx, op)
			return ctx, func(out core.Outcome) {
				if end != nil {
					end(out)
				}
				if op.Kind == kind && op.Key == key {
					misbehave()
				}
			}
		}
		return o
	}}
}

// A mischievous is an error whose method Is misbehaves.
type mischievous struct {
	error
	misbehave func()
}

func (e mischievous) Is(error) bool { e.misbehave(); return false }

// User code that misbehaves once delays its own task, but no other task. Its task is done in the end.
func TestCallbackMisbehaves(t *testing.T) {
	race.SkipSweep(t)
	for where, at := range callbackSites() {
		for how, misbehave := range misbehaviours {
			bubbleOf(t, where+" "+how, func(t *testing.T, r *rig) { r.misbehaves(at, misbehave) })
		}
	}
}

// The same rule for panics alone. This test also runs under the race detector.
func TestCallbackPanics(t *testing.T) {
	race.SkipSweep(t)
	for where, at := range callbackSites() {
		bubbleOf(t, where, func(t *testing.T, r *rig) { r.misbehaves(at, misbehaviours["panics"]) })
	}
}

// misbehaviours are the ways in which a callback can misbehave. A callback that blocks goes on when until is closed.
var misbehaviours = map[string]func(until <-chan struct{}){
	"panics":             func(<-chan struct{}) { panic("callback") },
	"blocks":             func(until <-chan struct{}) { <-until },
	"is slow":            func(<-chan struct{}) { time.Sleep(2 * time.Second) },
	"ends its goroutine": func(<-chan struct{}) { runtime.Goexit() },
}

// callbackSites returns the places at which queuelock calls the user's code.
func callbackSites() map[string]callbackSite {
	return map[string]callbackSite{
		"acquire identity, start": atStart(core.OpAcquire, victimIdentity), "acquire identity, end": atEnd(core.OpAcquire, victimIdentity),
		"acquire key, start": atStart(core.OpAcquire, victimKey), "acquire key, end": atEnd(core.OpAcquire, victimKey),
		"hold identity, start": atStart(core.OpHold, victimIdentity), "hold identity, end": atEnd(core.OpHold, victimIdentity),
		"hold key, start": atStart(core.OpHold, victimKey), "hold key, end": atEnd(core.OpHold, victimKey),
		"complete, start": atStart(core.OpComplete, victimIdentity), "complete, end": atEnd(core.OpComplete, victimIdentity),
		"release key, start": atStart(core.OpRelease, victimKey), "release key, end": atEnd(core.OpRelease, victimKey),
		"event": {late: true, observer: func(o core.Observer, misbehave func()) core.Observer {
			event := o.Event
			o.Event = func(ctx context.Context, e core.Event) {
				if e.Kind == EventNilAfterCancel {
					misbehave()
				}
				event(ctx, e)
			}
			return o
		}},
		"key function": {key: func(misbehave func()) Option {
			of := ByPayloadField("order")
			return WithKey(func(ctx context.Context, t *asynq.Task) (string, error) {
				key, err := of(ctx, t)
				if key == victimKey {
					misbehave()
				}
				return key, err
			})
		}},
		"error of the handler": {fails: func(misbehave func()) error { return mischievous{errors.New("failed"), misbehave} }},
	}
}

func (r *rig) misbehaves(at callbackSite, how func(until <-chan struct{})) {
	t := r.t
	until := make(chan struct{})
	goOn := sync.OnceFunc(func() { close(until) })
	defer goOn()
	var once atomic.Bool
	misbehave := func() {
		if once.CompareAndSwap(false, true) {
			how(until)
		}
	}

	observer, key := r.events.Observer(), field("order")
	if at.observer != nil {
		observer = at.observer(observer, misbehave)
	}
	if at.key != nil {
		key = at.key(misbehave)
	}

	soon := func(cfg *asynq.Config) {
		cfg.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Second }
	}

	var runs, others atomic.Int32
	r.serve(setup{locker: r.locks.Replica(core.WithObserver(observer)).Locker, adjust: soon, opts: []Option{key, WithGrace(5 * time.Second)}},
		func(ctx context.Context, task *asynq.Task) error {
			if string(task.Payload()) != string(order(1).Payload()) {
				others.Add(1)
				return nil
			}
			first := runs.Add(1) == 1
			switch {
			case first && at.late:
				<-ctx.Done()
			case first && at.fails != nil:
				return at.fails(misbehave)
			}
			return nil
		})

	info := r.enqueue(order(1), ID("victim"), asynq.Timeout(20*time.Second))
	for n := range 30 {
		r.enqueue(order(2 + n%3))
		r.pass(10 * time.Second)
		if got := others.Load(); got != int32(n)+1 {
			t.Fatalf("after %d s, %d of %d other tasks have run", 10*(n+1), got, n+1)
		}
	}
	if !once.Load() {
		t.Fatal("nothing misbehaved")
	}
	goOn()
	r.pass(time.Minute)
	if s := r.state(info); s != "gone" {
		now, err := r.locker().Inspect(t.Context(), victimIdentity)
		t.Errorf("after 6 minutes the task is %s, run %d times, given back %d times; its identity: %+v %v", s, runs.Load(), r.count(EventContended), now.Holder, err)
	}
}
