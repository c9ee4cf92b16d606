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

// Events counts the events that an observer receives, and waits for them. Several
// Lockers may share one Events. The zero value is ready for use.
//
// The names of events have two words:
//
//   - "acquire began", "hold began", and the same for "renew", "release" and
//     "complete": an operation began. The first word is the name of its core.OpKind;
//   - "acquire ok", "acquire held", "hold released", "hold lost", "complete done",
//     "renew unavailable" and so on: an operation ended. The second word is "ok", the
//     name of the sentinel of core that its error matches ("held", "done",
//     "unavailable", "lost", "released", "closed"), or else "failed";
//   - "httplock busy", "cronlock tick_held" and so on: the source and the kind of a
//     core.Event, which the adapters list.
type Events struct {
	mu      sync.Mutex // guards all fields
	counts  map[string]int
	running map[core.OpKind]int
	changed chan struct{} // closed at the next event; nil if no call waits for it
}

// Observer returns the observer, for core.WithObserver.
func (e *Events) Observer() core.Observer {
	return core.Observer{
		Start: func(ctx context.Context, op core.Op) (context.Context, func(core.Outcome)) {
			return ctx, e.start(op)
		},
		Event: func(_ context.Context, ev core.Event) {
			e.add(ev.Source+" "+string(ev.Kind), 0, 0)
		},
	}
}

// start counts the beginning of an operation, and returns a function that counts its end.
func (e *Events) start(op core.Op) func(core.Outcome) {
	e.add(op.Kind.String()+" began", op.Kind, 1)
	return func(out core.Outcome) {
		e.add(op.Kind.String()+" "+resultName(out.Err), op.Kind, -1)
	}
}

var resultNames = []struct {
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

// resultName returns the second word of an event's name, for the error of an operation.
func resultName(err error) string {
	for _, r := range resultNames {
		if errors.Is(err, r.err) {
			return r.name
		}
	}
	return "failed"
}

// add counts an event, and adds n to the operations of a kind that are running.
func (e *Events) add(name string, op core.OpKind, n int) {
	e.mu.Lock()
	defer e.mu.Unlock()

	if e.counts == nil {
		e.counts = map[string]int{}
		e.running = map[core.OpKind]int{}
	}
	e.counts[name]++
	e.running[op] += n

	if e.changed != nil {
		close(e.changed)
		e.changed = nil
	}
}

// Count returns how often the event with the name what has happened.
func (e *Events) Count(what string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.counts[what]
}

// Counts returns the names of all events that have happened, and how often each
// has.
func (e *Events) Counts() map[string]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.counts)
}

// Running returns how many operations of a kind are in progress: for
// core.OpAcquire the acquisitions that wait, for core.OpHold the leases that are
// held.
func (e *Events) Running(op core.OpKind) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.running[op]
}

// Until waits until the event with the name what has happened n times since the
// start, and fails the test if it does not within a minute. It must be called
// from the test's goroutine.
func (e *Events) Until(tb testing.TB, what string, n int) {
	tb.Helper()
	e.await(tb, what, func() bool {
		return e.Count(what) >= n
	})
}

// UntilRunning waits until n operations of a kind are in progress. Otherwise it
// behaves like Until.
func (e *Events) UntilRunning(tb testing.TB, op core.OpKind, n int) {
	tb.Helper()
	e.await(tb, op.String()+" under way", func() bool {
		return e.Running(op) == n
	})
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

// await waits until happened returns true. It asks after each event.
func (e *Events) await(tb testing.TB, what string, happened func() bool) {
	tb.Helper()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()

	for {
		// The channel comes first, so that no event between the two is missed.
		changed := e.nextChange()
		if happened() {
			return
		}
		select {
		case <-changed:
		case <-limit.C:
			tb.Fatalf("never: %s; so far: %v", what, e.Counts())
		}
	}
}
