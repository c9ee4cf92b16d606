package leader_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/leader"
	"github.com/lockkit/lockkit/internal/logbook"
	"github.com/lockkit/lockkit/testutil"
)

type contextKey struct{}

// The context of Enter has the values of the caller's context, and ends with the caller's context and with leave.
// Another process leads only when all work has left.
func TestEnter(t *testing.T) {
	bubble(t, 3, func(w *world) {
		l, f := w.pair()
		ctx, leave, err := f.Enter(w.Context())
		isErr(w.T, "a follower", err, leader.ErrNotLeader)
		if leave(); ctx != w.Context() {
			w.Error("the context of one that is refused is not its own")
		}

		if f.Resign(); !l.leads() { // a follower has nothing to give up
			w.Error("the leader has stopped leading")
		}

		why := errors.New("the caller has gone")
		caller, end := context.WithCancelCause(context.WithValue(w.Context(), contextKey{}, 1))

		first, leaveFirst, err := l.Enter(caller)
		isErr(w.T, "the leader", err, nil)
		second, leaveSecond := w.enter(l)
		if first.Value(contextKey{}) != 1 {
			w.Error("the caller's values are lost")
		}

		end(why)
		if isErr(w.T, "the end of the caller", context.Cause(first), why); first.Err() == nil || second.Err() != nil {
			w.Errorf("contexts: %v, %v", first.Err(), second.Err())
		}

		leaveFirst()
		leaveFirst() // a second call does not count for other work

		l.Resign()
		time.Sleep(time.Minute)
		if f.leads() {
			w.Error("the other one leads while work is inside")
		}

		leaveSecond()
		isErr(w.T, "the context of work that has left", second.Err(), context.Canceled)
		await(w.T, taking, "the other one leads", f.leads)
	})
}

// When the context of Close ends, Close ends the context of the work. No other process leads before the work has ended.
// Then another process leads, and the closed one never leads again.
func TestClose(t *testing.T) {
	bubble(t, 3, func(w *world) {
		l, f := w.pair()
		work, leave := w.enter(l)

		why := errors.New("no time")
		ctx, cancel := context.WithTimeoutCause(w.Context(), time.Second, why)
		defer cancel()

		start := time.Now()
		if err := l.Close(ctx); !errors.Is(err, why) || time.Since(start) != time.Second {
			w.Errorf("after %v: %v", time.Since(start), err)
		}
		if work.Err() == nil {
			w.Error("the work goes on")
		}
		isErr(w.T, "the work's end", context.Cause(work), leader.ErrNotLeader)

		time.Sleep(3 * ttl)
		if f.leads() || l.leads() {
			w.Error("somebody leads, although the work has not ended")
		}

		time.AfterFunc(time.Second, leave)
		isErr(w.T, "the second Close", l.Close(w.Context()), nil)
		for range 20 { // there is nothing left to wait for
			isErr(w.T, "Close without time", l.Close(ctx), nil)
		}
		await(w.T, taking, "the other one leads", f.leads)
		isErr(w.T, "its health", l.Check(w.Context()), core.ErrClosed)

		isErr(w.T, "Close of the other", f.Close(w.Context()), nil)
		time.Sleep(5 * ttl)
		if n := len(leaders(l, f)); n > 0 {
			w.Errorf("after Close %d lead", n)
		}
	})
}

