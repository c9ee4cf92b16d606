package httplock

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"
)

// Requests for a hot key at several replicas are served one right after the other, in the order in which they came.
func TestServedInOrderOverReplicas(t *testing.T) {
	for name, replica := range map[string]func(i int) int{ // of the i-th request
		"in turns":     func(i int) int { return i % 3 },
		"in groups":    func(i int) int { return i / 4 % 3 },
		"each its own": func(i int) int { return i },
	} {
		for _, nodes := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s, %d nodes", name, nodes), func(t *testing.T) {
				bubble(t, nodes, func(w *world) { servedInOrder(w, replica, 24, func() {}) })
			})
		}
	}
}

// 500 clients want one key at five replicas, and a node hangs: they are served in order, one right after the other.
func TestServedInOrderWhileANodeHangs(t *testing.T) {
	bubble(t, 3, func(w *world) {
		servedInOrder(w, func(i int) int { return i % 5 }, 500, w.nodes[2].Hang)
		w.nodes[2].Up()
	})
}

func servedInOrder(w *world, replica func(i int) int, requests int, then func()) {
	const hold = 5 * time.Millisecond
	s := &hotRoute{hold: hold, replicas: map[int]*gin.Engine{}}
	for i := range requests {
		s.start(w, replica(i))
	}
	for _, n := range w.nodes[:max(1, len(w.nodes)-1)] { // the last may hang
		n.Slow(100 * time.Microsecond)
		n.SlowReplies(100 * time.Microsecond)
	}
	then()
	inOrder := make([]int, requests)
	for i := range inOrder {
		inOrder[i] = i
	}
	for range 2 { // at first, nobody listens yet
		s.served = nil
		holder, err := w.locker.Acquire(w.Context(), routeKey("/orders/:id", "1"))
		if err != nil {
			w.Fatal(err)
		}
		var all sync.WaitGroup
		for i := range requests {
			all.Go(func() { call(s.replicas[replica(i)], "PUT", fmt.Sprintf("/orders/1?n=%d", i), "body").ok(w, "") })
			time.Sleep(2 * time.Millisecond)
		}
		synctest.Wait()
		start := time.Now()
		holder.Release(w.Context())
		all.Wait()
		if took, ideal := time.Since(start), time.Duration(requests)*hold; took > ideal*13/10 {
			w.Errorf("%d holds of %v took %v", requests, hold, took)
		}
		if !slices.Equal(s.served, inOrder) {
			w.Errorf("served in the order %v", s.served)
		}
	}
}

// A hotRoute is one on several replicas, whose handler takes its time and notes which request it has served.
type hotRoute struct {
	hold     time.Duration
	replicas map[int]*gin.Engine
	mu       sync.Mutex
	served   []int
}

func (s *hotRoute) start(w *world, replica int) {
	if s.replicas[replica] == nil {
		s.replicas[replica] = router()
		s.replicas[replica].PUT("/orders/:id", middleware(w, w.replica(), ByParam("id"), WithMaxWaiters(500), WithMaxWait(time.Minute)).Lock, s.handle)
	}
}

func (s *hotRoute) handle(c *gin.Context) {
	var n int
	fmt.Sscan(c.Query("n"), &n)
	s.mu.Lock()
	s.served = append(s.served, n)
	s.mu.Unlock()
	time.Sleep(s.hold)
}

// A replica whose clients ask again and again does not keep a hot key from the others, who come in turns.
func TestFairTurnsOverReplicas(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		for run := range 8 {
			t.Run(fmt.Sprintf("%d nodes, run %d", nodes, run), func(t *testing.T) {
				bubble(t, nodes, func(w *world) { fairTurns(w, run) })
			})
		}
	}
}

func fairTurns(w *world, run int) {
	const hold, greedy = 5 * time.Millisecond, 3
	s := &hotRoute{hold: hold, replicas: map[int]*gin.Engine{}}
	s.start(w, 0)
	s.start(w, 1)
	for _, n := range w.nodes {
		n.Slow(100 * time.Microsecond)
		n.SlowReplies(100 * time.Microsecond)
	}
	over := make(chan struct{})
	var loops sync.WaitGroup
	for i := range greedy {
		loops.Go(func() {
			time.Sleep(time.Duration(run*i) * 100 * time.Microsecond)
			for {
				select {
				case <-over:
					return
				default:
					call(s.replicas[0], "PUT", "/orders/1", "body").ok(w, "")
				}
			}
		})
	}
	time.Sleep(50 * time.Millisecond)
	for range 20 {
		start := time.Now()
		call(s.replicas[1], "PUT", "/orders/1", "body").ok(w, "")
		if waited := time.Since(start); waited > 2*(greedy+1)*hold {
			w.Errorf("served after %v, in turns it is %v", waited, (greedy+1)*hold)
		}
	}
	close(over)
	loops.Wait()
}
