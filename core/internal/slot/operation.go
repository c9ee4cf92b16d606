package slot

import "context"

// An Operation is one acquisition of a semaphore, as observers see it. It consists of acquisitions of slots, of which
// observers are not told. A lease is a *core.Lease, which this package cannot name.
type Operation interface {
	// Until returns the context that ends the waits for slots: with the context of the caller, and when MaxWait has
	// passed.
	Until() (context.Context, context.CancelFunc)

	// Acquire acquires the lock with a name, until waitCtx ends. If try is set, it does not wait for a holder. The lease
	// lives in the context of the caller, and does not end with waitCtx. known is false if waitCtx ended before any
	// round of requests was decided: then the error does not say how the slot is.
	Acquire(waitCtx context.Context, name string, try bool) (lease any, known bool, err error)

	// Go runs f on a goroutine that Close waits for. It reports false, and does not run f, if the Locker is closed.
	Go(f func()) bool

	// GiveBack releases a lease that the caller does not get.
	GiveBack(lease any)

	// Conclude ends the operation with a lease or an error, and returns the error for the caller. From then on
	// observers are told of the lease.
	Conclude(lease any, err error) error
}

// Package core sets these variables when it is loaded.
var (
	// Begin checks the arguments of a call, and begins its operation on a *core.Locker, with a []core.CallOption. The
	// error matches core.ErrInvalid, or it is a *core.OpError with core.HeldByCaller.
	Begin func(ctx context.Context, locker any, key string, try bool, options any) (Operation, error)

	// MemoryOf returns the Memory of a *core.Locker, which it shares with the Lockers derived from it; nil if the Locker
	// was not made by core.
	MemoryOf func(locker any) *Memory

	// ReleaseAfter releases a lease when the function that ran under it has returned err. It returns the error of the
	// call, as core.Do does.
	ReleaseAfter func(ctx context.Context, lease any, err error) error
)
