package cronlock

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
)

// Callbacks come in turn also when they are slow: the end of a term is told when its begin has been.
func TestSlowCallbacks(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		locks, cable := w.wired()
		c := &candidate{name: "slow"}
		slowly := func(call string) {
			done := c.note(call)
			time.Sleep(2 * ttl)
			done()
		}
		e, err := NewElector(locks, "group", WithLogger(quiet),
			OnElected(func(_ context.Context, term Term) { slowly("elected " + token(term)) }),
			OnLost(func(term Term, err error) { slowly("lost " + token(term)) }))
		if err != nil {
			t.Fatal(err)
		}
		c.Elector = e
		for i := range 4 {
			leader(t, time.Minute, c)
			start := time.Now()
			if i%2 == 0 {
				cable.Cut()
				await(t, ttl, "the term is lost", func() bool { return !c.leads() })
				cable.Mend()
			} else if err := c.Resign(t.Context()); err != nil {
				t.Error(err)
			}
			if d := await(t, time.Minute, "OnLost is called", func() bool { return len(c.called()) == 2*i+2 }); i%2 == 0 && d == 0 {
				t.Errorf("OnLost is called %v after the election, with OnElected under way", time.Since(start))
			}
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		checkCalls(t, c)
		if n := len(c.called()); n != 8 {
			t.Errorf("callbacks %v", c.called())
		}
	})
}

// The context of OnElected ends with the term, whichever way that ends, and says why.
func TestElectedContext(t *testing.T) {
	for _, way := range []string{"resigned", "closed", "lost"} {
		t.Run(way, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				locks, cable := w.wired()
				ended := make(chan error, 1)
				lost := make(chan error, 1)
				c := w.electorOn("c", locks,
					OnElected(func(ctx context.Context, term Term) {
						<-ctx.Done()
						ended <- context.Cause(ctx)
					}),
					OnLost(func(_ Term, err error) { lost <- err }))
				leader(t, taking, c)
				time.Sleep(time.Minute)
				if len(ended) > 0 {
					t.Fatal("the context ended before the term")
				}
				switch way {
				case "resigned":
					if err := c.Resign(t.Context()); err != nil {
						t.Error(err)
					}
				case "closed":
					if err := c.Close(t.Context()); err != nil {
						t.Error(err)
					}
				case "lost":
					cable.Cut()
					defer cable.Mend()
				}
				cause, err := <-ended, <-lost
				if !errors.Is(cause, ErrLeadershipLost) || errors.Is(cause, core.ErrLost) != (way == "lost") {
					t.Errorf("the cause is %v", cause)
				}
				if (err != nil) != (way == "lost") || err != nil && (!errors.Is(err, ErrLeadershipLost) || !errors.Is(err, core.ErrLost)) {
					t.Errorf("OnLost is told %v", err)
				}
			})
		})
	}
}

