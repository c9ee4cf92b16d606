package core

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/internal/race"
)

// waitingFor returns how many requests other than acquisitions wait to be sent to a node.
func (p *process) waitingFor(node int) int {
	return entries(p.e.Buckets[0], "lanes").Index(node).Elem().FieldByName("urgent").Len()
}

// A completion that is repeated waits only once for a hung node, and is recorded when the nodes are back.
func TestRepeatedCompletionsDoNotPileUp(t *testing.T) {
	race.SkipSweep(t)
	bubble(t, 3, func(t *testing.T, w *world) {
		w.connections = 2
		p := w.process(TTL(time.Hour))
		const leases = 5
		var all []*Lease
		for i := range leases {
			all = append(all, w.holds(p, fmt.Sprint("k", i)))
		}

		for _, node := range []int{1, 2} {
			p.links[node].Set(coretest.Fate{Lose: true})
		}

		var completed sync.WaitGroup
		for _, lease := range all {
			completed.Go(func() { succeeds(t, lease.Complete(t.Context(), make([]byte, maxResult))) })
		}

		w.pass(time.Minute)
		for _, node := range []int{1, 2} {
			if n := p.waitingFor(node); n > leases {
				t.Errorf("%d completions of %d leases wait for node %d", n, leases, node)
			}
			p.links[node].Set(coretest.Fate{})
		}
		completed.Wait()
	})
}

// The deadline of a caller limits everything that Once waits for. If the caller only cancels, Once has some seconds
// left.
func TestOnceIsBounded(t *testing.T) {
	type once struct {
		after time.Duration // duration of the work
		ctx   func(context.Context) (context.Context, context.CancelFunc)
		opts  []CallOption
		least time.Duration
		most  time.Duration
	}
	deadline := func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, 5*time.Second)
	}
	cancelled := func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(5*time.Second, cancel)
		return ctx, cancel
	}

	rounds := 2 * time.Second // one round and a pause, beyond any bound
	bubbles(t, 3, map[string]once{
		"deadline":                 {0, deadline, nil, 4 * time.Second, 5*time.Second + rounds},
		"deadline within the work": {8 * time.Second, deadline, nil, 8 * time.Second, 8*time.Second + rounds},
		"cancelled":                {0, cancelled, nil, 5*time.Second + recordAfterCancel - rounds, 5*time.Second + recordAfterCancel + rounds},
		"cancelled within the work": {8 * time.Second, cancelled, nil,
			8*time.Second + recordAfterCancel - rounds, 8*time.Second + recordAfterCancel + rounds},
		"deadline that does not end the work": {8 * time.Second, deadline, []CallOption{Detached(true)},
			8*time.Second + recordAfterCancel - rounds, 8*time.Second + recordAfterCancel + rounds},
		"cancelled, and a short TTL": {0, cancelled, []CallOption{TTL(4 * time.Second)}, 4*time.Second - rounds, 4*time.Second + rounds},
	}, func(t *testing.T, w *world, c once) {
		p, other := w.process(TTL(time.Hour)), w.process(TTL(time.Hour))
		ctx, cancel := c.ctx(t.Context())
		defer cancel()

		start := time.Now()
		err := p.Once(ctx, "k", func(context.Context) error {
			p.refused()
			time.Sleep(c.after)
			return nil
		}, c.opts...)

		wantBetween(t, "Once", time.Since(start), c.least, c.most)
		wantErr(t, err, ErrUnavailable)
		if _, err := other.TryAcquire(t.Context(), "k"); !errors.Is(err, ErrHeld) && !errors.Is(err, ErrUnavailable) {
			t.Errorf("the next caller is told %v", err)
		}
	})
}
