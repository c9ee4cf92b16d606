package core

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/internal/logbook"
	"github.com/lockkit/lockkit/testutil"
)

// These tests check how a Locker ends. Each bubble checks by itself that no goroutine is left.

// over returns a context that has ended.
func over() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// closing starts Close and returns the channel of its error.
func closing(l *Locker, ctx context.Context) <-chan error {
	done := make(chan error, 1)
	go func() { done <- l.Close(ctx) }()
	return done
}

func TestCloseWaitsForLeases(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		lease := w.acquire(p, "k")
		done := closing(p.Locker, t.Context())
		time.Sleep(time.Minute)
		select {
		case err := <-done:
			t.Fatalf("Close returned %v with a lease held", err)
		default:
		}
		if err := lease.Context().Err(); err != nil {
			t.Fatalf("not renewed while Close waits: %v", context.Cause(lease.Context()))
		}

		asked := p.counting(wire.OpAcquire)
		_, err := p.Acquire(t.Context(), "other")
		wantErr(t, err, ErrClosed)
		if n := asked.Load(); n > 0 {
			t.Errorf("%d requests for a key that nobody can be given any more", n)
		}

		w.release(lease)
		succeeds(t, testutil.Receive(t, done))
	})
}

func TestCloseTakesLeasesAway(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, other := w.process(), w.process()
		a, b := w.acquire(p, "a"), w.acquire(p, "b")
		errHurry := errors.New("hurry")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 2*time.Second, errHurry)
		defer cancel()

		start := time.Now()
		err := p.Close(ctx)
		wantErr(t, err, errHurry)
		wantInError(t, err, `"a", "b"`)
		wantBetween(t, "Close took", time.Since(start), 2*time.Second, 2*time.Second)

		for _, lease := range []*Lease{a, b} {
			wantReason(t, context.Cause(lease.Context()), LossClosed)
			w.release(w.acquire(other, lease.Key()))
		}
		wantReason(t, a.Release(t.Context()), LossClosed)
		wantErr(t, b.Complete(t.Context(), nil), ErrClosed)
	})
}

// The end of a lease that was released or completed before Close can be repeated after it, without a request.
func TestAfterClose(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		released, completed := w.acquire(p, "released"), w.acquire(p, "completed")
		w.release(released)
		succeeds(t, completed.Complete(t.Context(), nil))
		succeeds(t, p.Close(t.Context()))

		before := w.nodes[0].Calls()["EVALSHA"]
		_, err := p.Acquire(t.Context(), "k")
		wantErr(t, err, ErrClosed)
		_, err = p.TryAcquire(t.Context(), "k")
		wantErr(t, err, ErrClosed)
		fn := func(context.Context) error { return errors.New("fn was called") }
		wantErr(t, p.Do(t.Context(), "k", fn), ErrClosed)
		wantErr(t, p.Once(t.Context(), "k", fn), ErrClosed)

		w.release(released)
		w.release(completed)
		if err := completed.Complete(t.Context(), nil); err != nil {
			t.Errorf("completed before: %v", err)
		}
		if n := w.nodes[0].Calls()["EVALSHA"] - before; n > 0 {
			t.Errorf("%d requests after Close", n)
		}
	})
}

func TestCloseEndsWaiting(t *testing.T) {
	type row struct {
		try     bool
		prepare func(w *world, p *process)
		within  time.Duration
	}
	bubbles(t, 3, map[string]row{
		"in the local queue":           {prepare: func(w *world, p *process) { w.acquire(p, "k") }},
		"between attempts":             {prepare: func(w *world, _ *process) { w.acquire(w.process(), "k") }},
		"on nodes out of reach":        {prepare: func(_ *world, p *process) { p.refused() }, within: coretest.Refusing},
		"on hung nodes":                {prepare: func(_ *world, p *process) { p.cut() }, within: time.Second},
		"on hung nodes, not to wait":   {try: true, prepare: func(_ *world, p *process) { p.cut() }, within: time.Second},
		"granted at the last moment":   {prepare: slowGrant, within: time.Second},
		"and not to wait for anything": {try: true, prepare: slowGrant, within: time.Second},
	}, func(t *testing.T, w *world, c row) {
		p := w.process()
		c.prepare(w, p)

		failed := make(chan error, 1)
		go func() {
			_, err := p.acquire(t.Context(), "k", c.try, nil)
			failed <- err
		}()
		time.Sleep(300 * time.Millisecond)

		start := time.Now()
		done := closing(p.Locker, over())
		wantErr(t, testutil.Receive(t, failed), ErrClosed)
		wantBetween(t, "told after", time.Since(start), 0, c.within)
		testutil.Receive(t, done)
	})
}

func slowGrant(_ *world, p *process) {
	p.set(coretest.Fate{ReplyDelay: 500 * time.Millisecond}, wire.OpAcquire)
}

// An observer is notified of a lease before the caller has it. If the Locker is closed meanwhile, the lease is taken
// away and the caller gets none.
func TestCloseWhileALeaseBegins(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		enter, leave := make(chan struct{}), make(chan struct{})
		p, other := w.process(WithObserver(Observer{Start: func(ctx context.Context, op Op) (context.Context, func(Outcome)) {
			if op.Kind == OpHold {
				close(enter)
				<-leave
			}
			return ctx, nil
		}})), w.process()

		failed := make(chan error, 1)
		go func() {
			_, err := p.TryAcquire(t.Context(), "k")
			failed <- err
		}()
		testutil.Receive(t, enter)

		done := closing(p.Locker, over())
		synctest.Wait()
		close(leave)
		wantErr(t, testutil.Receive(t, failed), ErrClosed)
		wantErr(t, testutil.Receive(t, done), context.Canceled)
		synctest.Wait()
		w.release(w.acquire(other, "k"))
	})
}

