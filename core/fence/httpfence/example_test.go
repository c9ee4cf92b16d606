package httpfence_test

import (
	"bytes"
	"context"
	"database/sql"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/fence"
	"github.com/lockkit/lockkit/core/fence/httpfence"
)

var (
	ctx    = context.Background()
	locker *core.Locker
	db     *sql.DB
)

// A client sends the token of its lease. If the service refuses it, the error is that of package fence.
func ExampleSet() {
	ship := func(ctx context.Context, id string) error {
		request, err := http.NewRequestWithContext(ctx, "POST", "http://orders.internal/orders/"+id, bytes.NewBufferString("shipped"))
		if err != nil {
			return err
		}
		if err := httpfence.Set(request); err != nil {
			return err
		}

		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		return httpfence.Refused(response) // in a task of queuelock, a stale token costs no retry
	}

	_ = locker.Do(ctx, core.Key("order", "42"), func(ctx context.Context) error { return ship(ctx, "42") })
}

// A service takes the token, and checks it in the transaction that writes.
func ExampleRequire() {
	store := fence.New(fence.PostgreSQL)
	key := func(r *http.Request) string { return core.Key("order", r.PathValue("id")) }

	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}", httpfence.Require(key, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := store.DoChecked(r.Context(), db, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "UPDATE orders SET state = 'shipped' WHERE id = $1", r.PathValue("id"))
			return err
		})
		if httpfence.Refuse(w, err) {
			return
		}
		if err != nil {
			http.Error(w, "not shipped", http.StatusInternalServerError)
		}
	})))
}

// With gin, a middleware receives the token.
func ExampleReceive() {
	fenced := func(c *gin.Context) {
		ctx, err := httpfence.Receive(c.Request, core.Key("order", c.Param("id")))
		if err != nil {
			if !httpfence.Refuse(c.Writer, err) {
				c.Status(http.StatusInternalServerError)
			}
			c.Abort()
			return
		}
		c.Request = c.Request.WithContext(ctx)
	}

	gin.New().POST("/orders/:id", fenced, func(c *gin.Context) {
		// store.DoChecked(c.Request.Context(), db, …)
	})
}