// Work that goes on for longer than a TTL after its process has resigned keeps the group without a leader. Check of
// both candidates then fails until the work has ended, and both log that. Work that ends sooner is not reported.
func TestStuckAfterResign(t *testing.T) {
	bubble(t, 3, func(w *world) {
		var log logbook.Book
		l, f := w.candidateOn("l", w.first.Replica(core.WithLogger(log.Logger()))), (*candidate)(nil)
		w.leader(taking, l)
		f = w.candidateOn("f", w.first.Replica(core.WithLogger(log.Logger())))

		_, leave := w.enter(l)
		l.Resign()
		time.Sleep(ttl - time.Second)
		isErr(w.T, "while its work may still end", errors.Join(l.Check(w.Context()), f.Check(w.Context())), nil)

		time.Sleep(2 * ttl)
		for name, c := range map[string]*candidate{"the process that resigned": l, "the other one": f} {
			if err := c.Check(w.Context()); err == nil || c.leads() {
				w.Errorf("%s: its health is %v; it leads: %v", name, err, c.leads())
			}
		}

		log.Want(w.T, 1, "work of the term has not ended since this process resigned", "group=group")
		log.Want(w.T, 1, "the leader has resigned, and work of its term has not ended", "group=group")

		leave()
		await(w.T, taking, "the other one leads", f.leads)
		isErr(w.T, "when its work has ended", errors.Join(l.Check(w.Context()), f.Check(w.Context())), nil)

		_, leave = w.enter(f)
		f.Resign()
		time.Sleep(ttl / 2)
		leave()
		await(w.T, taking, "the first one leads", l.leads)
		time.Sleep(3 * ttl)
		isErr(w.T, "after work that ended in time", errors.Join(l.Check(w.Context()), f.Check(w.Context())), nil)
		log.Want(w.T, 2, "work of")
	})
}

// A process that does not lead notices within two seconds that another process leads again, and its Check passes.
func TestCheckAfterStuckWorkHasEnded(t *testing.T) {
	bubble(t, 3, func(w *world) {
		l := w.candidate("l")
		w.leader(taking, l)
		f, g := w.candidate("f"), w.candidate("g")
		_, leave := w.enter(l)
		l.Resign()
		time.Sleep(3 * ttl)
		for _, c := range []*candidate{l, f, g} {
			if c.Check(w.Context()) == nil {
				w.Errorf("%v says that all is well, and nobody can lead", c)
			}
		}

		leave()
		await(w.T, taking, "another one leads", func() bool { return f.leads() || g.leads() })
		time.Sleep(2 * time.Second)
		isErr(w.T, "when another one leads", errors.Join(l.Check(w.Context()), f.Check(w.Context()), g.Check(w.Context())), nil)
	})
}

// Close is refused inside work of the term and inside OnElected, because it would wait for itself. It then closes
// nothing.
func TestCloseInsideItsWork(t *testing.T) {
	bubble(t, 3, func(w *world) {
		elected, refused := make(chan *leader.Elector, 1), make(chan error, 1)
		e, err := leader.New(w.first.Replica().Locker, "group", leader.OnElected(func(ctx context.Context, _ leader.Term) {
			refused <- (<-elected).Close(ctx)
		}))
		if err != nil {
			w.Fatal(err)
		}

		elected <- e
		isErr(w.T, "Close in OnElected", testutil.Receive(w.T, refused), core.ErrInvalid)

		work, leave, err := e.Enter(w.Context())
		isErr(w.T, "Enter", err, nil)
		isErr(w.T, "Close in work", e.Close(context.WithoutCancel(work)), core.ErrInvalid)
		isErr(w.T, "leading after that", e.IsLeader(w.Context()), nil)
		leave()
		isErr(w.T, "Close", e.Close(w.Context()), nil)
	})
}

// If a function of the user panics, blocks, is slow or ends its goroutine, the candidate can still be elected and
// resign.
func TestCallbackMisbehavesAtAnElection(t *testing.T) {
	type callbacks struct {
		elected, event, line func()
	}
	sites := map[string]func(misbehave func()) callbacks{
		"OnElected": func(misbehave func()) callbacks { return callbacks{misbehave, func() {}, func() {}} },
		"Event":     func(misbehave func()) callbacks { return callbacks{func() {}, misbehave, func() {}} },
		"logger":    func(misbehave func()) callbacks { return callbacks{func() {}, func() {}, misbehave} },
	}
	for where, at := range sites {
		for _, how := range []string{"panics", "blocks", "is slow", "ends its goroutine"} {
			if where == "OnElected" && how == "blocks" {
				continue // the term waits for its OnElected
			}
			t.Run(where+" "+how, func(t *testing.T) {
				bubble(t, 3, func(w *world) {
					until := make(chan struct{})
					misbehave := map[string]func(){
						"panics": func() { panic("callback") }, "blocks": func() { <-until },
						"is slow": func() { time.Sleep(2 * time.Second) }, "ends its goroutine": runtime.Goexit,
					}[how]

					c := at(misbehave)
					locks := w.first.Replica(core.WithLogger(slog.New(lineHandler{c.line})), core.WithObserver(core.Observer{
						Event: func(context.Context, core.Event) { c.event() },
					}))

					e := w.electedDoes("c", locks, func(*candidate) { c.elected() })

					for range 3 {
						await(w.T, taking, "it leads", e.leads)
						e.Resign()
						time.Sleep(away)
					}
					await(w.T, taking, "it leads", e.leads)

					close(until)
				})
			})
		}
	}
}

