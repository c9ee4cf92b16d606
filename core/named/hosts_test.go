package named_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/named"
	"github.com/lockkit/lockkit/testutil/locktest"
)

// This file has the code of docs/hosts.md that is not in examples/hosts. The interface of the library is declared here
// with the same methods, so that this module does not depend on it.

// What fiber's middleware idempotency asks for: idempotency.Locker.
type fiberLocker interface {
	Lock(key string) error
	Unlock(key string) error
}

// An idempotencyLock lets one request with an Idempotency-Key run at a time.
type idempotencyLock struct{ locks *named.Locks }

func (l idempotencyLock) Lock(key string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second) // the interface has no context
	defer cancel()
	return l.locks.Lock(ctx, core.Key("idempotency", key))
}

func (l idempotencyLock) Unlock(key string) error {
	return l.locks.Unlock(context.Background(), core.Key("idempotency", key))
}

var _ fiberLocker = idempotencyLock{}

// hosts runs a test in virtual time, with the Lockers of two processes.
func hosts(t *testing.T, test func(t *testing.T, l *locktest.Locker, ours, theirs *core.Locker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := locktest.New(t)
		test(t, l, l.Locker, l.Replica().Locker)
	})
}

// locksOf returns the named locks of a process.
func locksOf(t *testing.T, locker *core.Locker) *named.Locks {
	t.Helper()
	locks, err := named.New(locker)
	if err != nil {
		t.Fatal(err)
	}
	return locks
}

// check fails the test on an error.
func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A second request with the same Idempotency-Key waits for the first one for five seconds, and not longer.
func TestHostFiber(t *testing.T) {
	hosts(t, func(t *testing.T, l *locktest.Locker, ours, theirs *core.Locker) {
		one, other := idempotencyLock{locksOf(t, ours)}, idempotencyLock{locksOf(t, theirs)}
		check(t, one.Lock("5f3e"))
		began := time.Now()
		if err := other.Lock("5f3e"); !errors.Is(err, core.ErrHeld) || time.Since(began) > 6*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		check(t, one.Unlock("5f3e"))
		check(t, other.Lock("5f3e"))
		check(t, other.Unlock("5f3e"))
	})
}
