// Package holder has what the stores of package fence and its subpackages share: who writes, and how a store refuses.
package holder

import (
	"context"
	"crypto/sha256"
	"math"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/semaphore"
)

// MaxSilence is how long a token stays valid without a check. What a store remembers of a key may be deleted after
// that, and a token that is older is then refused.
const MaxSilence = 30 * 24 * time.Hour

// CleanAfter is how long after its last check a store may forget a key. It is a day longer than MaxSilence, because
// the clocks of the lock nodes, from which tokens are made, may differ from the store's.
const CleanAfter = MaxSilence + 24*time.Hour

// A Holder is a lease or a permit, as far as a store is concerned.
type Holder struct {
	KeyPrefix, Key string // of the lock; for a permit, of the slot's lock
	Token          uint64

	lease *core.Lease // nil if the lease is not of this process, and for a permit
}

// Innermost returns the innermost holder of ctx: its lease, or the one that was received with a request and put into
// ctx later than that lease.
func Innermost(ctx context.Context) (Holder, error) {
	if ctx == nil {
		return Holder{}, ErrNoContext
	}

	lease, isHeld := core.FromContext(ctx)
	received, isReceived := ctx.Value(receivedKey{}).(received)
	if isReceived && received.inside == lease {
		return received.Holder, nil
	}
	if isHeld {
		return OfLease(lease), nil
	}

	if _, isPermitted := semaphore.FromContext(ctx); isPermitted {
		return Holder{}, errPermit
	}
	return Holder{}, errNoLease
}

// OfLease returns the holder that a lease is.
func OfLease(lease *core.Lease) Holder {
	return Holder{
		KeyPrefix: lease.KeyPrefix(),
		Key:       lease.Key(),
		Token:     lease.FencingToken(),
		lease:     lease,
	}
}

// OfPermit returns the holder that a permit is. Tokens of permits can be compared within a slot only, so its key is
// that of the slot.
func OfPermit(permit *semaphore.Permit) Holder {
	return Holder{
		KeyPrefix: permit.KeyPrefix(),
		Key:       permit.SlotKey(),
		Token:     permit.FencingToken(),
	}
}

// Check returns an error if the holder has no token that a store can keep: a signed number of 64 bits.
func (h Holder) Check() error {
	if h.Token == 0 || h.Token > math.MaxInt64 {
		return Invalid("the lease or permit has no fencing token that fits a signed 64-bit column: " +
			"it was not made by core.Locker.Acquire or semaphore.Semaphore.Acquire")
	}
	return nil
}

// ID returns the id of the lock in a store.
func (h Holder) ID() []byte { return Hash(core.Key(h.KeyPrefix, h.Key)) }

// Hash returns the id of a row. Keys and identities are not stored as texts, because a collation may equate different
// ones, and because they may be secrets.
func Hash(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return sum[:]
}

// HasEnded reports whether the lease is known to be over. A lease of another process is not known.
func (h Holder) HasEnded() bool {
	return h.lease != nil && h.lease.Context().Err() != nil
}

// A received holder has sent a request, which is handled inside of a lease of this process, or of none (nil).
type received struct {
	Holder
	inside *core.Lease
}

type receivedKey struct{}

// WithReceived returns a context whose innermost holder is h, until a lease is acquired in it.
func WithReceived(ctx context.Context, h Holder) context.Context {
	inside, _ := core.FromContext(ctx)
	return context.WithValue(ctx, receivedKey{}, received{h, inside})
}
