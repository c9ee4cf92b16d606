package callback

import (
	"context"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/internal/gate"
	"github.com/lockkit/lockkit/internal/logbook"
)

func TestCall(t *testing.T) {
	var log logbook.Book
	if !Call(log.Logger(), "f", func() {}) {
		t.Error("it has not returned")
	}
	log.Want(t, 0)
	if Call(log.Logger(), "f", func() { panic("boom") }) {
		t.Error("it panicked, and has returned")
	}
	log.Want(t, 1, "callback=f", "panic=boom", "callback_test.go")

	var ended sync.WaitGroup
	ended.Go(func() { Call(log.Logger(), "g", runtime.Goexit) })
	ended.Wait()
	log.Want(t, 1, "callback=g", "panic=runtime.Goexit", "callback_test.go")
}

// A panicky is a handler whose methods all panic.
type panicky struct{}

func (panicky) Enabled(context.Context, slog.Level) bool  { panic("enabled") }
func (panicky) Handle(context.Context, slog.Record) error { panic("handle") }
func (panicky) WithAttrs([]slog.Attr) slog.Handler        { panic("attrs") }
func (panicky) WithGroup(string) slog.Handler             { panic("group") }

// A panickyLine is a handler that panics when it writes.
type panickyLine struct{ panicky }

func (panickyLine) Enabled(context.Context, slog.Level) bool { return true }

// The test replaces os.Stderr, so it is not parallel.
func TestLoggerThatPanics(t *testing.T) {
	stderr := os.Stderr
	defer func() { os.Stderr = stderr }()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	os.Stderr = w

	for _, h := range []slog.Handler{panicky{}, panickyLine{}} {
		log := Logger(slog.New(h))
		for range 2 {
			log.Error("line")
			log.With("a", 1).WithGroup("g").Error("line")
		}
	}
	w.Close()
	text := make([]byte, 64<<10)
	n, _ := r.Read(text)
	for _, want := range []string{"enabled", "handle", "callback_test.go"} {
		if !strings.Contains(string(text[:n]), want) {
			t.Errorf("standard error lacks %q:\n%s", want, text[:n])
		}
	}
	if said := strings.Count(string(text[:n]), "the logger panicked"); said != 2 {
		t.Errorf("said %d times of two loggers", said)
	}
}

func TestLoggerWritesWhereItDid(t *testing.T) {
	var log logbook.Book
	Logger(log.Logger()).With("a", 1).WithGroup("g").Error("line", "b", 2)
	log.Want(t, 1, "msg=line", "a=1", "g.b=2")
}

// background runs f with a Background in a bubble, and waits for its goroutines.
func background(t *testing.T, f func(b *Background, log *logbook.Book)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var log logbook.Book
		var inside gate.Gate
		f(NewBackground(log.Logger(), &inside), &log)
		inside.Close()
		<-inside.Empty()
	})
}

// Calls of a queue are made in order, one at a time. A call that does not return keeps no other queue waiting.
func TestQueuesAreIndependent(t *testing.T) {
	background(t, func(b *Background, log *logbook.Book) {
		var stuck, other Queue
		until := make(chan struct{})
		var done []int
		b.Post(&stuck, func() { <-until })
		for i := range 10 {
			b.Post(&stuck, func() { done = append(done, -i) })
			b.Post(&other, func() { done = append(done, i) })
		}
		synctest.Wait()
		if len(done) != 10 || done[9] != 9 {
			t.Errorf("of the other queue were called: %v", done)
		}
		if !b.Busy() {
			t.Error("it is not busy")
		}
		close(until)
		synctest.Wait()
		if len(done) != 20 || done[19] != -9 || b.Busy() || b.Dropped() != 0 {
			t.Errorf("called: %v, busy: %v, dropped: %d", done, b.Busy(), b.Dropped())
		}
	})
}

// A call that panics or ends its goroutine does not affect later calls.
func TestCallInTheBackgroundFails(t *testing.T) {
	background(t, func(b *Background, log *logbook.Book) {
		var q Queue
		called := false
		b.Post(&q, func() { panic("boom") })
		b.Post(&q, runtime.Goexit)
		b.Post(&q, func() { called = true })
		synctest.Wait()
		if !called || b.Busy() {
			t.Errorf("the third was called: %v; busy: %v", called, b.Busy())
		}
		log.Want(t, 2, "in the background")
	})
}

// If a call does not return, the number of calls that wait behind it is bounded. The others are dropped, and the log
// reports their number once a minute.
func TestCallsAreDropped(t *testing.T) {
	background(t, func(b *Background, log *logbook.Book) {
		var q Queue
		until := make(chan struct{})
		ends, posted := 0, 0
		b.Post(&q, func() { <-until })
		synctest.Wait()
		for range 200 {
			if b.Post(&q, func() {}) {
				posted++
			}
			b.PostAlways(&q, func() { ends++ })
		}
		synctest.Wait()
		if dropped := b.Dropped(); posted+dropped != 200 || posted > maxQueued {
			t.Errorf("%d wait, %d dropped", posted, dropped)
		}
		log.Want(t, 1, "events are dropped")

		for range 5 {
			b.Post(&q, func() {})
		}
		time.Sleep(reportInterval)
		synctest.Wait()
		total := b.Dropped()
		log.Want(t, 2, "events are dropped")
		if last := log.Lines("events are dropped")[1]; !strings.Contains(last, "dropped="+itoa(total)) {
			t.Errorf("%d dropped, the log says %s", total, last)
		}
		time.Sleep(10 * reportInterval)
		synctest.Wait()
		log.Want(t, 2, "events are dropped")

		close(until)
		synctest.Wait()
		if ends != 200 {
			t.Errorf("%d of the calls that must not be dropped were made", ends)
		}
	})
}

// The number of goroutines is bounded, even if calls of many queues do not return. Calls that must not be dropped are
// made later.
func TestManyCallsDoNotReturn(t *testing.T) {
	background(t, func(b *Background, log *logbook.Book) {
		until := make(chan struct{})
		for range maxGoroutines {
			b.Post(new(Queue), func() { <-until })
		}
		synctest.Wait()
		before := runtime.NumGoroutine()
		called := 0
		for range 100 {
			if b.Post(new(Queue), func() { called++ }) {
				t.Fatal("one more was taken")
			}
		}
		b.PostAlways(new(Queue), func() { called++ })
		synctest.Wait()
		if more := runtime.NumGoroutine() - before; called != 0 || more > 10 {
			t.Errorf("%d called, %d goroutines more", called, more)
		}
		log.Want(t, 1, "events are dropped")
		close(until)
		synctest.Wait()
		if called != 1 || b.Busy() {
			t.Errorf("%d called, busy: %v", called, b.Busy())
		}
	})
}

// After its gate is closed and empty, a Background makes no calls.
func TestNothingIsCalledAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inside gate.Gate
		b := NewBackground(slog.New(slog.DiscardHandler), &inside)
		inside.Close()
		var q Queue
		b.Post(&q, func() { t.Error("called") })
		b.PostAlways(&q, func() { t.Error("called") })
		synctest.Wait()
		if b.Busy() {
			t.Error("busy")
		}
	})
}

func itoa(n int) string { return slog.IntValue(n).String() }
