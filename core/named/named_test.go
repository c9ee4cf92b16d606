package named

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil/locktest"
)

const name = "issue_cert_example.com"

// bubble runs a test in virtual time, with the locks of two processes on three nodes.
func bubble(t *testing.T, test func(t *testing.T, l *locktest.Locker, ours, theirs *Locks), opts ...core.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := locktest.New(t, opts...)
		test(t, l, newLocks(t, l), newLocks(t, l.Replica()))
	})
}

func newLocks(t *testing.T, l *locktest.Locker) *Locks {
	t.Helper()
	locks, err := New(l.Locker)
	succeeds(t, err)
	return locks
}

func succeeds(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Errorf("error %v, want one that matches %v", err, target)
		}
	}
}

// wantTry fails the test unless TryLock reports want.
func wantTry(t *testing.T, locks *Locks, want bool) {
	t.Helper()
	locked, err := locks.TryLock(t.Context(), name)
	succeeds(t, err)
	if locked != want {
		t.Errorf("TryLock reports %t, want %t", locked, want)
	}
}

// lose takes the lock of a process away.
func lose(l *locktest.Locker, locks *Locks) {
	locks.mu.Lock()
	lease := locks.locked[name].lease
	locks.mu.Unlock()
	l.Lose(lease.Context())
}

// A lock excludes other processes, from Lock to Unlock, and not before or after.
func TestLockExcludes(t *testing.T) {
	bubble(t, func(t *testing.T, l *locktest.Locker, ours, theirs *Locks) {
		succeeds(t, ours.Lock(t.Context(), name))
		wantTry(t, theirs, false)
		wantTry(t, ours, false)
		if locked, err := theirs.TryLock(t.Context(), "another"); !locked || err != nil {
			t.Errorf("another name is not free: %v", err)
		}

		time.Sleep(time.Hour) // it is renewed
		wantTry(t, theirs, false)
		succeeds(t, ours.Unlock(t.Context(), name))
		wantTry(t, theirs, true)
		succeeds(t, theirs.Unlock(t.Context(), name))
		succeeds(t, theirs.Unlock(t.Context(), "another"))
	})
}

// Lock waits for another process and for another goroutine of its own.
func TestLockWaits(t *testing.T) {
	bubble(t, func(t *testing.T, l *locktest.Locker, ours, theirs *Locks) {
		var counter, workers sync.Mutex
		var wg sync.WaitGroup
		runs := 0
		for i := range 12 {
			locks := []*Locks{ours, theirs}[i%2]
			wg.Go(func() {
				succeeds(t, locks.Lock(t.Context(), name))
				alone := workers.TryLock()
				if !alone {
					t.Error("two workers at once")
				}
				time.Sleep(time.Second)

				counter.Lock()
				runs++
				counter.Unlock()
				workers.Unlock()
				succeeds(t, locks.Unlock(t.Context(), name))
			})
		}
		wg.Wait()
		if runs != 12 {
			t.Errorf("%d runs, want 12", runs)
		}
	})
}

// The end of Lock's context ends the wait, and not the lock.
func TestContextBoundsTheWaitAlone(t *testing.T) {
	bubble(t, func(t *testing.T, l *locktest.Locker, ours, theirs *Locks) {
		ctx, cancel := context.WithCancel(t.Context())
		succeeds(t, ours.Lock(ctx, name))
		cancel()
		time.Sleep(time.Minute)
		wantTry(t, theirs, false)

		waitCtx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		wantErr(t, theirs.Lock(waitCtx, name), core.ErrHeld, context.DeadlineExceeded)
		wantErr(t, theirs.Lock(ctx, name), context.Canceled)
		succeeds(t, ours.Unlock(ctx, name)) // an ended context does not keep the name locked
		wantTry(t, theirs, true)
		succeeds(t, theirs.Unlock(t.Context(), name))
	})
}

// A lock that was not locked, or was unlocked before, is a bug of the caller, and costs nobody's lock.
func TestUnlockOfWhatIsNotLocked(t *testing.T) {
	bubble(t, func(t *testing.T, l *locktest.Locker, ours, theirs *Locks) {
		wantErr(t, ours.Unlock(t.Context(), name), ErrNotLocked, core.ErrInvalid)
		succeeds(t, theirs.Lock(t.Context(), name))
		wantErr(t, ours.Unlock(t.Context(), name), ErrNotLocked)
		wantTry(t, ours, false)
		succeeds(t, theirs.Unlock(t.Context(), name))
		wantErr(t, theirs.Unlock(t.Context(), name), ErrNotLocked)
	})
}

