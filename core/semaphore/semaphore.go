package semaphore

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/internal/slot"
	"github.com/lockkit/lockkit/internal/faults"
)

// A Semaphore lets at most k callers hold a key at a time, across all processes that use the same nodes. It is safe for
// concurrent use.
type Semaphore struct {
	l      *core.Locker
	k      int
	memory *slot.Memory // of the slots that this process uses; all semaphores of a Locker share it
}

const (
	// MaxPermits is the largest k.
	MaxPermits = slot.Max

	// MaxKey is the longest key, in bytes. The names of the other slots are longer than the key, and must suit core.
	MaxKey = slot.MaxKey
)

// New returns a Semaphore of k permits for each key, 1 to MaxPermits. l's options are the defaults of its calls. The error
// matches [core.ErrInvalid].
//
// Processes may use different k for a key. At any time, no more hold the key than the largest k of all that hold it or
// ask for it.
func New(l *core.Locker, k int) (*Semaphore, error) {
	var f faults.List
	var memory *slot.Memory
	if l != nil {
		memory = slot.MemoryOf(l)
	}

	f.Check(memory == nil, "the Locker was not made by package core")
	f.Check(k < 1 || k > MaxPermits, "k is %d, must be between 1 and %d", k, MaxPermits)
	if f != nil {
		return nil, fmt.Errorf("lockkit: semaphore: %w: %w", core.ErrInvalid, errors.Join(f...))
	}
	return &Semaphore{l, k, memory}, nil
}

var (
	errNoSemaphore = fmt.Errorf("lockkit: %w: the Semaphore was not made by New", core.ErrInvalid)
	errNoFunction  = fmt.Errorf("lockkit: %w: the function is nil", core.ErrInvalid)
)

// Acquire returns a permit for key. It waits until ctx ends, MaxWait has passed or the Locker is closed. ctx governs both
// the wait and the life of the permit, as in [core.Locker.Acquire], and so do the options.
//
// The error is a [*core.OpError] on key, and matches the same errors as the error of core.Locker.Acquire: ErrHeld if k
// others held the key until MaxWait or the deadline of ctx; ErrUnavailable, ErrClosed, or the error of ctx. It matches
// ErrDone if the key is completed: do not use Once or Complete on the key of a semaphore (see the package
// documentation). If an argument is invalid, the error matches ErrInvalid. If ctx runs under a permit for key or under
// a lease on it, the error matches ErrHeld at once, with HeldByCaller; [core.Reentrant] does not change that. After an
// error, nothing stays taken on nodes that can be reached.
func (s *Semaphore) Acquire(ctx context.Context, key string, opts ...core.CallOption) (*Permit, error) {
	return s.acquire(ctx, key, false, opts)
}

// TryAcquire does not wait, and otherwise does the same as Acquire. It asks for one slot, and if that is taken, for
// more and more others at once. Its error matches ErrHeld only if each of the k slots was taken when it was asked for.
// That may take a round trip for each of 1, 2, 4, 8, 16 and 32 slots, and one for each 32 more.
func (s *Semaphore) TryAcquire(ctx context.Context, key string, opts ...core.CallOption) (*Permit, error) {
	return s.acquire(ctx, key, true, opts)
}

// Do runs fn under a permit for key, which it acquires as Acquire does and releases when fn returns or panics. fn runs on
// the caller's goroutine with the context of the permit, which ends with cause ErrLost when fn must stop acting;
// [FromContext] returns the permit. As for core.Locker.Do, the error is the error of fn or of
// Acquire, and it also matches ErrLost if the permit was lost while fn ran.
func (s *Semaphore) Do(
	ctx context.Context, key string, fn func(ctx context.Context) error, opts ...core.CallOption,
) error {
	return s.do(ctx, key, false, fn, opts)
}

// TryDo does not wait, and otherwise does the same as Do.
func (s *Semaphore) TryDo(
	ctx context.Context, key string, fn func(ctx context.Context) error, opts ...core.CallOption,
) error {
	return s.do(ctx, key, true, fn, opts)
}

// do runs fn as Do does, or as TryDo does if try is set.
func (s *Semaphore) do(
	ctx context.Context, key string, try bool, fn func(context.Context) error, opts []core.CallOption,
) (err error) {
	if fn == nil {
		return errNoFunction
	}

	permit, err := s.acquire(ctx, key, try, opts)
	if err != nil {
		return err
	}

	defer func() { err = permit.releaseAfter(ctx, err) }()
	return fn(permit.Context())
}

// acquire acquires a permit as Acquire does, or as TryAcquire does if try is set.
func (s *Semaphore) acquire(ctx context.Context, key string, try bool, opts []core.CallOption) (*Permit, error) {
	if s == nil || s.l == nil {
		return nil, errNoSemaphore
	}
	if len(key) > MaxKey {
		return nil, fmt.Errorf(
			"lockkit: %w: the key of a semaphore may have %d bytes, so that the names of its slots have at most 512; "+
				"this one has %d", core.ErrInvalid, MaxKey, len(key),
		)
	}

	op, err := slot.Begin(ctx, s.l, key, try, opts)
	if err != nil {
		return nil, err
	}

	granted, err := newSearch(s, op, key).run(try)
	if err != nil {
		return nil, op.Conclude(nil, err)
	}

	// The observer may end the goroutine. Then the lease is released.
	permit := newPermit(s.memory, key, granted)
	isReturned := false
	defer func() {
		if !isReturned {
			permit.leave(false)
		}
	}()

	err = op.Conclude(granted.lease, nil)
	if err != nil {
		return nil, err
	}
	isReturned = true
	return permit, nil
}
