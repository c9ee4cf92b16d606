package core

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/queue"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/internal/faults"
)

// A ReleaseOption is for a single Release.
type ReleaseOption func(*releaseOptions)

type releaseOptions struct{ cooldown time.Duration }

// Cooldown keeps the key taken for d after the release, at most 24h. Acquirers wait, or get ErrHeld with the time left in
// OpError.RetryAfter. The cooldown of the first Release counts: repeating it, in Do as well, neither shortens nor extends
// it. If no quorum confirms the release before the TTL ends, if the lease was lost, or after Complete, there is no
// cooldown. Nodes that lose their memory forget it. The default is 0: the key is free at once.
func Cooldown(d time.Duration) ReleaseOption {
	return func(o *releaseOptions) { o.cooldown = d }
}

func cooldown(opts []ReleaseOption) (time.Duration, error) {
	if len(opts) == 0 {
		return 0, nil
	}
	var o releaseOptions
	var f faults.List
	faults.Set(&f, &o, opts)
	between(&f, "cooldown", o.cooldown, 0, wire.Slack)
	if f != nil {
		return 0, fmt.Errorf("lockkit: release: %w: %w", ErrInvalid, errors.Join(f...))
	}
	return o.cooldown, nil
}

// Release gives the key back, with Cooldown when that is over. The lease's context ends at once, with
// cause ErrReleased. Release works with a cancelled ctx, which only lends its values; it takes at most the node
// timeout and may be repeated. After it, or Complete, has succeeded there is nothing left to do.
//
// A nil error means that a quorum confirmed it. ErrLost: the lease had ended before, so the holder was not
// alone to its end. ErrUnavailable: no quorum confirmed it; the key may stay taken until its TTL is over,
// and Release is still being tried in the background. An error
// matching ErrInvalid changes nothing: the lease goes on. ErrClosed: it was not confirmed before the Locker was closed.
func (lease *Lease) Release(ctx context.Context, opts ...ReleaseOption) error {
	if err := lease.fit(ctx); err != nil {
		return err
	}
	keep, err := cooldown(opts)
	if err != nil {
		return err
	}
	lease.expire()
	held, life := lease.end()
	var next *queue.Turn
	defer func() { lease.letGo(held, next != nil) }()
	lease.tellEnd(held)
	e, over := lease.e, life.freed || life.completed
	switch {
	case life.completed && keep > 0:
		return &OpError{Op: OpRelease, Key: lease.lock.Key, Err: ErrReleased}
	case !over && e.gate.Join():
		defer e.gate.Leave()
	case life.reason != "":
		return lease.loss(OpRelease, life.reason)
	case over:
		return nil
	default:
		return &OpError{Op: OpRelease, Key: lease.lock.Key, Err: ErrClosed}
	}
	ctx, end := lease.p.observe(ctx, OpRelease, lease.lock.Key, false, lease.token)

	to := lease.markReleased(keep)
	stay := lease.stay()
	r := lease.releasing(stay)
	r.Begin(ctx, to)
	if held && stay == 0 && !e.IsClosing() {
		next = e.lines.Next(lease.lock.Resource())
	}
	if next != nil {
		handOn(next, r)
	} else {
		node.Dispatch(r)
	}
	r.Wait(context.Background()) //nolint:forbidigo // a release goes on without its caller, bounded by the node timeout
	out := lease.concludeRelease(&r.Tally, held, end != nil)
	if end != nil {
		end(out)
	}
	return out.Err
}

// concludeRelease says what a release came to, by the answers to it.
func (lease *Lease) concludeRelease(t *quorum.Tally, held, observed bool) Outcome {
	lease.mu.Lock()
	lease.freed = lease.freed || t.Confirmed()
	unnoticed := lease.outvoted(fates[t.Released()].reason) && held
	reason := lease.reason
	lease.mu.Unlock()
	if unnoticed {
		lease.logLoss(reason)
	}
	var failure *OpError
	switch {
	case reason != "":
		failure = lease.loss(OpRelease, reason)
	case !t.Confirmed():
		lease.p.Logger.Warn("lockkit: release not confirmed, the key may stay taken until its TTL is over", lease.attrs(), "token", lease.token)
		failure = &OpError{Op: OpRelease, Key: lease.lock.Key, Err: ErrUnavailable, RetryAfter: max(lease.p.ttl, lease.freedAfter())}
	}
	out := Outcome{Reason: reason, Unnoticed: unnoticed, Token: lease.token}
	if failure != nil || observed {
		out.Nodes = replies(lease.e.Group, t)
	}
	if failure != nil {
		failure.Nodes, out.Err = out.Nodes, failure
	}
	return out
}

// markReleased notes the release, and a cooldown unless there was one before. It returns the nodes to ask.
func (lease *Lease) markReleased(keep time.Duration) quorum.Set {
	lease.mu.Lock()
	defer lease.mu.Unlock()
	if lease.rests() && keep > 0 {
		lease.notBefore.Store(lease.e.Clock.Now().Add(keep))
	}
	return lease.reached
}

// letGo lets the next contender of this process have its turn, unless it has it.
func (lease *Lease) letGo(held, handedOn bool) {
	if held && !handedOn {
		lease.e.lines.Leave(lease.lock.Resource())
	}
	if held {
		lease.e.retire(lease)
	}
}

// Where a process has somebody in line for a key, its release and their request leave in one batch: the key goes from
// hand to hand in one round trip. They obey the queues of the nodes like anybody else. These lines and a
// part of the line pay by 1.3 times the holds per second of a hot key next door, and twice as many over a network.

// handOn sends the release, and has the next contender's request leave with it.
func handOn(next *queue.Turn, release *node.Round) {
	defer close(next.Come)
	next.Asked = true
	next.Ask(release)
}