// A lost lock is logged when it is lost, others can lock the name, and Unlock returns the loss, once.
func TestLostLock(t *testing.T) {
	var log bytes.Buffer
	logger := core.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))
	bubble(t, func(t *testing.T, l *locktest.Locker, ours, theirs *Locks) {
		succeeds(t, ours.Lock(t.Context(), name))
		lose(l, ours)
		synctest.Wait()
		if !strings.Contains(log.String(), "lease lost") {
			t.Errorf("the loss was not logged: %q", log.String())
		}

		succeeds(t, theirs.Lock(t.Context(), name))
		wantErr(t, ours.Unlock(t.Context(), name), core.ErrLost)
		wantErr(t, ours.Unlock(t.Context(), name), ErrNotLocked)
		wantTry(t, ours, false)
		succeeds(t, theirs.Unlock(t.Context(), name))
	}, logger)
}

// As long as a goroutine has not unlocked a lock that was lost, no other goroutine of the process locks the name: Unlock
// could not tell them apart.
func TestLostLockIsNotLockedTwice(t *testing.T) {
	bubble(t, func(t *testing.T, l *locktest.Locker, ours, theirs *Locks) {
		succeeds(t, ours.Lock(t.Context(), name))
		lose(l, ours)

		wantTry(t, ours, false)
		waitCtx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		wantErr(t, ours.Lock(waitCtx, name), core.ErrHeld, context.DeadlineExceeded)
		wantTry(t, theirs, true) // what these two were granted was given back
		succeeds(t, theirs.Unlock(t.Context(), name))

		locked := make(chan error, 1)
		go func() { locked <- ours.Lock(t.Context(), name) }()
		time.Sleep(time.Minute)
		select {
		case err := <-locked:
			t.Errorf("the name was locked twice: %v", err)
		default:
		}
		wantErr(t, ours.Unlock(t.Context(), name), core.ErrLost)
		succeeds(t, <-locked)
		wantTry(t, theirs, false)
		succeeds(t, ours.Unlock(t.Context(), name))
	})
}

// MaxWait limits the whole wait: for another process, and for another goroutine to unlock a lock that was lost.
func TestMaxWaitLimitsTheWholeWait(t *testing.T) {
	const limit = 5 * time.Second
	bubble(t, func(t *testing.T, l *locktest.Locker, ours, theirs *Locks) {
		succeeds(t, ours.Lock(t.Context(), name))
		lose(l, ours)
		wait := func(locks *Locks, want time.Duration) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			began := time.Now()
			err := locks.Lock(ctx, name)
			wantErr(t, err, core.ErrHeld)
			if errors.Is(err, context.DeadlineExceeded) || time.Since(began) != want {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
		}
		wait(ours, limit)

		// What is left of it limits the wait for a process that comes in between.
		time.AfterFunc(time.Second, func() { succeeds(t, theirs.Lock(t.Context(), name)) })
		time.AfterFunc(2*time.Second, func() { wantErr(t, ours.Unlock(t.Context(), name), core.ErrLost) })
		wait(ours, limit)
		succeeds(t, theirs.Unlock(t.Context(), name))
		succeeds(t, ours.Lock(t.Context(), name))
		succeeds(t, ours.Unlock(t.Context(), name))
	}, core.MaxWait(limit))
}

// The end of a wait for another goroutine to unlock a lock that was lost has the form of core's errors, with the cause.
func TestEndOfTheWaitForALostLock(t *testing.T) {
	bubble(t, func(t *testing.T, l *locktest.Locker, ours, theirs *Locks) {
		succeeds(t, ours.Lock(t.Context(), name))
		lose(l, ours)
		enough := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(enough) })
		err := ours.Lock(ctx, name)
		wantErr(t, err, context.Canceled, enough)
		if core.ClassOf(err) != core.ClassCancelled {
			t.Errorf("the class of %v is %v", err, core.ClassOf(err))
		}

		ctx, stop := context.WithTimeoutCause(t.Context(), time.Second, enough)
		defer stop()
		wantErr(t, ours.Lock(ctx, name), core.ErrHeld, context.DeadlineExceeded, enough)

		ctx, cancel = context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(core.ErrLost) }) // of another key
		err = ours.Lock(ctx, name)
		if core.ClassOf(err) != core.ClassCancelled {
			t.Errorf("the class of %v is %v", err, core.ClassOf(err))
		}
		wantErr(t, ours.Unlock(t.Context(), name), core.ErrLost)
	})
}

