package core

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
)

// waitingFor is how many requests that are no acquisitions wait to be sent to a node.
func (p *process) waitingFor(node int) int {
	return entries(p.e.Buckets[0], "lanes").Index(node).Elem().FieldByName("urgent").Len()
}

// What ends leases waits for a node that hangs until the leases have run out there, whatever TTL others use, or used.
func TestEndsPileUpForALeaseOnly(t *testing.T) {
	bubblesNow := map[string]struct {
		opts []Option
		long time.Duration // the TTL of a lease now and then, which stands before the others
	}{
		"":                     {nil, 0},
		"a long max TTL":       {[]Option{WithMaxTTL(24 * time.Hour)}, 0},
		"long leases, and not": {[]Option{WithMaxTTL(24 * time.Hour)}, time.Hour},
	}
	for name, c := range bubblesNow {
		bubbleNamed(t, name, 3, func(t *testing.T, w *world) {
			w.connections = 2
			p := w.process(c.opts...)
			p.links[2].Set(coretest.Fate{Lose: true})
			const callers, seconds = 400, 60
			start := time.Now()
			var all sync.WaitGroup
			for i := range callers {
				all.Go(func() {
					time.Sleep(time.Duration(i) * 10 * time.Millisecond)
					for n := i; time.Since(start) < seconds*time.Second; n++ {
						var opts []CallOption
						if c.long > 0 && n%20 == 0 {
							opts = append(opts, TTL(c.long))
						}
						lease, err := p.Acquire(t.Context(), fmt.Sprint("k", i), opts...)
						if err != nil {
							t.Error(err)
							return
						}
						time.Sleep(4 * time.Second) // one renewal, after which all nodes are told of the end
						lease.Release(context.Background())
					}
				})
			}
			all.Wait()
			synctest.Wait()
			// All leases that ended within a TTL, each told twice, and what waits until the queue is swept.
			most := 2 * (callers / 4 * 2 * 11)
			if n := p.waitingFor(2); n > most {
				t.Errorf("%d requests wait for the node, want at most %d", n, most)
			}
			w.pass(12 * time.Second)
			p.links[2].Set(coretest.Fate{})
		})
	}
}

// A completion that is repeated waits once for a node that hangs, and is recorded when the nodes are back.
func TestRepeatedCompletionsDoNotPileUp(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		w.connections = 2
		p := w.process(TTL(time.Hour))
		const leases = 20
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
		w.pass(5 * time.Minute)
		for _, node := range []int{1, 2} {
			if n := p.waitingFor(node); n > leases {
				t.Errorf("%d completions of %d leases wait for node %d", n, leases, node)
			}
			p.links[node].Set(coretest.Fate{})
		}
		completed.Wait()
	})
}

// The deadline of a caller ends all that Once waits for; a caller that only goes leaves it some seconds.
func TestOnceIsBounded(t *testing.T) {
	type once struct {
		after time.Duration // the work takes
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
		"cancelled":                {0, cancelled, nil, 5*time.Second + recordsBeyondCancel - rounds, 5*time.Second + recordsBeyondCancel + rounds},
		"cancelled within the work": {8 * time.Second, cancelled, nil,
			8*time.Second + recordsBeyondCancel - rounds, 8*time.Second + recordsBeyondCancel + rounds},
		"deadline that does not end the work": {8 * time.Second, deadline, []CallOption{Detached(true)},
			8*time.Second + recordsBeyondCancel - rounds, 8*time.Second + recordsBeyondCancel + rounds},
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
