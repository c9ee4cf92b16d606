package nemesis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/admin"
	"github.com/lockkit/lockkit/core/semaphore"
)

// Locks is a lock under test, in one client process. A method that the lock does not have returns an error that matches
// errors.ErrUnsupported: the workload that needs it then rests.
type Locks interface {
	// Acquire waits for the key until it is granted or wait is over. If wait is 0, it tries once.
	Acquire(ctx context.Context, key string, wait time.Duration) (Lease, error)
	// Once runs fn under the key, unless the key is recorded as done. Nil means that fn has run, and that this is recorded.
	Once(ctx context.Context, key string, fn func(Lease) error) error
	// Revoke ends the lease of the holder of the key. It returns the token of that lease, and for how long the holder may
	// still act on it.
	Revoke(ctx context.Context, key string) (token uint64, remaining time.Duration, err error)
	// Class names the kind of an error, for counting.
	Class(err error) string
	Close(ctx context.Context) error
}

// SetLocks are Locks that also grant several keys at once. A lock need not have it: the workload of sets then rests.
type SetLocks interface {
	Locks

	// AcquireAll waits for all keys until they are granted or wait is over.
	AcquireAll(ctx context.Context, keys []string, wait time.Duration) (Set, error)
}

// A Set is several keys that are held together.
type Set interface {
	Leases() []Lease                   // one for each key; a context ends when any of the keys is no longer held
	Release(ctx context.Context) error // gives all keys back
}

// PermitLocks are Locks that also let several callers hold a key at a time. A lock need not have it: the workload of
// permits then rests.
type PermitLocks interface {
	Locks

	// AcquirePermit waits until fewer than k others hold the key, or wait is over. A holder of Acquire counts as one of them.
	//
	// Key of the lease names the slot that its holder has: one holder has it at a time, and its tokens grow. The slot of a
	// holder of Acquire is named like the key.
	AcquirePermit(ctx context.Context, key string, k int, wait time.Duration) (Lease, error)
}

// A Lease is a key that is held.
type Lease interface {
	Context() context.Context // ends when the key is no longer held
	Key() string
	FencingToken() uint64
	// Release gives the key back, and keeps it taken for a cooldown, if that is not 0.
	Release(ctx context.Context, cooldown time.Duration) error
}

// defaultLock is the lock of this repository.
const defaultLock = "lockkit"

// openers open the locks that can be tested, by name.
var openers = map[string]func(Role) (Locks, error){
	defaultLock: openLockkit,
	"set-nx":    openSetNX,
}

// ttl is the TTL of all leases and the length of a quarantine. It is short, so that much happens.
const ttl = 3 * time.Second

// lockkit is the lock of this repository.
type lockkit struct{ locker *core.Locker }

func openLockkit(r Role) (Locks, error) {
	l, err := core.Open(r.Nodes, core.TTL(ttl), core.WithRestartGuard(r.Guard))
	return lockkit{l}, err
}

func (l lockkit) Acquire(ctx context.Context, key string, wait time.Duration) (Lease, error) {
	if wait == 0 {
		return leaseOf(l.locker.TryAcquire(ctx, key))
	}

	return leaseOf(l.locker.Acquire(ctx, key, core.MaxWait(wait)))
}

func (l lockkit) Once(ctx context.Context, key string, fn func(Lease) error) error {
	return l.locker.Once(ctx, key, func(ctx context.Context) error {
		lease, _ := core.FromContext(ctx)
		return fn(lockkitLease{lease})
	})
}

func (l lockkit) Revoke(ctx context.Context, key string) (uint64, time.Duration, error) {
	state, err := l.locker.Inspect(ctx, key)
	if err != nil {
		return 0, 0, err
	}

	if state.Holder == nil {
		return 0, 0, errNobody
	}

	token := state.Holder.Token
	r, err := admin.Revoke(ctx, l.locker, key, token)
	return token, r.Remaining, err
}

// errNobody means that a key cannot be revoked, since it has no holder.
var errNobody = errors.New("the key has no holder")

func (l lockkit) AcquireAll(ctx context.Context, keys []string, wait time.Duration) (Set, error) {
	set, err := l.locker.AcquireAll(ctx, keys, core.MaxWait(wait))
	if err != nil {
		return nil, err
	}

	return lockkitSet{set, l.locker}, nil
}

func (l lockkit) AcquirePermit(ctx context.Context, key string, k int, wait time.Duration) (Lease, error) {
	s, err := semaphore.New(l.locker, k)
	if err != nil {
		return nil, err
	}

	permit, err := s.Acquire(ctx, key, core.MaxWait(wait))
	if err != nil {
		return nil, err
	}

	return lockkitPermit{permit, key}, nil
}

func (l lockkit) Class(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, errNobody):
		return "nobody"
	case errors.Is(err, admin.ErrTokenMismatch):
		return "mismatch"
	case errors.Is(err, core.ErrReleased):
		return "released"
	}

	return core.ClassOf(err).String()
}

func (l lockkit) Close(ctx context.Context) error { return l.locker.Close(ctx) }

type lockkitLease struct{ *core.Lease }

func leaseOf(l *core.Lease, err error) (Lease, error) {
	if err != nil {
		return nil, err
	}

	return lockkitLease{l}, nil
}

func (l lockkitLease) Release(ctx context.Context, cooldown time.Duration) error {
	if cooldown == 0 {
		return l.Lease.Release(ctx)
	}

	return l.Lease.Release(ctx, core.Cooldown(cooldown))
}

type lockkitSet struct {
	set    *core.Leases
	locker *core.Locker
}

func (s lockkitSet) Leases() (leases []Lease) {
	for _, key := range s.set.Keys() {
		if lease, held := s.locker.Holding(s.set.Context(), key); held {
			leases = append(leases, lockkitSetLease{lockkitLease{lease}, s.set.Context()})
		}
	}

	return leases
}

func (s lockkitSet) Release(ctx context.Context) error { return s.set.Release(ctx) }

// lockkitSetLease is a lease of a set. Its context is the context of the set.
type lockkitSetLease struct {
	lockkitLease
	ctx context.Context
}

func (l lockkitSetLease) Context() context.Context { return l.ctx }

// lockkitPermit is a permit. The key of its lease is its slot.
type lockkitPermit struct {
	*semaphore.Permit
	key string
}

func (p lockkitPermit) Key() string {
	if p.Slot() == 0 {
		return p.key
	}

	return fmt.Sprintf("slot %d of %s", p.Slot(), p.key)
}

func (p lockkitPermit) Release(ctx context.Context, cooldown time.Duration) error {
	return p.Permit.Release(ctx, core.Cooldown(cooldown))
}
