// Package named gives a lock a name and nothing else: Lock, TryLock and Unlock, for libraries that ask for such an
// interface and have no place for a lease. certmagic's storage, goose's locker and others are a few lines over it; see
// docs/hosts.md.
//
//	locks, err := named.New(locker)
//	…
//	err = locks.Lock(ctx, "issue_cert_example.com") // ctx bounds the wait, and not the hold
//	…
//	err = locks.Unlock(ctx, "issue_cert_example.com")
//
// # Guarantee
//
// A name is a key of package core, and a lock is a lease on it: at most one process holds it, it is renewed while this
// process lives, and it is free a TTL after this process has died. Within this process, a name is locked at most once
// between Lock and Unlock, even if the lock was lost in between. The context of Lock bounds the wait alone: its end does
// not end the lock.
//
// # Non-guarantee
//
// Such an interface cannot tell the holder that the lock was lost. If a quorum of nodes is away for longer than the TTL,
// if the process is suspended, or if an operator revokes the lock, another process may hold the name while the code
// between Lock and Unlock goes on. The loss is logged when it happens (core.WithLogger), and Unlock returns it, which
// may be too late. There is no fencing token, either. If you can choose the interface, use [core.Locker.Do]: its
// function has a context that ends with the lease. The lease of [core.Locker.Acquire] has the token, too.
//
// A lock that is never unlocked is held until the Locker is closed. Locks are not reentrant: a second Lock of a name
// waits, even in the same goroutine.
//
// # Errors
//
// Lock returns the errors of core.Locker.Acquire, and Unlock the errors of core.Lease.Release: above all core.ErrLost, if the
// lock was lost before, and core.ErrUnavailable, if no quorum confirmed the release, which then is repeated in the
// background. If this process has not locked the name, Unlock returns [ErrNotLocked].
package named