// Close of the Locker ends locks and waits.
func TestCloseEndsLocks(t *testing.T) {
	bubble(t, func(t *testing.T, l *locktest.Locker, ours, theirs *Locks) {
		replica := l.Replica()
		closing := newLocks(t, replica)
		succeeds(t, closing.Lock(t.Context(), name))
		waiting := make(chan error, 1)
		go func() { waiting <- closing.Lock(context.WithoutCancel(t.Context()), name) }()
		synctest.Wait()

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantErr(t, replica.Close(ctx), context.DeadlineExceeded)
		wantErr(t, <-waiting, core.ErrClosed)
		wantErr(t, closing.Unlock(t.Context(), name), core.ErrLost)
		wantErr(t, closing.Lock(t.Context(), name), core.ErrClosed)
		wantTry(t, theirs, true)
		succeeds(t, theirs.Unlock(t.Context(), name))
	})
}

// A caller that waits for another goroutine to unlock a lost lock learns of Close.
func TestCloseEndsTheWaitForALostLock(t *testing.T) {
	bubble(t, func(t *testing.T, l *locktest.Locker, ours, theirs *Locks) {
		replica := l.Replica()
		closing := newLocks(t, replica)
		succeeds(t, closing.Lock(t.Context(), name))
		lose(l, closing)
		waiting := make(chan error, 1)
		go func() { waiting <- closing.Lock(t.Context(), name) }()
		synctest.Wait()

		succeeds(t, replica.Close(t.Context()))
		wantErr(t, <-waiting, core.ErrClosed)
	})
}

// Bad input is an error, and nothing panics.
func TestBadInput(t *testing.T) {
	_, err := New(nil)
	wantErr(t, err, core.ErrInvalid)
	_, err = New(new(core.Locker))
	wantErr(t, err, core.ErrInvalid)

	for _, locks := range []*Locks{nil, {}} {
		wantErr(t, locks.Lock(t.Context(), name), core.ErrInvalid)
		_, err := locks.TryLock(t.Context(), name)
		wantErr(t, err, core.ErrInvalid)
		wantErr(t, locks.Unlock(t.Context(), name), core.ErrInvalid)
	}
	bubble(t, func(t *testing.T, l *locktest.Locker, ours, theirs *Locks) {
		wantErr(t, ours.Lock(t.Context(), ""), core.ErrInvalid)
		wantErr(t, ours.Lock(t.Context(), strings.Repeat("n", 513)), core.ErrInvalid)
		_, err := ours.TryLock(t.Context(), "")
		wantErr(t, err, core.ErrInvalid)
	})
}

// A nil context is refused, and changes nothing: what is locked can still be unlocked.
func TestNilContext(t *testing.T) {
	bubble(t, func(t *testing.T, l *locktest.Locker, ours, theirs *Locks) {
		var none context.Context
		wantErr(t, ours.Lock(none, name), core.ErrInvalid)
		_, err := ours.TryLock(none, name)
		wantErr(t, err, core.ErrInvalid)

		succeeds(t, ours.Lock(t.Context(), name))
		wantErr(t, ours.Unlock(none, name), core.ErrInvalid)
		wantTry(t, theirs, false)
		succeeds(t, ours.Unlock(t.Context(), name))
		wantTry(t, theirs, true)
		succeeds(t, theirs.Unlock(t.Context(), name))
	})
}

// Without a quorum of nodes, TryLock returns an error: it cannot tell.
func TestTryLockWithoutNodes(t *testing.T) {
	bubble(t, func(t *testing.T, l *locktest.Locker, ours, theirs *Locks) {
		for _, node := range l.Nodes[:2] {
			node.Down()
		}
		locked, err := ours.TryLock(t.Context(), name)
		wantErr(t, err, core.ErrUnavailable)
		if locked {
			t.Error("locked without a quorum")
		}
	})
}
