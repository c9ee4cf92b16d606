package recipes

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/queuelock"
	"github.com/lockkit/lockkit/testutil"
	"github.com/lockkit/lockkit/testutil/locktest"
)

// A job, a task and a request for the same customer run one after another.
func TestShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locktest.New(t)
		var inside atomic.Int32
		done := make(chan string, 3)
		work := func(_ context.Context, who string) error {
			if inside.Add(1) != 1 {
				t.Errorf("the %s runs beside another", who)
			}
			time.Sleep(time.Second)
			inside.Add(-1)
			done <- who
			return nil
		}
		s, err := NewShared(l.Locker, "7", work)
		if err != nil {
			t.Fatal(err)
		}

		queue := testutil.NewNodes(t, 1)[0]
		server := serve(t, queue, s.Tasks, "letter", func(ctx context.Context, _ *asynq.Task) error { return work(ctx, "task") })
		client := asynq.NewClientFromRedisClient(dial(queue))
		if _, err := client.EnqueueContext(t.Context(), asynq.NewTask("letter", []byte(`{"customer":"7"}`)), queuelock.ID("letter", "1")); err != nil {
			t.Fatal(err)
		}

		go func() { _ = s.Job.RunNow(t.Context()) }()
		go s.Route.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPut, "/customers/7", nil))
		ran := map[string]bool{}
		for range 3 {
			ran[<-done] = true
		}
		if len(ran) < 3 {
			t.Errorf("ran: %v", ran)
		}

		server.Shutdown()
		for _, end := range s.closers {
			if err := end(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}
