package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockkit/lockkit/internal/callback"
)

// Closing returns a channel that is closed when Close is called. It is for packages that wait for events other than a
// lock and must end with the Locker.
func (l *Locker) Closing() <-chan struct{} {
	if !l.valid() {
		return nil
	}
	return l.e.Closing.Done()
}

var (
	errRequestsRunning = errors.New("requests to nodes are still in progress: the client ignores contexts")
	errCallbackRunning = errors.New("the observer or the logger has not returned")
)

// Close closes l, every Locker derived from it, and the Locker from which it was derived. New acquisitions fail with
// ErrClosed at once. Acquisitions that wait fail as soon as their current round is over. Close waits until all leases
// are released, and logs the leases that are not: a lease that is never released keeps Close from returning. So give
// ctx a deadline.
//
// If ctx ends first, Close ends the leases (their contexts end with ErrLost, reason closed), frees their keys, and
// returns an error that matches the cause of ctx and names the keys. In either case it waits for requests in flight:
// once ctx has ended, until no node has answered any for the node timeout. Close also waits for the observer and the
// logger. If ctx has ended and they do not return, Close returns an error that says so.
func (l *Locker) Close(ctx context.Context) error {
	if err := l.checkCall(ctx); err != nil {
		return err
	}
	e := l.e

	// Background requests and waits end first, and then no further call is admitted: a call that is admitted in
	// between sees that the Locker is closing.
	e.BeginClose()
	e.gate.Close()

	var err error
	idle := l.waitUntilIdle(ctx)
	if !idle {
		err = l.endLeases(ctx)
	}

	// Background tasks are refused only now, because the releases of leases may have needed some.
	e.Tasks.Close()
	joined := e.Tasks.Empty()
	if e.closeOwnClients != nil {
		// Requests get a last node timeout. Closing the clients breaks those that are left.
		e.WaitFor(joined, nil, l.p.nodeTimeout)
		err = errors.Join(err, e.closeOwnClients())
	}

	isDone := e.WaitFor(joined, ctx.Done(), l.p.nodeTimeout)
	switch {
	case isDone:
	case errors.Is(err, errCallbackRunning):
	case e.Callbacks.Busy():
		err = errors.Join(err, errCallbackRunning)
	default:
		err = errors.Join(err, errRequestsRunning)
	}
	return err
}

// endLeases ends the leases that are left when ctx has ended before Close was done, and waits for the other calls. It
// returns the error of Close.
func (l *Locker) endLeases(ctx context.Context) error {
	e := l.e
	left, keys, calls := l.unfinished(func(lease *Lease) string { return strconv.Quote(lease.Key()) })
	err := fmt.Errorf(
		"lockkit: close: %w; calls under way: %d; leases not released, which are taken away: %d (%s)",
		context.Cause(ctx), calls, len(left), strings.Join(keys, ", "),
	)

	// The context of a lease ends before its key is released.
	for _, lease := range left {
		wasHeld := lease.declareLost(LossClosed)
		if wasHeld {
			lease.attempt.releaseAll(context.Background()) //nolint:forbidigo // it outlives its caller
		}
	}

	// The other calls see that the Locker is closing, and soon wait for no node any more. But the observer may keep
	// them.
	returned := e.WaitFor(e.gate.Empty(), nil, 5*max(l.p.nodeTimeout, time.Second))
	if !returned {
		err = errors.Join(err, errCallbackRunning)
	}
	return err
}

// waitUntilIdle waits until there are no leases and no calls, and reports whether this came before the end of ctx. It
// logs the leases that are left once, after ten seconds.
func (l *Locker) waitUntilIdle(ctx context.Context) bool {
	e := l.e
	timer := time.NewTimer(10 * time.Second)
	defer timer.Stop()
	var logs callback.Queue // ctx may end while the logger does not return
	for {
		select {
		case <-e.gate.Empty():
			return true
		case <-ctx.Done():
			return e.gate.Count() == 0
		case <-timer.C:
			leases, names, calls := l.unfinished(nameForLog)
			e.Callbacks.Post(&logs, func() {
				l.p.Logger.Warn(
					"lockkit: Close waits for leases that are not released",
					"leases", len(leases), "calls", calls, "name_and_key_hash", names,
				)
			})
		}
	}
}

// nameForLog returns the name and the key hash of a lease.
func nameForLog(lease *Lease) string {
	return strings.TrimSpace(lease.attempt.p.name + " " + keyHash(lease.Key()))
}

// maxNamed is how many unreleased leases Close names.
const maxNamed = 10

// unfinished returns the leases that are still held, sorted by key, the names of the first maxNamed of them, and the
// number of calls in progress.
func (l *Locker) unfinished(name func(*Lease) string) (leases []*Lease, names []string, calls int) {
	e := l.e
	e.watchdog.mu.Lock()
	defer e.watchdog.mu.Unlock()
	byKey := func(a, b *Lease) int { return strings.Compare(a.Key(), b.Key()) }
	leases = slices.SortedFunc(slices.Values(e.watchdog.leases), byKey)
	for _, lease := range leases[:min(len(leases), maxNamed)] {
		names = append(names, name(lease))
	}
	return leases, names, e.gate.Count() - len(leases)
}