// A lineHandler calls a function for each line of the log.
type lineHandler struct{ line func() }

func (h lineHandler) Enabled(context.Context, slog.Level) bool  { return true }
func (h lineHandler) Handle(context.Context, slog.Record) error { h.line(); return nil }
func (h lineHandler) WithAttrs([]slog.Attr) slog.Handler        { return h }
func (h lineHandler) WithGroup(string) slog.Handler             { return h }

// atGrant returns an option that calls f when the leadership has been granted, before Acquire returns.
func atGrant(f func()) core.Option {
	return core.WithObserver(core.Observer{Start: func(ctx context.Context, op core.Op) (context.Context, func(core.Outcome)) {
		if op.Kind != core.OpAcquire || op.Name != "group" {
			return ctx, nil
		}
		return ctx, func(o core.Outcome) {
			if o.Err == nil {
				f()
			}
		}
	}})
}

// An Elector that is closed at the moment when the nodes grant the leadership does not lead, and releases the key.
func TestCloseAtTheMomentOfElection(t *testing.T) {
	bubble(t, 3, func(w *world) {
		var c *candidate
		ready, closed := make(chan struct{}), make(chan error, 1)
		c = w.electedDoes("c", w.first.Replica(atGrant(func() {
			<-ready
			go func() { closed <- c.Close(w.Context()) }()
			synctest.Wait()
		})), func(*candidate) { w.Error("elected after Close") })
		close(ready)
		isErr(w.T, "Close", testutil.Receive(w.T, closed), nil)
		w.leader(taking, w.candidate("next")) // the key was released
	})
}

// When the validity of its lease has ended, a leader knows at the first call that its term is over, even if no
// goroutine has had time to notice it, as after a pause of the process. A term does not end when OnElected returns.
func TestFirstLookOfALateLeader(t *testing.T) {
	for i := range 6 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			bubble(t, 3, func(w *world) {
				elected := make(chan context.Context, 1)
				e, err := leader.New(w.first.Locker, "group", leader.OnElected(func(ctx context.Context, _ leader.Term) { elected <- ctx }))
				if err != nil {
					w.Fatal(err)
				}
				defer e.Close(w.Context())

				notice := testutil.Receive(w.T, elected)
				time.Sleep(ttl)
				work, leave, err := e.Enter(w.Context())
				isErr(w.T, "Enter", err, nil)
				defer leave()

				lease, _ := core.FromContext(notice)
				w.each((*testutil.Node).Down)
				synctest.Wait() // a renewal that was answered before that counts
				time.Sleep(time.Until(lease.ValidUntil()))

				leads, worked, told := e.IsLeader(w.Context()), work.Err(), notice.Err()
				isErr(w.T, "at the end of its validity", leads, leader.ErrNotLeader)
				if worked == nil || told == nil {
					w.Errorf("the work's context: %v; that of OnElected: %v", worked, told)
				}
				isErr(w.T, "the work's end", context.Cause(work), core.ErrLost)
				isErr(w.T, "the end of OnElected's context", context.Cause(notice), core.ErrLost)

				_, _, err = e.Enter(w.Context())
				isErr(w.T, "Enter", err, leader.ErrNotLeader)
				w.each((*testutil.Node).Up)
			})
		})
	}
}
