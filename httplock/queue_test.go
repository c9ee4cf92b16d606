package httplock

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"
)

func TestQueueBounds(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"), WithMaxWait(time.Minute), WithMaxWaiters(2))
		m.maxWaitersTotal = 3
		g := newTurnstile()
		r := router()
		r.PUT("/orders/:id", m.Lock, g.handle)
		for range 2 { // nothing is left behind
			queueBounds(w, g, func(path string) func() reply {
				got := background(func() reply { return call(r, "PUT", path, "") })
				synctest.Wait()
				return got
			})
		}
	})
}

func queueBounds(w *world, g *turnstile, put func(path string) func() reply) {
	first := []func() reply{put("/orders/1"), put("/orders/2")} // these run
	if len(g.runs) != 2 {
		w.Fatalf("%d run", len(g.runs))
	}
	waiting := []func() reply{put("/orders/1"), put("/orders/1")}
	put("/orders/1")().expect(w, 429, EventQueueFull)
	waiting = append(waiting, put("/orders/2"))
	put("/orders/2")().expect(w, 503, EventOverloaded)
	put("/orders/3")().expect(w, 503, EventOverloaded)

	for range 5 {
		g.goOn <- struct{}{}
	}
	for _, done := range append(first, waiting...) {
		done().ok(w, "done")
	}
	for len(g.runs) > 0 {
		<-g.runs
	}
}

func TestDrain(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"), WithMaxWait(time.Minute))
		derived := with(w, m, WithMaxWait(time.Hour))
		g := newTurnstile()
		r := router()
		r.PUT("/orders/:id", m.Lock, g.handle)
		r.PUT("/derived/:id", derived.Lock, g.handle)
		holder := background(func() reply { return call(r, "PUT", "/orders/1", "") })
		<-g.runs
		waiter := background(func() reply { return call(r, "PUT", "/orders/1", "") })
		synctest.Wait()

		m.Drain()
		waiter().expect(w, 503, EventDraining)
		before := w.nodes[0].Calls()
		call(r, "PUT", "/orders/2", "").expect(w, 503, EventDraining)
		call(r, "PUT", "/derived/2", "").expect(w, 503, EventDraining)
		if after := w.nodes[0].Calls(); !maps.Equal(before, after) {
			w.Errorf("who is refused still asks the nodes: %v, then %v", before, after)
		}

		short, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		err := m.Close(short)
		if err == nil || !strings.Contains(err.Error(), "1 requests under way") || short.Err() == nil {
			w.Errorf("Close with a handler under way: %v", err)
		}
		closed := background(func() error { return derived.Close(context.Background()) })
		g.goOn <- struct{}{}
		holder().ok(w, "done")
		if err := closed(); err != nil {
			w.Error(err)
		}
		if lease, err := w.locker.TryAcquire(w.Context(), routeKey("/orders/:id", "1")); err != nil {
			w.Errorf("after Close: %v", err)
		} else {
			lease.Release(w.Context())
		}
	})
}

// Of two replicas that ask at once without waiting, one gets the key, also if they split the votes.
func TestReplicasThatDoNotWaitDoNotStarveEachOther(t *testing.T) {
	bubble(t, 4, func(w *world) {
		g := newTurnstile()
		replica := func(far ...int) *gin.Engine {
			var clients []redis.UniversalClient
			for i, n := range w.nodes {
				c := n.ClientWith(func(o *redis.Options) { o.MaxRetries = -1 })
				if slices.Contains(far, i) {
					c.AddHook(delay(10 * time.Microsecond))
				}
				clients = append(clients, c)
			}
			m := middleware(w, lockerOn(w, clients), ByParam("id"), WithMaxWait(0))
			r := router()
			r.PUT("/orders/:id", m.Lock, g.handle)
			return r
		}
		one, other := replica(0, 1), replica(2, 3)
		for i := range 20 {
			path := fmt.Sprintf("/orders/%d", i)
			a := background(func() reply { return call(one, "PUT", path, "") })
			b := background(func() reply { return call(other, "PUT", path, "") })
			time.Sleep(500 * time.Millisecond) // of the bubble: whoever is refused has been
			if n := len(g.runs); n != 1 {
				w.Fatalf("round %d: %d of two run", i, n)
			}
			<-g.runs
			g.goOn <- struct{}{}
			if codes := a().status + b().status; codes != 200+409 {
				w.Errorf("round %d: statuses add up to %d", i, codes)
			}
		}
	})
}

// A delay is how far away a node is.
type delay time.Duration

func (d delay) DialHook(next redis.DialHook) redis.DialHook { return next }
func (d delay) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (d delay) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		time.Sleep(time.Duration(d))
		return next(ctx, cmd)
	}
}

// Requests that wait for nodes which do not answer are bounded, too, those with an Idempotency-Key included.
func TestQueueBoundsWhileNodesHang(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"), WithIdempotency(false), WithMaxWaiters(1))
		r := router()
		r.PUT("/orders/:id", m.Lock, text("done"))
		call(r, "PUT", "/orders/0", "").ok(w, "done")
		w.nodes[0].Hang()
		start := time.Now()
		var all sync.WaitGroup
		var mu sync.Mutex
		kinds := map[string]int{}
		for i := range 100 {
			all.Go(func() {
				got := call(r, "PUT", fmt.Sprint("/orders/", i), "", "Idempotency-Key", fmt.Sprint(i))
				mu.Lock()
				defer mu.Unlock()
				kinds[fmt.Sprint(got.kind(w), time.Since(start) > 0)]++
			})
		}
		all.Wait()
		if kinds["overloadedfalse"] != 100-16 || kinds["unavailabletrue"] != 16 {
			w.Errorf("%v", kinds)
		}
		w.nodes[0].Up()
	})
}
