package recipes

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/httplock"
	"github.com/lockkit/lockkit/queuelock"
	"github.com/lockkit/lockkit/testutil"
	"github.com/lockkit/lockkit/testutil/locktest"
)

// work is the work of your handler. It must return when its context ends.
func work(ctx context.Context) error {
	select {
	case <-time.After(time.Hour):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// A gin handler that loses its lease stops, and its client gets 503.
func TestGinHandlerLosesItsLease(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	synctest.Test(t, func(t *testing.T) { // in which waiting takes no time
		l := locktest.New(t)
		byID, err := httplock.New(l.Locker, "shop", httplock.ByParam("id"))
		if err != nil {
			t.Fatal(err)
		}
		r := gin.New()
		r.PUT("/orders/:id", byID.Lock, func(c *gin.Context) {
			go l.Lose(c.Request.Context())
			if err := work(c.Request.Context()); !errors.Is(err, core.ErrLost) {
				t.Errorf("the handler went on without its lease: %v", err)
			}
		})
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest(http.MethodPut, "/orders/42", nil))
		if w.Code != http.StatusServiceUnavailable {
			t.Errorf("the client got %d", w.Code)
		}
	})
}

// The handler of a task stops when it loses its lease, and asynq runs the task again.
func TestTaskLosesItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locktest.New(t)
		ql, err := queuelock.New(l.Locker)
		if err != nil {
			t.Fatal(err)
		}
		queue := testutil.NewNodes(t, 1)[0]
		ended := make(chan error, 1)
		server := serve(t, queue, ql, "charge", func(ctx context.Context, _ *asynq.Task) error {
			go l.Lose(ctx)
			err := work(ctx)
			ended <- err
			return err
		})
		client := asynq.NewClientFromRedisClient(dial(queue))
		if _, err := client.EnqueueContext(t.Context(), asynq.NewTask("charge", nil), queuelock.ID("charge", "42")); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := <-ended; !errors.Is(err, core.ErrLost) {
				t.Errorf("the handler went on without its lease: %v", err)
			}
		}
		server.Shutdown()
	})
}
