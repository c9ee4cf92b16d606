// Package holder is shared by package fence and its subpackages: it names the holder that writes, and words the refusals
// of stores.
package holder

import (
	"context"
	"crypto/sha256"
	"math"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/semaphore"
)

// MaxSilence is how long a token stays valid without a check. After that, a store may forget the key, and it refuses
// older tokens for keys that it does not know.
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

// Innermost returns the innermost holder of ctx: its lease, or a lease that was received with a request and put into ctx
// after its own.
func Innermost(ctx context.Context) (Holder, error) {
	if ctx == nil {
		return Holder{}, ErrNoContext
	}

	lease, isHeld := core.FromContext(ctx)
	received, isReceived := ctx.Value(receivedKey{}).(received)
	_, isPermitted := semaphore.FromContext(ctx)

	switch {
	case isReceived && received.inside == lease:
		return received.Holder, nil
	case isHeld:
		return OfLease(lease), nil
	case isPermitted:
		return Holder{}, errPermit
	}
	return Holder{}, errNoLease
}

// OfLease returns the holder that a lease is.
func OfLease(lease *core.Lease) Holder {
	// A nil lease has no key and no token: Check refuses it.
	return Holder{
		KeyPrefix: lease.KeyPrefix(),
		Key:       lease.Key(),
		Token:     lease.FencingToken(),
		lease:     lease,
	}
}

// OfPermit returns the holder that a permit is. Its key is the key of the slot, because tokens of permits can be compared
// within a slot only.
func OfPermit(permit *semaphore.Permit) Holder {
	return Holder{
		KeyPrefix: permit.KeyPrefix(),
		Key:       permit.SlotKey(),
		Token:     permit.FencingToken(),
	}
}

// Check returns an error if the holder has no token that a store can keep: a signed number of 64 bits.
func (h Holder) Check() error {
	isToken := h.Token > 0 && h.Token <= math.MaxInt64
	if !isToken {
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

// WithReceived returns a context with h as the innermost holder, until a lease is acquired in it.
func WithReceived(ctx context.Context, h Holder) context.Context {
	// A lease that is acquired in this context differs from the lease around it.
	inside, _ := core.FromContext(ctx)
	return context.WithValue(ctx, receivedKey{}, received{h, inside})
}
