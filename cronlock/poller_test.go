package cronlock

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/gate"
	"github.com/lockkit/lockkit/internal/race"
	"github.com/lockkit/lockkit/testutil"
)

// At most one poll is under way at a time, however long it takes, and a poll that was requested in the meantime
// follows. After stop there are no more polls.
func TestOneLookAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g gate.Gate
		var inside, most, looked atomic.Int32

		r := rand.New(rand.NewPCG(1, 2))
		var l *poller
		l = newPoller(&g, func() {
			most.Store(max(most.Load(), inside.Add(1)))
			l.pollWithin(0) // as a poll does if the next tick is due
			time.Sleep(300 * time.Millisecond)
			looked.Add(1)
			inside.Add(-1)
		})

		for range 1000 {
			l.pollWithin(time.Duration(r.IntN(100)) * time.Millisecond)
			time.Sleep(time.Duration(r.IntN(10)) * time.Millisecond)
		}

		synctest.Wait()
		before := looked.Load()
		time.Sleep(time.Minute)
		if n := looked.Load() - before; most.Load() != 1 || n < 190 || n > 201 {
			t.Errorf("%d looks at once; %d in a minute", most.Load(), n)
		}

		l.stop()
		time.Sleep(time.Minute)
		before = looked.Load()
		l.pollWithin(0)
		time.Sleep(time.Minute)
		if looked.Load() != before {
			t.Error("it looks after the end")
		}
	})
}

// The beginnings of polls that take no time are minPollInterval apart, and retryDelay after a failure.
func TestLooksArePaced(t *testing.T) {
	for name, again := range map[string]bool{"at once": false, "after a failure": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var g gate.Gate
				looked := 0
				var l *poller
				l = newPoller(&g, func() {
					looked++
					if again {
						l.retryIn(0)
					} else {
						l.pollWithin(0)
					}
				})
				l.pollWithin(0)
				time.Sleep(time.Minute)
				l.stop()
				synctest.Wait() // for the last poll to end

				want := int(time.Minute / minPollInterval)
				if again {
					want = int(time.Minute / retryDelay)
				}
				if looked < want || looked > want+1 {
					t.Errorf("%d looks in a minute, want %d", looked, want)
				}
			})
		})
	}
}

// mostRequests is the largest number of requests to a node in a minute that the package documentation states for a job
// that is due every minute and whose polls fail.
const mostRequests = 300

// bubbleAlone is bubbleOf without parallel tests, for tests that count goroutines.
func bubbleAlone(t *testing.T, name string, after time.Duration, f func(t *testing.T, w *world)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(after)
			f(t, newWorld(t))
		})
	})
}

// Slow nodes and slow observers do not make polls of a job overlap: for many jobs, the number of goroutines stays
// bounded, and the requests stay within the bound of the package documentation.
func TestLooksAreBounded(t *testing.T) {
	race.SkipSweep(t)
	jobs := 100
	if testing.Short() {
		jobs = 50
	}
	for name, c := range map[string]struct {
		slow, observer time.Duration
		hosts          bool
	}{
		"slow nodes and observers":    {900 * time.Millisecond, time.Millisecond, false},
		"slow nodes, with hosts":      {900 * time.Millisecond, time.Millisecond, true},
		"quick nodes, slow observers": {0, 20 * time.Millisecond, false},
	} {
		bubbleAlone(t, name, 30*time.Second, func(t *testing.T, w *world) {
			locks := w.first.Replica(core.WithObserver(core.Observer{Event: func(context.Context, core.Event) { time.Sleep(c.observer) }}))
			s, err := New(locks.Locker, "service")
			if err != nil {
				t.Fatal(err)
			}

			locks.Link.OnRequest(func(redis.Cmder) testutil.Action {
				return testutil.Action{Delay: c.slow / 2, ReplyDelay: c.slow / 2}
			})

			var calls sync.WaitGroup
			for i := range jobs {
				var opts []JobOption
				var j *Job
				added := make(chan struct{})
				if c.hosts {
					opts = append(opts, WithHost(func() { <-added; calls.Go(func() { _ = j.RunDue(t.Context()) }) }))
				}
				if j, err = s.Add(fmt.Sprint("job ", i), Every(time.Minute), func(context.Context) error { return nil }, opts...); err != nil {
					t.Fatal(err)
				}
				close(added)
			}

			till(2*time.Minute + 45*time.Second)
			goroutines, asked := runtime.NumGoroutine(), w.requests()
			const minutes = 2
			for range minutes {
				time.Sleep(time.Minute)
				if n := runtime.NumGoroutine(); n > goroutines+5*jobs {
					t.Errorf("%d goroutines, %d before", n, goroutines)
				}
			}

			each := (w.requests() - asked) / (len(w.nodes) * jobs * minutes)
			if t.Logf("%d goroutines, %d requests to a node each minute and job", goroutines, each); each > mostRequests {
				t.Error("too many")
			}

			locks.Link.OnRequest(nil)
			calls.Wait()
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// An observer that panics at each event costs no tick and no run.
func TestObserverPanicsAtEvents(t *testing.T) {
	for name, host := range map[string]bool{"engine": false, "host": true} {
		bubbleOf(t, name, 30*time.Second, func(t *testing.T, w *world) {
			w.replica("a", plan{host: host, core: []core.Option{core.WithObserver(core.Observer{
				Event: func(context.Context, core.Event) { panic("observer") },
			})}})
			till(5*time.Minute + 30*time.Second)
			w.want(ticks(at(0), time.Minute, 6)...)
		})
	}
}

// An observer and a logger that do not return from the first event and the first line cost no tick and no run.
func TestObserverThatBlocksCostsNoTick(t *testing.T) {
	for name, host := range map[string]bool{"engine": false, "host": true} {
		bubbleOf(t, name, 30*time.Second, func(t *testing.T, w *world) {
			release := make(chan struct{})
			w.replica("a", plan{host: host, core: []core.Option{
				core.WithObserver(core.Observer{Event: func(context.Context, core.Event) { <-release }}),
				core.WithLogger(slog.New(blockingHandler{slog.DiscardHandler, release})),
			}})

			till(90 * time.Second)
			w.each((*testutil.Node).Down)
			till(2*time.Minute + 30*time.Second) // a tick cannot start, and that is logged
			w.each((*testutil.Node).Up)
			till(5*time.Minute + 30*time.Second)
			close(release)
			w.want(ticks(at(0), time.Minute, 6)...)
		})
	}
}

// A blockingHandler is a slog.Handler that does not return before it is released.
type blockingHandler struct {
	slog.Handler
	release chan struct{}
}

func (h blockingHandler) Enabled(context.Context, slog.Level) bool  { return true }
func (h blockingHandler) Handle(context.Context, slog.Record) error { <-h.release; return nil }
func (h blockingHandler) WithAttrs([]slog.Attr) slog.Handler        { return h }
func (h blockingHandler) WithGroup(string) slog.Handler             { return h }
