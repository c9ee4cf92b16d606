package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"
)

const heldGoroutines = 128

// held asks for keys that somebody else has.
func held(ctx context.Context, c config) ([]section, error) {
	s := section{
		title: "Trying a held key",
		text: fmt.Sprintf(`%d goroutines ask for keys that another instance of the same peer holds, without waiting for them: TryAcquire, TryLock
and the like. Each asks for a key of its own, so that every call goes to the nodes. Tries per second.`, heldGoroutines),
	}
	t := table{head: []string{"nodes", "peer", "tries/s", "min–max", "to redsync", "p50", "p99", "commands", "client"}, text: 1}
	for _, n := range []int{1, 5} {
		err := onNodes(n, 0, func(on *nodes) error {
			es, err := enter(ctx, peersFor(n), on, heldGoroutines)
			if err != nil {
				return err
			}
			defer leave(es)
			holders, err := enter(ctx, peersFor(n), on, heldGoroutines)
			if err != nil {
				return err
			}
			defer leave(holders)
			for round := range c.rounds + 1 {
				for i := range es {
					at := (round + i) % len(es)
					if err := es[at].measureHeld(ctx, c, on, holders[at], round > 0); err != nil {
						return fmt.Errorf("%s: %w", es[at].name, err)
					}
				}
			}
			for _, r := range results(es) {
				t.add(strconv.Itoa(n), r.cell(), rate(r.rate), spread(r.low, r.high), times(r.ratio),
					short(r.whole.quantile(0.5)), short(r.whole.quantile(0.99)), short(r.servers.commands), short(r.client))
				s.note(r, "%s", plural(n, "node"))
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", plural(n, "node"), err)
		}
	}
	s.add("", &t)
	return []section{s}, nil
}

var errGranted = errors.New("a held key was granted")

// measureHeld has e try what holder holds. The keys are held anew each time, because not all peers renew.
func (e *entrant) measureHeld(ctx context.Context, c config, on *nodes, holder *entrant, counts bool) error {
	locks, errs := holdAll(ctx, holder.locker, heldGoroutines, func(i int) string { return holder.keys[i][0] })
	if errs != nil {
		return some(append(errs, releaseAll(ctx, locks)...))
	}
	err := e.measure(ctx, on, load{
		goroutines: heldGoroutines, waves: waves, warm: c.warm, measure: c.measure,
		call: func(ctx context.Context, worker int) (time.Duration, error) {
			unlock, err := e.locker.tryLock(ctx, e.keys[worker][0])
			switch {
			case errors.Is(err, errHeld):
				return 0, nil
			case err != nil:
				return 0, err
			}
			return 0, errors.Join(errGranted, unlock(ctx))
		},
	}, counts)
	return errors.Join(err, some(releaseAll(ctx, locks)))
}

// Locks are taken and released by so many at once.
const hands = 128

// holdAll takes n locks. Where it failed, a lock is nil.
func holdAll(ctx context.Context, l locker, n int, key func(int) string) (locks []unlock, errs []error) {
	locks = make([]unlock, n)
	errs = inParallel(n, func(i int) (err error) {
		locks[i], err = l.lock(ctx, key(i))
		return err
	})
	return locks, errs
}

// releaseAll releases what holdAll has taken.
func releaseAll(ctx context.Context, locks []unlock) []error {
	return inParallel(len(locks), func(i int) error {
		if locks[i] == nil {
			return nil
		}
		return locks[i](ctx)
	})
}

// some is an error that stands for many.
func some(errs []error) error { return errors.Join(errs[:min(3, len(errs))]...) }

// inParallel does n things and returns the errors there were.
func inParallel(n int, do func(int) error) []error {
	var (
		workers sync.WaitGroup
		mu      sync.Mutex
		errs    []error
	)
	for w := range hands {
		workers.Go(func() {
			for i := w; i < n; i += hands {
				if err := do(i); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	workers.Wait()
	return errs
}
