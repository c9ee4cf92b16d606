package locktest

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
)

// Events counts what an observer hears, and waits for it. Several Lockers may
// have the same. The zero value has heard nothing.
//
// What is counted has names of two words:
//
//   - "acquire began", "hold began", likewise "renew", "release" and "complete":
//     an operation, by the name of its core.OpKind;
//   - "acquire ok", "acquire held", "hold released", "hold lost", "complete done",
//     "renew unavailable" and so on: how one ended. After the operation comes "ok",
//     the sentinel of core that its error matches ("held", "done", "unavailable",
//     "lost", "released", "closed"), or else "failed";
//   - "httplock busy", "cronlock tick_held" and so on: the source and the kind of a
//     core.Event, which the adapters list.
type Events struct {
	mu      sync.Mutex
	counts  map[string]int
	running map[core.OpKind]int
	changed chan struct{} // closed at the next event; nil while nobody waits
}

// Observer returns the observer, for core.WithObserver.
func (e *Events) Observer() core.Observer {
	return core.Observer{
		Start: func(ctx context.Context, op core.Op) (context.Context, func(core.Outcome)) { return ctx, e.start(op) },
		Event: func(_ context.Context, ev core.Event) { e.note(ev.Source+" "+string(ev.Kind), 0, 0) },
	}
}

func (e *Events) start(op core.Op) func(core.Outcome) {
	e.note(op.Kind.String()+" began", op.Kind, 1)
	return func(out core.Outcome) { e.note(op.Kind.String()+" "+ending(out.Err), op.Kind, -1) }
}

var endings = []struct {
	err  error
	name string
}{
	{nil, "ok"},
	{core.ErrHeld, "held"},
	{core.ErrDone, "done"},
	{core.ErrLost, "lost"},
	{core.ErrReleased, "released"},
	{core.ErrUnavailable, "unavailable"},
	{core.ErrClosed, "closed"},
}

func ending(err error) string {
	for _, e := range endings {
		if errors.Is(err, e.err) {
			return e.name
		}
	}
	return "failed"
}

func (e *Events) note(what string, op core.OpKind, more int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.counts == nil {
		e.counts = map[string]int{}
		e.running = map[core.OpKind]int{}
	}
	e.counts[what]++
	e.running[op] += more
	if e.changed != nil {
		close(e.changed)
		e.changed = nil
	}
}

// Count returns how often something has happened.
func (e *Events) Count(what string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.counts[what]
}

// Counts returns all that has happened, and how often.
func (e *Events) Counts() map[string]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.counts)
}

// Running returns how many operations of a kind are under way: of core.OpAcquire
// those that wait, of core.OpHold the leases that are held.
func (e *Events) Running(op core.OpKind) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.running[op]
}

// Until waits until something has happened n times since the start, and fails the
// test if it does not within a minute. It is to be called from the test's
// goroutine.
func (e *Events) Until(tb testing.TB, what string, n int) {
	tb.Helper()
	e.await(tb, what, func() bool { return e.Count(what) >= n })
}

// UntilRunning waits until as many operations of a kind are under way, as Until
// does.
func (e *Events) UntilRunning(tb testing.TB, op core.OpKind, n int) {
	tb.Helper()
	e.await(tb, op.String()+" under way", func() bool { return e.Running(op) == n })
}

// nextChange returns a channel that is closed at the next event.
func (e *Events) nextChange() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.changed == nil {
		e.changed = make(chan struct{})
	}
	return e.changed
}

func (e *Events) await(tb testing.TB, what string, so func() bool) {
	tb.Helper()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	for {
		changed := e.nextChange()
		if so() {
			return
		}
		select {
		case <-changed:
		case <-limit.C:
			tb.Fatalf("never: %s; so far: %v", what, e.Counts())
		}
	}
}
