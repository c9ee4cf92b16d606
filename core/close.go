package core

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"
)

var errUnderWay = errors.New("requests to nodes are still under way: their clients do not heed deadlines")

// Close ends l and every Locker derived from it or that it was derived from. New acquisitions fail with
// ErrClosed at once, those that wait as soon as the round they are in is over. Close waits until all leases are released; when ctx ends first,
// it takes them away (their contexts end with ErrLost, reason closed), frees their keys, and returns the
// cause of ctx. Either way it waits for requests under way: those of a client that does not heed deadlines
// may last as long as its own timeouts, and an ended ctx cuts that short with an error.
func (l *Locker) Close(ctx context.Context) error {
	e := l.e
	e.mu.Lock()
	if !e.closed {
		e.closed = true
		close(e.closing)
		e.hush()
	}
	e.mu.Unlock()

	var err error
	select {
	case <-e.quiet:
	case <-ctx.Done():
		if e.isQuiet() {
			break // nothing was held: there is nothing to complain of
		}
		err = context.Cause(ctx)
		e.mu.Lock()
		left := slices.Collect(maps.Keys(e.leases))
		e.mu.Unlock()
		for _, lease := range left {
			lease.lose(LossClosed)
		}
		<-e.quiet // nothing waits for the network any more: the rest of them sees that the engine is closing
	}
	joined := make(chan struct{})
	go func() {
		e.tasks.Wait()
		close(joined)
	}()
	if e.owned {
		waitFor(joined, nil, l.p.nodeTimeout)
		err = errors.Join(err, e.closeClients()) // breaks what is still under way
		<-joined
		return err
	}
	if !waitFor(joined, ctx.Done(), l.p.nodeTimeout) {
		err = errors.Join(err, errUnderWay)
	}
	return err
}

// closeClients closes the clients, once.
func (e *engine) closeClients() (err error) {
	e.clientsClosed.Do(func() {
		for _, n := range e.nodes {
			err = errors.Join(err, n.client.Close())
		}
	})
	return err
}

// waitFor waits for joined, and once stop is closed (nil = at once) for no longer than grace.
func waitFor(joined, stop <-chan struct{}, grace time.Duration) bool {
	if stop != nil {
		select {
		case <-joined:
			return true
		case <-stop:
		}
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-joined:
		return true
	case <-timer.C:
		return false
	}
}

// begin books a call that may talk to nodes. One that acquires is refused once the engine is closing, any
// other once nothing is left that it could belong to.
func (e *engine) begin(acquires bool) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed && (acquires || e.isQuiet()) {
		return false
	}
	e.active++
	return true
}

// end books the end of a call.
func (e *engine) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.active--
	e.hush()
}

// keep books a lease, unless the engine is closing.
func (e *engine) keep(lease *Lease) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.leases[lease] = struct{}{}
	e.lines.holds(lease)
	return true
}

// retire books that a lease is over.
func (e *engine) retire(l *Lease) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.leases, l)
	e.hush()
}

// spawn runs f on a goroutine that Close waits for, unless Close has stopped waiting for more.
func (e *engine) spawn(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.isQuiet() {
		e.tasks.Go(f)
	}
}

func (e *engine) hush() {
	if e.closed && e.active == 0 && len(e.leases) == 0 && !e.isQuiet() {
		close(e.quiet)
	}
}

func (e *engine) isQuiet() bool   { return isClosed(e.quiet) }
func (e *engine) isClosing() bool { return isClosed(e.closing) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
