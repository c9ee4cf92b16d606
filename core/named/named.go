package named

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
)

// ErrNotLocked means that this process has not locked the name, or has unlocked it already. An error that matches it
// also matches core.ErrInvalid, because it is a bug in the caller.
var ErrNotLocked = errors.New("this process has not locked the name")

// Locks are the locks of a process, by name. They are safe for concurrent use: one goroutine may unlock a name that
// another has locked.
type Locks struct {
	l *core.Locker

	// mu guards locked.
	mu     sync.Mutex
	locked map[string]*lock
}

// A lock is the lock on a name, from Lock to Unlock. Its lease may have been lost since.
type lock struct {
	lease    *core.Lease
	unlocked chan struct{} // closed by Unlock
}

// New returns the locks of a Locker, all of which are unlocked. The options of l hold for them: core.TTL says how long
// the lock of a process that died stays taken, core.Name names the locks in metrics and logs, and [core.Locker.With]
// sets them for these locks alone. The error matches core.ErrInvalid.
//
// Make one value for all users of a name in a process: two values do not know of each other's locks, although they
// exclude each other.
func New(l *core.Locker) (*Locks, error) {
	if l == nil {
		return nil, fmt.Errorf("lockkit: named: %w: the Locker is nil", core.ErrInvalid)
	}

	detached, err := l.With(core.Detached(true))
	if err != nil {
		return nil, err
	}
	return &Locks{l: detached, locked: map[string]*lock{}}, nil
}

// Lock locks a name, of 1 to 512 bytes. It waits until the name is free, ctx ends, or no quorum of nodes has been
// reachable for a TTL. The errors are the same as for [core.Locker.Acquire]. ctx governs the wait alone: the lock lasts until
// Unlock, or until it is lost.
//
// If another goroutine of this process has lost the name and has not unlocked it yet, Lock waits for that, too, because
// that goroutine may not know of the loss. core.MaxWait limits the whole wait.
func (locks *Locks) Lock(ctx context.Context, name string) error {
	if !locks.valid() {
		return errNoLocks
	}

	var overdue <-chan time.Time // nil without MaxWait
	limit, began := locks.l.MaxWait(), time.Now()
	left := limit
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		overdue = timer.C
	}

	for {
		lease, err := locks.l.Acquire(ctx, name, core.MaxWait(left))
		if err != nil {
			return err
		}
		lost := locks.add(ctx, name, lease)
		if lost == nil {
			return nil
		}

		// The goroutine that lost the name may still be at work.
		select {
		case <-lost.unlocked:
		case <-overdue:
			return waitEnded(ctx, name)
		case <-ctx.Done():
			return waitEnded(ctx, name)
		case <-locks.l.Closing():
			return &core.OpError{Op: core.OpAcquire, Key: name, Err: core.ErrClosed}
		}

		if limit > 0 {
			left = limit - time.Since(began)
			if left <= 0 { // MaxWait(0) would be no limit
				return waitEnded(ctx, name)
			}
		}
	}
}

// TryLock locks a name if it is free, and reports whether it did. It waits for no holder. If it cannot tell, it
// returns the error of [core.Locker.TryAcquire]. ctx governs the call alone, as in Lock.
func (locks *Locks) TryLock(ctx context.Context, name string) (bool, error) {
	if !locks.valid() {
		return false, errNoLocks
	}

	lease, err := locks.l.TryAcquire(ctx, name)
	switch {
	case core.ClassOf(err) == core.ClassHeld:
		return false, nil
	case err != nil:
		return false, err
	}

	lost := locks.add(ctx, name, lease)
	return lost == nil, nil
}

// Unlock unlocks a name that this process has locked. It works even if ctx has ended, because it uses only the values of
// ctx, and takes at most the node timeout. Even after an error, the name counts as unlocked in this process.
//
// The error matches core.ErrLost if the lock was lost before: others may have held the name since. It matches
// core.ErrUnavailable if no quorum of nodes confirmed the release: the name is free at the latest after the TTL. It
// matches core.ErrInvalid, and nothing has changed, if ctx is nil, or if this process has not locked the name; in the latter
// case it matches ErrNotLocked, too.
func (locks *Locks) Unlock(ctx context.Context, name string) error {
	switch {
	case !locks.valid():
		return errNoLocks
	case ctx == nil: // Release would refuse it when the name is forgotten already
		return errNoContext
	}

	// The name is forgotten before the key is released: the next caller of this process may have the key at once.
	held := locks.remove(name)
	if held == nil {
		return fmt.Errorf("lockkit: unlock %q: %w: %w", name, core.ErrInvalid, ErrNotLocked)
	}
	return held.lease.Release(ctx)
}

// valid reports whether locks was made by New.
func (locks *Locks) valid() bool { return locks != nil && locks.l != nil }

// add records that this process has locked a name. If the lock before was not unlocked, it must have been lost. Then add
// gives the lease back, and returns the lock before.
func (locks *Locks) add(ctx context.Context, name string, lease *core.Lease) (lost *lock) {
	locks.mu.Lock()
	lost = locks.locked[name]
	if lost == nil {
		locks.locked[name] = &lock{lease, make(chan struct{})}
	}
	locks.mu.Unlock()

	if lost != nil {
		_ = lease.Release(ctx) // if it is not confirmed, it is logged and repeated
	}
	return lost
}

// remove forgets the lock on a name, and returns it; nil if there is none.
func (locks *Locks) remove(name string) *lock {
	locks.mu.Lock()
	defer locks.mu.Unlock()

	held := locks.locked[name]
	if held != nil {
		delete(locks.locked, name)
		close(held.unlocked)
	}
	return held
}

// waitEnded returns the error of a call whose context ended, or whose MaxWait passed, while another goroutine of this
// process had the name. It has the form that package core gives to such an error.
func waitEnded(ctx context.Context, name string) error {
	err := &core.OpError{Op: core.OpAcquire, Key: name}
	ended := contextError(ctx)
	isCancelled := errors.Is(ctx.Err(), context.Canceled)
	if isCancelled {
		err.Err = ctx.Err()
		err.Detail = ended
		return err
	}

	err.Err = core.ErrHeld
	err.Held = core.HeldByOther
	err.Ended = ended // nil if MaxWait has passed
	return err
}

// contextError returns the error of ctx and its cause; nil if ctx has not ended.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	class := core.ClassOf(cause)
	isOfCore := class != core.ClassCancelled && class != core.ClassOther
	switch {
	case err == nil:
		return nil
	case isOfCore:
		// The cause may be the error of an operation on another key. The error must not match it.
		return fmt.Errorf("%w: %v", err, cause) //nolint:errorlint // only its text
	case errors.Is(cause, err):
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

var (
	errNoLocks   = fmt.Errorf("lockkit: %w: the Locks were not made by New", core.ErrInvalid)
	errNoContext = fmt.Errorf("lockkit: %w: the context is nil", core.ErrInvalid)
)
