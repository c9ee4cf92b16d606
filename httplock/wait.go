package httplock

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/join"
)

// waitLimit returns how long the request may wait from now on. A quarter of the time that the request's deadline and
// the server's WriteTimeout leave is kept for its handler: a key that comes too late to be used only delays others.
func (rs *requestState) waitLimit() time.Duration {
	limit := rs.m.maxWait
	if deadline, ok := rs.r.Context().Deadline(); ok {
		limit = min(limit, time.Until(deadline)*3/4)
	}

	server, ok := rs.r.Context().Value(http.ServerContextKey).(*http.Server)
	if ok && server.WriteTimeout > 0 {
		limit = min(limit, (server.WriteTimeout-time.Since(rs.arrivedAt))*3/4)
	}
	return limit
}

// remaining returns the time until the deadline, at least a millisecond: the nodes are always asked once.
func remaining(deadline time.Time) time.Duration { return max(time.Until(deadline), time.Millisecond) }

// acquireIdentity acquires the lease of the request's identity, or replays its record. It does not wait for another
// request with the same identity, because a client that repeats a request has given up waiting for the first. It waits
// until a quorum of nodes answers.
func (rs *requestState) acquireIdentity(deadline time.Time) error {
	a := rs.m.admission
	admitted := a.reserve(waiterCount, 1, rs.m.maxWaitersTotal)
	if !admitted {
		return errOverloaded
	}
	defer a.release(waiterCount, 1)

	// TryAcquire takes no MaxWait: the context limits it. With a max wait of 0 the request makes one try, without a
	// limit.
	var limits []context.Context
	if rs.m.maxWait > 0 {
		limit, cancel := context.WithTimeout(context.WithoutCancel(rs.r.Context()), remaining(deadline))
		defer cancel()
		limits = append(limits, limit)
	}
	ctx, stop := rs.waitContext(limits...)
	defer stop()

	var outage error // of the last try that no quorum answered
	for {
		err := rs.acquire(ctx, rs.m.locker.TryAcquire, rs.identity.key)
		op, ok := errors.AsType[*core.OpError](err)
		class := core.ClassOf(err)
		switch {
		case err == nil:
			return nil
		case ok && op.Record != nil:
			return rs.replay(op.Record.Result)
		case class == core.ClassUnavailable:
			outage = err
		case class == core.ClassHeld && outage != nil:
			// The earlier try that no quorum answered may hold the key itself, for a TTL at most.
		default:
			return rejectionFor(err, EventIdempotencyInFlight)
		}
		if rs.m.maxWait == 0 {
			return rejectionFor(outage, EventIdempotencyInFlight)
		}

		ended := pause(ctx, deadline)
		switch {
		case errors.Is(ended, context.DeadlineExceeded):
			return rejectionFor(outage, EventIdempotencyInFlight)
		case ended != nil:
			return rejectionFor(ended, EventIdempotencyInFlight)
		}
	}
}

// pause waits for 75 to 125 ms, but not beyond the deadline. If ctx ends first, pause returns its endError.
func pause(ctx context.Context, deadline time.Time) error {
	d := 75*time.Millisecond + rand.N(50*time.Millisecond)

	select {
	case <-time.After(min(d, remaining(deadline))):
		return nil
	case <-ctx.Done():
		return endError(ctx)
	}
}

// endError returns both the error and the cause of a context that has ended: the cause may hide a deadline.
func endError(ctx context.Context) error { return errors.Join(ctx.Err(), context.Cause(ctx)) }

// acquireResource acquires the lease of the request's resource. The request waits for it in a queue.
func (rs *requestState) acquireResource(key string, deadline time.Time) error {
	a, m := rs.m.admission, rs.m
	admitted := a.reserve(waiterCount, 1, m.maxWaitersTotal)
	if !admitted {
		return errOverloaded
	}
	defer a.release(waiterCount, 1)

	keyWaiters := counter{key: key}
	admitted = a.reserve(keyWaiters, 1, m.maxWaiters)
	if !admitted {
		return &rejection{kind: EventQueueFull}
	}
	defer a.release(keyWaiters, 1)

	acquire := m.locker.Acquire
	if m.maxWait == 0 {
		acquire = m.locker.TryAcquire
	}

	ctx, stop := rs.waitContext()
	defer stop()
	for {
		err := rs.acquire(ctx, acquire, key, core.MaxWait(remaining(deadline)))
		if err == nil {
			return nil
		}

		// Acquire gives up after a TTL without a quorum. The request may wait for longer.
		canRetry := m.maxWait > 0 && core.ClassOf(err) == core.ClassUnavailable && time.Now().Before(deadline)
		if !canRetry {
			return rejectionFor(err, EventBusy)
		}

		ended := pause(ctx, deadline)
		switch {
		case ended != nil:
			return rejectionFor(ended, EventBusy)
		case !time.Now().Before(deadline):
			return rejectionFor(err, EventBusy)
		}
	}
}

// waitContext returns the context of a wait. It ends with the request's context, with a lease that the request has
// already, or a lease or permit around, with the limits, and when the server drains.
func (rs *requestState) waitContext(limits ...context.Context) (ctx context.Context, stop func()) {
	ends := make([]context.Context, 0, 5)
	ends = append(ends, rs.m.admission.drainCtx)
	if len(rs.leases) > 0 { // without a lease, innerCtx is the request's context
		ends = append(ends, rs.r.Context())
	}
	for _, h := range rs.around {
		ends = append(ends, h.Context())
	}
	ends = append(ends, limits...)

	return join.Contexts(rs.innerCtx, ends...)
}

// An acquireFunc is the method Acquire or TryAcquire of a Locker.
type acquireFunc = func(context.Context, string, ...core.CallOption) (*core.Lease, error)

// acquire acquires the lease of a key by f. If ctx has ended the wait, the error matches the cause of ctx.
func (rs *requestState) acquire(ctx context.Context, f acquireFunc, key string, opts ...core.CallOption) error {
	lease, err := f(ctx, key, append(opts, core.Name(rs.route.template))...)
	if err == nil {
		// Added even if ctx has ended, so that it is released.
		rs.leases = append(rs.leases, lease)
		rs.innerCtx = lease.Context()
	}

	isLate := err == nil && ctx.Err() != nil
	if isLate || core.ClassOf(err) == core.ClassCancelled {
		return endError(ctx)
	}
	return err
}
