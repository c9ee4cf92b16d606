package recipes

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/lockkit/lockkit/queuelock"
	"github.com/lockkit/lockkit/testutil"
	"github.com/lockkit/lockkit/testutil/locktest"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis prints each failed dial
	m.Run()
}

// customers is a Store.
type customers struct {
	mu      sync.Mutex
	applied map[string][]int
	calls   int
	last    sync.WaitGroup
}

func (s *customers) Apply(_ context.Context, c Change) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if len(s.applied[c.Customer]) == c.Seq-1 {
		s.applied[c.Customer] = append(s.applied[c.Customer], c.Seq)
		s.last.Done()
	}
	return len(s.applied[c.Customer]), nil
}

// The changes of each customer are applied in order on two servers, although they are enqueued in the opposite order.
func TestInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const each = 12
		store := &customers{applied: map[string][]int{}}
		queue := testutil.NewNodes(t, 1)[0]
		client := asynq.NewClientFromRedisClient(dial(queue))
		for seq := each; seq > 0; seq-- {
			for _, customer := range []string{"ann", "bob"} {
				store.last.Add(1)
				payload, err := json.Marshal(Change{customer, seq})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := client.EnqueueContext(t.Context(), asynq.NewTask("change", payload), queuelock.ID("change", customer, fmt.Sprint(seq))); err != nil {
					t.Fatal(err)
				}
			}
		}

		locks := locktest.New(t)
		var servers []*asynq.Server
		for range 2 {
			ql, err := queuelock.New(locks.Replica().Locker, queuelock.WithKey(queuelock.ByPayloadField("customer")))
			if err != nil {
				t.Fatal(err)
			}
			servers = append(servers, serve(t, queue, ql, "change", InOrder(store)))
		}

		began := time.Now()
		store.last.Wait()
		for _, customer := range []string{"ann", "bob"} {
			if got := store.applied[customer]; len(got) != each || !slices.IsSorted(got) {
				t.Errorf("%s: %v", customer, got)
			}
		}
		t.Logf("%d calls for %d changes, in %v", store.calls, 2*each, time.Since(began))
		for _, server := range servers {
			server.Shutdown()
		}
	})
}

func dial(queue *testutil.Node) *redis.Client {
	return queue.ClientWith(func(o *redis.Options) { o.PoolSize = 100 })
}

// serve starts an asynq server that runs h under the middleware.
func serve(t *testing.T, queue *testutil.Node, ql *queuelock.Middleware, kind string, h asynq.HandlerFunc) *asynq.Server {
	t.Helper()
	cfg := asynq.Config{Concurrency: 8, LogLevel: asynq.FatalLevel}
	if err := ql.Configure(&cfg); err != nil {
		t.Fatal(err)
	}
	mux := asynq.NewServeMux()
	mux.Use(ql.Middleware)
	mux.HandleFunc(kind, h)
	server := asynq.NewServerFromRedisClient(dial(queue), cfg)
	if err := server.Start(mux); err != nil {
		t.Fatal(err)
	}
	return server
}
