package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// An amount is how much is measured.
type amount struct{ rounds, pairs, handoffs int } // the latter two in each round, of which the first is not counted

// stays are for how long a waiter has waited when the key is given back: two kinds, and up to half as long on top.
var stays = [...]time.Duration{20 * time.Millisecond, 200 * time.Millisecond}

// A timing is what was measured of a way.
type timing struct {
	pairs    []time.Duration
	handoffs [len(stays)][]time.Duration
}

// measure has the ways take turns, so that what disturbs the machine disturbs all.
func measure(ctx context.Context, backends []backend, much amount) (all []timing, err error) {
	all = make([]timing, len(backends))
	ways := make([][2]way, len(backends)) // as two processes would have them
	for i, b := range backends {
		for k := range ways[i] {
			w, err := b.open(ctx)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", b.title, err)
			}
			defer func() { _ = w.Close(ctx) }() // what is left runs out
			ways[i][k] = w
		}
	}
	for round := range much.rounds {
		for i, b := range backends {
			pairs, err := pairs(ctx, ways[i][0], much.pairs)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", b.title, err)
			}
			if round > 0 {
				all[i].pairs = append(all[i].pairs, pairs...)
			}
			for k, stay := range stays {
				handoffs, err := handoffs(ctx, ways[i], much.handoffs, stay)
				if err != nil {
					return nil, fmt.Errorf("%s: hand-off: %w", b.title, err)
				}
				if round > 0 {
					all[i].handoffs[k] = append(all[i].handoffs[k], handoffs...)
				}
			}
		}
	}
	for _, t := range all {
		slices.Sort(t.pairs)
		for _, h := range t.handoffs {
			slices.Sort(h)
		}
	}
	return all, nil
}

// pairs locks and unlocks a key that nobody else wants, n times.
func pairs(ctx context.Context, w way, n int) (took []time.Duration, err error) {
	for range n {
		began := time.Now()
		if err := w.Do(ctx, "free", func(context.Context, uint64) error { return nil }); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}

// handoffs has one hold a key for which the other waits: from the end of the work of the one to that of the other.
func handoffs(ctx context.Context, two [2]way, n int, stay time.Duration) (took []time.Duration, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for range n {
		holds, end, waited := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		released := make(chan error, 1)
		var ended, began time.Time
		go func() {
			released <- two[0].Do(ctx, "wanted", func(context.Context, uint64) error {
				close(holds)
				<-end
				ended = time.Now()
				return nil
			})
		}()
		select {
		case <-holds:
		case err := <-released:
			return nil, err
		}
		go func() {
			waited <- two[1].Do(ctx, "wanted", func(context.Context, uint64) error {
				began = time.Now()
				return nil
			})
		}()
		time.Sleep(stay + rand.N(stay/2)) // random, so that no poll is met at the same point each time
		close(end)
		if err := errors.Join(<-released, <-waited); err != nil {
			return nil, err
		}
		took = append(took, began.Sub(ended))
	}
	return took, nil
}
