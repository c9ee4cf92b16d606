package core

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Complete records the key as done, with result, and releases it, in one step on each node. For as long as
// Retention, acquiring the key fails with ErrDone and the record. The lease's context ends at once.
//
// A nil error means that a quorum holds the record. The other nodes are offered it in the background, for a max
// TTL, and again when somebody asks for the key. Nobody is granted the key, and no other record of it can come
// about, as long as so many of the nodes that have the record keep their memory that no quorum is without one:
// of three nodes two, of five three. Complete may also be called after the lease was lost, for an hour less the
// drift: it succeeds only where nobody was granted the key in between. Repeated after somebody else has settled
// this record, it succeeds, too.
//
// ErrLost: it was not recorded by this call; what reached a minority of nodes may still be settled by a later
// acquirer, unless somebody else completes first. With reason taken, somebody was granted the key. With reason
// forgotten, so many nodes lost their memory since they last confirmed the lease in time that too few can tell
// whether somebody was. ErrUnavailable: too few nodes answered, so what becomes of the record is open: Complete
// may be repeated (the first result counts); if it is not, the next acquirer either finds it and settles it, or
// is granted the key. ErrReleased: Release was called before. ErrClosed: Close has
// taken the lease away. An error matching ErrResultTooLarge changes nothing: the
// lease goes on.
//
// ctx lends its values, and its end ends what RetryFor asks for; it does not cut a round short.
func (lease *Lease) Complete(ctx context.Context, result []byte, opts ...CompleteOption) error {
	if err := lease.fit(ctx); err != nil {
		return err
	}
	var c completion
	for _, o := range opts {
		if o == nil {
			return fmt.Errorf("lockkit: complete: %w: an option is nil", ErrInvalid)
		}
		o(&c)
	}
	if c.retryFor <= 0 || !lease.engine.begin(false) {
		return lease.completeOnce(ctx, result)
	}
	defer lease.engine.end() // so that Close leaves time for the last try
	deadline := time.NewTimer(c.retryFor)
	defer deadline.Stop()
	for last := ctx.Err() != nil; ; {
		err := lease.completeOnce(ctx, result)
		if last || !errors.Is(err, ErrUnavailable) {
			return err
		}
		pause := time.NewTimer(lease.p.retryMax)
		select {
		case <-pause.C:
		case <-deadline.C:
			last = true
		case <-ctx.Done():
			last = true
		case <-lease.e.closing:
			last = true
		}
		pause.Stop()
	}
}

// A CompleteOption is for one call of Complete.
type CompleteOption func(*completion)

type completion struct {
	retryFor time.Duration
}

// RetryFor has Complete repeat itself for about d while its outcome is open, because too few nodes answer; work that is
// done is worth more than the caller's time. It tries a last time when d has passed, when ctx ends, or when the Locker is
// closed. Default 0: one round.
func RetryFor(d time.Duration) CompleteOption { return func(c *completion) { c.retryFor = d } }

// completeOnce is one round of Complete.
func (lease *Lease) completeOnce(ctx context.Context, result []byte) error {
	p := lease.p
	if len(result) > maxResult {
		return fmt.Errorf("lockkit: %w: %d bytes, the limit is %d", ErrResultTooLarge, len(result), maxResult)
	}
	was := lease.end()
	defer lease.letGo(was, false)
	lease.tellEnd(was)
	e := lease.engine
	lease.mu.Lock()
	released, completed := lease.released, lease.completed
	lease.mu.Unlock()
	switch {
	case completed:
		return nil
	case released:
		return &OpError{Op: OpComplete, Key: lease.key, Err: ErrReleased}
	case float64(-lease.left()) > float64(idleFence)*(1-p.drift): // the counters that would tell of a later holder may be gone
		return &OpError{Op: OpComplete, Key: lease.key, Err: ErrLost, Reason: LossExpired}
	}
	if !e.begin(false) {
		return &OpError{Op: OpComplete, Key: lease.key, Err: ErrClosed}
	}
	defer e.end()
	ctx, end := p.observe(ctx, OpComplete, lease.key, false, lease.token)
	forIt := context.Background() //nolint:forbidigo // bounded by the node timeout
	nodes, err := lease.propose(ctx, forIt, lease.proposal(result), lease.token, end != nil)
	if err == nil {
		lease.mu.Lock()
		lease.completed = true
		lease.mu.Unlock()
	}
	if end != nil {
		end(Outcome{Err: err, Token: lease.token, Nodes: nodes})
	}
	return err
}
