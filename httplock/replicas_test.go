package httplock

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"
)

// Requests for a hot key at several replicas are served one right after the other, in the order in which they came.
func TestServedInOrderOverReplicas(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		for _, c := range []struct {
			name    string
			replica func(i int) int // of the i-th request
		}{
			{"in turns", func(i int) int { return i % 3 }},
			{"in groups", func(i int) int { return i / 4 % 3 }},
			{"each its own", func(i int) int { return i }},
		} {
			t.Run(fmt.Sprintf("%s, %d nodes", c.name, nodes), func(t *testing.T) {
				bubble(t, nodes, func(w *world) {
					const requests, hold = 24, 5 * time.Millisecond
					var mu sync.Mutex
					var order []int
					replicas := map[int]*gin.Engine{}
					at := func(i int) *gin.Engine {
						if replicas[i] == nil {
							r := router()
							r.PUT("/orders/:id", middleware(w, w.locker(nil), ByParam("id")).Lock, func(c *gin.Context) {
								var n int
								fmt.Sscan(c.Query("n"), &n)
								mu.Lock()
								order = append(order, n)
								mu.Unlock()
								time.Sleep(hold)
							})
							replicas[i] = r
						}
						return replicas[i]
					}
					for i := range requests {
						at(c.replica(i))
					}
					for _, n := range w.nodes {
						n.Slow(100 * time.Microsecond)
						n.SlowReplies(100 * time.Microsecond)
					}
					for range 2 { // at first, nobody listens yet
						order = nil
						holder, err := w.locks.Acquire(w.Context(), byRoute.join("", "/orders/:id", "1"))
						if err != nil {
							w.Fatal(err)
						}
						var all sync.WaitGroup
						for i := range requests {
							all.Go(func() { call(at(c.replica(i)), "PUT", fmt.Sprintf("/orders/1?n=%d", i), "body").ok(w, "") })
							time.Sleep(2 * time.Millisecond)
						}
						synctest.Wait()
						start := time.Now()
						holder.Release(w.Context())
						all.Wait()
						if took, ideal := time.Since(start), requests*hold; took > ideal*13/10 {
							w.Errorf("%d holds of %v took %v", requests, hold, took)
						}
						for i, n := range order {
							if i != n {
								w.Errorf("served in the order %v", order)
								break
							}
						}
					}
				})
			})
		}
	}
}
