package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
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
func Cooldown(d time.Duration) ReleaseOption { return func(o *releaseOptions) { o.cooldown = d } }

func cooldownOf(opts []ReleaseOption) (time.Duration, error) {
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
	keep, err := cooldownOf(opts)
	if err = cmp.Or(lease.fit(ctx), err); err != nil {
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
	cooldown := lease.cooldownLeft()
	r := lease.releasing(cooldown)
	r.Begin(ctx, to)
	if held && cooldown == 0 && !e.IsClosing() {
		next = e.lines.Next(lease.lock.Resource())
	}
	if next != nil {
		handOver(next, r)
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
	out := Outcome{Reason: reason, Unnoticed: unnoticed, Token: lease.token}
	if observed || reason != "" || !t.Confirmed() {
		out.Nodes = replies(lease.e.Group, t)
	}
	switch {
	case reason != "":
		out.Err = &OpError{Op: OpRelease, Key: lease.lock.Key, Err: ErrLost, Reason: reason, Nodes: out.Nodes}
	case !t.Confirmed():
		lease.p.Logger.Warn("lockkit: release not confirmed, the key may stay taken until its TTL is over", lease.attrs(), "token", lease.token)
		retryAfter := max(lease.p.ttl, lease.freedAfter())
		out.Err = &OpError{Op: OpRelease, Key: lease.lock.Key, Err: ErrUnavailable, RetryAfter: retryAfter, Nodes: out.Nodes}
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

// handOver sends the release, and has the next contender's request leave with it.
func handOver(next *queue.Turn, release *node.Round) {
	defer close(next.Come)
	next.Asked = true
	next.Ask(release)
}

// Complete records the key as done, with result, and releases it, in one step on each node. For as long as
// Retention, acquiring the key fails with ErrDone and the record. The lease's context ends at once.
//
// A nil error means that a quorum holds the record. Nodes that could not be reached get it when somebody asks for
// the key. Nobody is granted the key, and no other record of it can come
// about, as long as so many of the nodes that have the record keep their memory that no quorum is without one:
// of three nodes two, of five three. Complete may also be called after the lease was lost, for an hour less the
// drift: it succeeds only where nobody was granted the key in between. Repeated after somebody else has settled
// this record, it succeeds, too.
//
// While too few nodes answer to tell, Complete repeats itself: until ctx ends, or for a TTL where ctx has no deadline;
// until the Locker is closed; and for no longer than the record can count, an hour. The end of ctx does not cut a round
// short, so a ctx that has ended is good for one. The lease's own context has: it ends as Complete begins.
//
// ErrLost: it was not recorded by this call; what reached a minority of nodes may still be settled by a later
// acquirer, unless somebody else completes first. With reason taken, somebody was granted the key. With reason
// forgotten, so many nodes lost their memory since they last confirmed the lease in time that too few can tell
// whether somebody was. ErrUnavailable: too few nodes answered, so what becomes of the record is open: Complete
// may be repeated (the first result counts); if it is not, the next acquirer either finds it and settles it, or
// is granted the key. ErrReleased: Release was called before. ErrClosed: Close has
// taken the lease away. An error matching ErrInvalid changes nothing: the
// lease goes on.
func (lease *Lease) Complete(ctx context.Context, result []byte) error {
	if err := lease.fit(ctx); err != nil {
		return err
	}
	err := lease.completeOnce(ctx, result)
	if !errors.Is(err, ErrUnavailable) {
		return err
	}
	if _, bounded := ctx.Deadline(); !bounded {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, lease.p.ttl)
		defer stop()
	}
	for errors.Is(err, ErrUnavailable) && lease.e.Pause(ctx, lease.p.retryMax, nil) && !lease.spent() {
		err = lease.completeOnce(ctx, result)
	}
	return err
}

// spent reports whether the counters that would tell of a later holder may be gone.
func (lease *Lease) spent() bool {
	return float64(-lease.left()) > float64(wire.IdleFence)*(1-lease.p.drift)
}

// completeOnce is one round of Complete.
func (lease *Lease) completeOnce(ctx context.Context, result []byte) error {
	if len(result) > maxResult {
		return fmt.Errorf("lockkit: %w: the result has %d bytes, may have at most %d", ErrInvalid, len(result), maxResult)
	}
	held, life := lease.end()
	defer lease.letGo(held, false)
	lease.tellEnd(held)
	switch {
	case life.completed:
		return nil
	case life.released:
		return &OpError{Op: OpComplete, Key: lease.lock.Key, Err: ErrReleased}
	case lease.spent():
		return lease.loss(OpComplete, LossExpired)
	case !lease.e.gate.Join():
		return &OpError{Op: OpComplete, Key: lease.lock.Key, Err: ErrClosed}
	}
	defer lease.e.gate.Leave()
	ctx, end := lease.p.observe(ctx, OpComplete, lease.lock.Key, false, lease.token)
	forIt := context.Background() //nolint:forbidigo // bounded by the node timeout
	nodes, err := lease.offer(ctx, forIt, lease.proposal(result), lease.token)
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

// proposal is the one record that an attempt ever offers: a ballot must not stand for two, so what a first
// call may have left on a node is what every further call repeats.
func (lease *Lease) proposal(result []byte) *wire.Record {
	lease.mu.Lock()
	defer lease.mu.Unlock()
	if lease.proposed == nil {
		lease.proposed = &wire.Record{Rest: lease.p.retention, Token: lease.token, Result: slices.Clone(result)}
	}
	return lease.proposed
}
