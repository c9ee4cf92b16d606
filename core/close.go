package core

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

var errUnderWay = errors.New("requests to nodes are still in progress: the client ignores contexts")

// Close ends l and every Locker derived from it or that it was derived from. New acquisitions fail with
// ErrClosed at once, those that wait as soon as the round they are in is over. Close waits until all leases
// are released, and logs which while it waits: a lease that nobody releases keeps it from returning. So give
// ctx a deadline. When ctx ends first, Close takes the leases away (their contexts end with ErrLost, reason
// closed), frees their keys, and returns an error that matches the cause of ctx and names the keys. Either way
// it waits for requests under way: when ctx has ended, until for the node timeout no node has
// answered any.
func (l *Locker) Close(ctx context.Context) error {
	if err := l.fit(ctx); err != nil {
		return err
	}
	e := l.e
	e.BeginClose()
	e.gate.Close()
	e.waits.Stop()
	e.unheard.hurry()

	var err error
	if !l.drained(ctx) {
		left, calls := e.left()
		err = stillHeld(context.Cause(ctx), left, calls)
		for _, lease := range left {
			lease.lose(LossClosed)
		}
		<-e.gate.Empty() // nothing waits for the network any more: the rest of them sees that the engine is closing
	}
	joined := e.Join()
	if e.hangUp != nil {
		e.WaitFor(joined, nil, l.p.nodeTimeout)
		err = errors.Join(err, e.hangUp()) // breaks what is still under way
	}
	if !e.WaitFor(joined, ctx.Done(), l.p.nodeTimeout) {
		err = errors.Join(err, errUnderWay)
	}
	return err
}

// named is how many leases Close names of those that it waits for.
const named = 10

// drained waits until there are neither leases nor calls, and reports whether that came before the end of ctx.
func (l *Locker) drained(ctx context.Context) bool {
	e := l.e
	timer := time.NewTimer(10 * time.Second)
	defer timer.Stop()
	for {
		select {
		case <-e.gate.Empty():
			return true
		case <-ctx.Done():
			select {
			case <-e.gate.Empty():
				return true
			default:
				return false
			}
		case <-timer.C:
			leases, calls := e.left()
			var held []string
			for _, lease := range leases[:min(len(leases), named)] {
				held = append(held, strings.TrimSpace(lease.p.name+" "+keyHash(lease.lock.Key)))
			}
			l.p.Logger.Warn("lockkit: Close waits for leases that are not released", "leases", len(leases), "calls", calls, "name_and_key_hash", held)
		}
	}
}

// stillHeld is the error of a Close whose time was up.
func stillHeld(cause error, leases []*Lease, calls int) error {
	var keys []string
	for _, lease := range leases[:min(len(leases), named)] {
		keys = append(keys, strconv.Quote(lease.lock.Key))
	}
	return fmt.Errorf("lockkit: close: %w; calls under way: %d; leases not released, which are taken away: %d (%s)", cause, calls, len(leases), strings.Join(keys, ", "))
}
