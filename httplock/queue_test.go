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

	"github.com/lockkit/lockkit/internal/race"
)

// A request that is refused after Drain sends no request to the nodes. If Close cannot wait long enough, its error has
// the number of requests under way.
func TestDrain(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"), WithMaxWait(time.Minute))
		derived := with(m, WithMaxWait(time.Hour))
		g := newTurnstile()
		r := router()
		r.PUT("/orders/:id", m.Lock, g.handle)
		r.PUT("/derived/:id", derived.Lock, g.handle)

		holder := background(func() reply { return call(r, "PUT", "/orders/1", "") })
		<-g.runs

		m.Drain()
		before := w.nodes[0].Calls()
		call(r, "PUT", "/orders/2", "").expect(w, 503, EventDraining)
		call(r, "PUT", "/derived/2", "").expect(w, 503, EventDraining)
		if after := w.nodes[0].Calls(); !maps.Equal(before, after) {
			w.Errorf("who is refused still asks the nodes: %v, then %v", before, after)
		}

		short, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := derived.Close(short); err == nil || !strings.Contains(err.Error(), "1 requests under way") || short.Err() == nil {
			w.Errorf("Close with a handler under way: %v", err)
		}

		g.goOn <- struct{}{}
		holder().ok(w, "done")
	})
}

// The number of requests that wait for nodes that do not answer is bounded, too, also with an Idempotency-Key.
func TestQueueBoundsWhileNodesHang(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"), WithIdempotency(false, NoSender), WithMaxWaiters(1))
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

// 500 clients ask five replicas for one key while a node hangs. They are served in order, one right after the other.
func TestServedInOrderWhileANodeHangs(t *testing.T) {
	race.SkipSweep(t)
	bubble(t, 3, func(w *world) {
		const requests, hold = 500, 5 * time.Millisecond
		var served []int
		var replicas []*gin.Engine
		for range 5 {
			r := router()
			r.PUT("/orders/:id", middleware(w, w.replica(), ByParam("id"), WithMaxWaiters(requests), WithMaxWait(time.Minute)).Lock, func(c *gin.Context) {
				var n int
				fmt.Sscan(c.Query("n"), &n)
				served = append(served, n) // the lock allows one handler at a time
				time.Sleep(hold)
			})
			replicas = append(replicas, r)
		}

		for _, n := range w.nodes[:2] {
			n.Slow(100 * time.Microsecond)
			n.SlowReplies(100 * time.Microsecond)
		}
		w.nodes[2].Hang()

		for range 2 { // in the first round, the replicas have no subscriptions yet
			served = nil

			holder := must(w.locker.Acquire(w.Context(), routeKey("/orders/:id", "1")))
			var all sync.WaitGroup
			for i := range requests {
				all.Go(func() { call(replicas[i%5], "PUT", fmt.Sprintf("/orders/1?n=%d", i), "body").ok(w, "") })
				time.Sleep(2 * time.Millisecond)
			}

			synctest.Wait()
			start := time.Now()
			holder.Release(w.Context())
			all.Wait()

			if took, ideal := time.Since(start), requests*hold; took > ideal*13/10 {
				w.Errorf("%d holds of %v took %v", requests, hold, took)
			}
			if len(served) != requests || !slices.IsSorted(served) {
				w.Errorf("served in the order %v", served)
			}
		}
		w.nodes[2].Up()
	})
}