// A callback may ask the Elector anything, and resign or close it with the context that it has.
func TestCallbacksThatCallBack(t *testing.T) {
	for _, tt := range []struct {
		name   string
		closed bool // never elected again
		within func(ctx context.Context, e *Elector) error
	}{
		{"ask", false, func(ctx context.Context, e *Elector) error {
			_, err := e.Term()
			return errors.Join(err, e.IsLeader(ctx))
		}},
		{"resign", false, func(ctx context.Context, e *Elector) error { return e.Resign(ctx) }},
		{"resign with a context of its own", false, func(ctx context.Context, e *Elector) error {
			return e.Resign(context.WithoutCancel(ctx))
		}},
		{"close", true, func(ctx context.Context, e *Elector) error { return e.Close(ctx) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				ready := make(chan struct{})
				results := make(chan error, 100)
				var e *Elector
				e, err := NewElector(w.locks(), "group", WithLogger(quiet), OnElected(func(ctx context.Context, _ Term) {
					<-ready
					select {
					case results <- tt.within(ctx, e):
					default:
					}
				}))
				if err != nil {
					t.Fatal(err)
				}
				close(ready)
				if err := <-results; err != nil {
					t.Errorf("within OnElected: %v", err)
				}
				if tt.name != "ask" {
					await(t, taking, "it leads no more", func() bool { return e.IsLeader(t.Context()) != nil })
				}
				c := &candidate{Elector: e}
				if tt.closed {
					time.Sleep(time.Minute)
					if c.leads() {
						t.Error("it leads again")
					}
				} else if tt.name != "ask" {
					<-results // it was elected again
				}
				if err := e.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// In OnLost this process does not lead, so that there is nothing to resign, nor to wait for.
func TestResignInOnLost(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		serialBubble(t, 3, func(t *testing.T, w *world) {
			locks, cable := w.wired()
			done := make(chan error, 10)
			ready := make(chan struct{})
			var e *Elector
			e, err := NewElector(locks, "group", WithLogger(quiet), OnLost(func(Term, error) {
				<-ready
				if err := e.IsLeader(context.Background()); !errors.Is(err, ErrNotLeader) {
					t.Errorf("in OnLost: %v", err)
				}
				done <- e.Resign(context.Background())
			}))
			if err != nil {
				t.Fatal(err)
			}
			close(ready)
			c := &candidate{Elector: e}
			leader(t, taking, c)
			if lost {
				cable.Cut()
			} else if err := e.Resign(t.Context()); err != nil {
				t.Error(err)
			}
			select {
			case err := <-done:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(time.Minute):
				t.Fatal("Resign within OnLost does not return")
			}
			cable.Mend()
			leader(t, ttl+afterResign+taking, c)
			if err := e.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A run may resign, too, with its own context: it cannot wait for itself.
func TestRunThatResigns(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		a, b := w.elector("a"), w.elector("b")
		l := leader(t, taking, a, b)
		resigned := make(chan error, 1)
		w.alone(l, l.Task(func(ctx context.Context) error {
			resigned <- l.Resign(ctx)
			return nil
		})).Start()
		select {
		case err := <-resigned:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Fatal("a run that resigns waits for itself")
		}
		leader(t, taking, others(l, a, b)...)
	})
}

func token(t Term) string { return strconv.FormatUint(t.FencingToken, 10) }

// lines is a logger's output.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *lines) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), what)
}

// Without nodes nobody is elected, which is logged, once; and when they come, somebody is.
func TestElectorWithoutNodes(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		locks := w.locks()
		for _, n := range w.nodes {
			n.Down()
		}
		var log lines
		c := w.electorOn("c", locks, WithLogger(log.logger()))
		time.Sleep(5 * time.Minute)
		if c.leads() || len(c.called()) > 0 {
			t.Error("elected without nodes")
		}
		if n := log.count("no leader can be elected"); n != 1 {
			t.Errorf("logged %d times", n)
		}
		for _, n := range w.nodes {
			n.Up()
		}
		leader(t, ttl+taking, c)
	})
}

// A Locker that waits for a bounded time only is no reason to say that nobody can be elected.
func TestElectorWhoseLockerDoesNotWait(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		var log lines
		a := w.elector("a")
		leader(t, taking, a)
		b := w.electorOn("b", w.locks(core.MaxWait(100*time.Millisecond)), WithLogger(log.logger()))
		time.Sleep(time.Minute)
		if n := log.count("no leader can be elected"); n > 0 {
			t.Errorf("logged %d times that nobody can be elected, while another one leads", n)
		}
		if err := a.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		await(t, taking, "the other one leads", b.leads)
	})
}

// When the Locker is closed under it, an Elector loses its term, says so, and has ended.
func TestElectorWhoseLockerIsClosed(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		locks := w.locks()
		var log lines
		a, b := w.electorOn("a", locks, WithLogger(log.logger())), w.electorOn("b", locks, WithLogger(log.logger()))
		leader(t, taking, a, b)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := locks.Close(ctx); err == nil {
			t.Error("the Locker's Close waited for nothing")
		}
		synctest.Wait()
		if len(leaders(a, b)) > 0 {
			t.Error("somebody leads without a Locker")
		}
		time.Sleep(taking)
		if n := log.count("the Locker is closed"); n != 2 {
			t.Errorf("logged %d times that it does not campaign any more, want once for each", n)
		}
		for _, c := range []*candidate{a, b} {
			start := time.Now()
			if err := c.Close(t.Context()); err != nil || time.Since(start) != 0 {
				t.Errorf("Close, after %v: %v", time.Since(start), err)
			}
			checkCalls(t, c)
		}
		if next := w.elector("next"); leader(t, taking, next) != next { // the key was given back
			t.Error("nobody leads")
		}
	})
}
