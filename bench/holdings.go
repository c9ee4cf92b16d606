package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// holdings are the leases that one holder has of the keys it was to take. Where it failed to, a lease is nil.
type holdings []lease

// leaseKey is the key of a lease by its index.
func leaseKey(i int) string { return "bench:lease:" + strconv.Itoa(i) }

// eachHolder measures each peer that renews, but those left out, one after another on nodes that are new.
func eachHolder(n int, roundTrip time.Duration, measure func(peer, *nodes) error, without ...string) error {
	for _, p := range peersFor(n) {
		if !p.renews || slices.Contains(without, p.name) {
			continue
		}
		if err := onNodes(n, roundTrip, func(on *nodes) error { return measure(p, on) }); err != nil {
			return fmt.Errorf("%s, %s: %w", plural(n, "node"), p.name, err)
		}
	}
	return nil
}

// openHolder opens a peer that renews, on nodes that are new.
func openHolder(ctx context.Context, p peer, on *nodes, c leaseConfig) (holder, error) {
	l, err := p.open(ctx, on.addrs(), c.ttl)
	if err != nil {
		return nil, err
	}
	h, ok := l.(holder)
	if !ok {
		l.close()
		return nil, fmt.Errorf("%s does not renew", p.name)
	}
	return h, nil
}

// take takes all leases, and returns the errors of those that it did not get.
func (hs holdings) take(ctx context.Context, h holder) []error {
	return inParallel(len(hs), func(i int) (err error) {
		hs[i], err = h.hold(ctx, leaseKey(i))
		return err
	})
}

// lost returns why leases ended, of all that did.
func (hs holdings) lost() (why []error) {
	for _, l := range hs {
		if l == nil {
			continue
		}
		if err := l.lost(); err != nil {
			why = append(why, err)
		}
	}
	return why
}

// release releases the leases that are held, and returns the errors of those for which that failed.
func (hs holdings) release(ctx context.Context) []error {
	return inParallel(len(hs), func(i int) error {
		if hs[i] == nil || hs[i].lost() != nil {
			return nil
		}
		return hs[i].release(ctx)
	})
}

// noteSome says so if there were errors, and what some of them were.
func (s *section) noteSome(errs []error, format string, args ...any) {
	if len(errs) > 0 {
		s.notes = append(s.notes, fmt.Sprintf("%s: %d, such as: %v", fmt.Sprintf(format, args...), len(errs), some(errs)))
	}
}