func TestCloseAgain(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		lease := w.acquire(p, "k")
		var closers sync.WaitGroup
		for range 5 {
			closers.Go(func() {
				if err := p.Close(t.Context()); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
		}
		synctest.Wait()
		wantErr(t, p.Close(over()), context.Canceled) // the call without patience ends the lease for all calls
		closers.Wait()
		wantReason(t, context.Cause(lease.Context()), LossClosed)
		if err := p.Close(t.Context()); err != nil {
			t.Errorf("again: %v", err)
		}
	})
}

func TestCloseOfADerivedLocker(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		derived, err := p.With(Name("jobs"), TTL(5*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		lease := w.acquire(p, "k")
		done := closing(derived, t.Context())
		synctest.Wait()
		_, err = p.TryAcquire(t.Context(), "other")
		wantErr(t, err, ErrClosed)
		w.release(lease)
		succeeds(t, testutil.Receive(t, done))
		succeeds(t, p.Close(t.Context()))
	})
}

// A stock client returns an error for a hung node only after its own timeouts. Close waits for this, unless its context
// ends.
func TestCloseWithAHungNode(t *testing.T) {
	bubbles(t, 3, map[string]bool{"patient": false, "hurried": true}, func(t *testing.T, w *world, hurried bool) {
		l := must(New(testutil.Clients(w.nodes), quietly))
		succeeds(t, l.Provision(t.Context()))
		p := &process{Locker: l}
		w.release(w.acquire(p, "warm"))
		w.nodes[1].Hang()
		w.release(w.acquire(p, "k"))
		start := time.Now()
		if hurried {
			wantErr(t, l.Close(over()), errRequestsRunning)
			wantBetween(t, "Close took", time.Since(start), 0, l.p.nodeTimeout)
			w.nodes[1].Up()
		}
		if err := l.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
		l.e.Tasks.Close()
		joined := l.e.Tasks.Empty()
		if synctest.Wait(); !isClosed(joined) {
			t.Error("Close returned with requests under way")
		}
	})
}

func TestOpen(t *testing.T) {
	t.Parallel()
	var urls []string
	for _, s := range testutil.NewServers(t, 3) {
		urls = append(urls, "redis://"+s.Addr()+"/1")
	}
	l, err := Open(urls, quietly, unhurried)
	if err != nil {
		t.Fatal(err)
	}

	succeeds(t, l.Provision(t.Context()))
	err = l.Do(t.Context(), "k", func(ctx context.Context) error {
		found := int64(0)
		for _, n := range l.e.Nodes {
			found += n.Client.Exists(ctx, "lockkit:{0}r:k").Val()
		}
		if found < 2 { // the request to the third node may be under way
			t.Errorf("%d nodes have the key in the database that the URL names", found)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	for range 2 {
		if err := l.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	for _, n := range l.e.Nodes {
		wantErr(t, n.Client.Ping(t.Context()).Err(), redis.ErrClosed)
	}
}

// If the clients belong to the Locker, Close does not wait for a hung node.
func TestCloseOfAnOpenedLockerBreaksWhatHangs(t *testing.T) {
	t.Parallel()
	server := testutil.NewServers(t, 1)[0]
	l, err := Open([]string{"redis://" + server.Addr()}, quietly)
	if err != nil {
		t.Fatal(err)
	}
	lease, err := l.Acquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	succeeds(t, server.Pause())
	if err := l.Close(over()); !errors.Is(err, context.Canceled) || errors.Is(err, errRequestsRunning) {
		t.Errorf("Close: %v", err)
	}
	wantReason(t, context.Cause(lease.Context()), LossClosed)
}

func TestOpenNamesAllFaultsButNoPassword(t *testing.T) {
	t.Parallel()
	_, err := Open([]string{
		"http://:hunter2@host:6379",
		"redis://127.0.0.1:6379",
		"redis://user:hunter2@host:6379/notanumber",
		"redis://user:hunter2\x7f@host:6379",
		"redis://user:hunter2@host:port",
		"redis://:hunter2/rest@host:6379", // a password that should have been escaped
		"redis://:1234/hunter2@host:6379",
		"redis://:hunter2%zz@host:6379",
	}, TTL(-1))
	if err == nil {
		t.Fatal("no error")
	}

	for _, want := range []string{"TTL", "nodes 0, 2, 3, 4, 5, 6 and 7: "} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error does not mention %q: %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "node 1") {
		t.Errorf("nothing is wrong with node 1: %v", err)
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("error shows a password: %v", err)
	}
}

// If a lease is not released, Close logs once which leases it waits for, and its error names them, too.
func TestCloseNamesWhatItWaitsFor(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		var log logbook.Book
		p := w.process(WithLogger(log.Logger()), Name("invoices"))
		for i := range 12 {
			w.acquire(p, fmt.Sprintf("key %02d", i))
		}
		done := closing(p.Locker, context.Background())
		time.Sleep(9 * time.Second)
		log.Want(t, 0, "Close")
		time.Sleep(2 * time.Second)
		log.Want(t, 1, "level=WARN", "Close waits", "leases=12", "invoices "+keyHash("key 00"), "invoices "+keyHash("key 09"))
		log.Want(t, 0, keyHash("key 10"))
		time.Sleep(5 * time.Minute)
		log.Want(t, 1, "Close waits")
		log.Want(t, 0, "key 00")

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := p.Close(ctx)
		wantErr(t, err, context.DeadlineExceeded)
		wantInError(t, err, `"key 00", "key 01"`, `"key 09")`, "taken away: 12")
		if err := testutil.Receive(t, done); err != nil {
			t.Errorf("the patient one: %v", err)
		}
	})
}
