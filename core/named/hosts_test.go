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

// This file has the code of docs/hosts.md that is not in examples/hosts: adapters for libraries that ask for a lock or a
// middleware. The interfaces and types of those libraries are declared here with the same methods, so that this module
// does not depend on them.

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

// What River asks for: rivertype.WorkerMiddleware.
type riverMiddleware interface {
	IsMiddleware() bool
	Work(ctx context.Context, job *riverJob, doInner func(context.Context) error) error
}

type riverJob struct { // rivertype.JobRow
	ID          int64
	Kind        string
	EncodedArgs []byte
}

type snoozed time.Duration // the error of river.JobSnooze

func (snoozed) Error() string { return "snoozed" }

func riverSnooze(d time.Duration) error { return snoozed(d) }

// An onePerKey runs one job per key at a time. A job whose key is held is snoozed, which costs no attempt.
type onePerKey struct {
	locker *core.Locker
	key    func(job *riverJob) string // such as core.Key("customer", id), with the id in job.EncodedArgs
}

func (onePerKey) IsMiddleware() bool { return true }

func (m onePerKey) Work(ctx context.Context, job *riverJob, doInner func(context.Context) error) error {
	began := false
	err := m.locker.TryDo(ctx, m.key(job), func(ctx context.Context) error {
		began = true
		return doInner(ctx) // ctx ends if the lease is lost
	})
	if !began && (errors.Is(err, core.ErrHeld) || errors.Is(err, core.ErrUnavailable)) {
		return riverSnooze(time.Second)
	}
	return err
}

var _ riverMiddleware = onePerKey{}

// What watermill asks for: message.HandlerMiddleware.
type (
	watermillMiddleware func(h watermillHandler) watermillHandler
	watermillHandler    func(msg *watermillMessage) ([]*watermillMessage, error)
	watermillMessage    struct { // message.Message
		UUID string
		ctx  context.Context
	}
)

func (m *watermillMessage) Context() context.Context       { return m.ctx }
func (m *watermillMessage) SetContext(ctx context.Context) { m.ctx = ctx }

// oncePerMessage runs the handler once for each message: it is recorded after the handler has succeeded.
func oncePerMessage(locker *core.Locker) watermillMiddleware {
	return func(next watermillHandler) watermillHandler {
		return func(msg *watermillMessage) ([]*watermillMessage, error) {
			err := locker.Once(msg.Context(), core.Key("message", msg.UUID), func(ctx context.Context) error {
				msg.SetContext(ctx)
				_, err := next(msg) // a handler without a publisher
				return err
			})
			if errors.Is(err, core.ErrDone) {
				return nil, nil // an earlier delivery has done it: acknowledge
			}
			return nil, err
		}
	}
}

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

// A job whose key is held, or that cannot be locked in an outage, is snoozed before it begins. An error of the job
// itself is its own, even if it matches ErrHeld.
func TestHostRiver(t *testing.T) {
	hosts(t, func(t *testing.T, l *locktest.Locker, ours, theirs *core.Locker) {
		key := func(*riverJob) string { return core.Key("customer", "42") }
		one, other := onePerKey{ours, key}, onePerKey{theirs, key}
		wantSnoozed := func(m onePerKey) {
			t.Helper()
			err := m.Work(t.Context(), &riverJob{}, func(context.Context) error { t.Error("it ran"); return nil })
			if _, ok := errors.AsType[snoozed](err); !ok {
				t.Errorf("%v, want a snooze", err)
			}
		}

		check(t, one.Work(t.Context(), &riverJob{}, func(ctx context.Context) error {
			wantSnoozed(other)
			return ctx.Err()
		}))
		err := other.Work(t.Context(), &riverJob{}, func(context.Context) error { return core.ErrHeld })
		if !errors.Is(err, core.ErrHeld) {
			t.Errorf("%v, want the error of the job", err)
		}
		for _, n := range l.Nodes {
			n.Down()
		}
		wantSnoozed(other)
	})
}

// A message whose handler fails is handled again when it is delivered again, and one that was handled is not.
func TestHostWatermill(t *testing.T) {
	hosts(t, func(t *testing.T, l *locktest.Locker, ours, theirs *core.Locker) {
		calls := 0
		handler := func(msg *watermillMessage) ([]*watermillMessage, error) {
			calls++
			if calls == 1 {
				return nil, errors.New("the database is away")
			}
			return nil, msg.Context().Err()
		}
		deliver := func(locker *core.Locker) error {
			_, err := oncePerMessage(locker)(handler)(&watermillMessage{UUID: "m1", ctx: t.Context()})
			return err
		}
		if err := deliver(ours); err == nil {
			t.Error("the failure was acknowledged")
		}
		check(t, deliver(theirs))
		check(t, deliver(ours))
		if calls != 2 {
			t.Errorf("%d calls", calls)
		}
	})
}
