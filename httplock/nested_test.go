package httplock

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/logbook"
)

// A request with two Locks around its handler is refused, whatever each Lock is for, and even if the outer one does not
// lock the request. The handler does not run, and the log shows how to combine the Locks.
func TestTwoLocksAroundARequest(t *testing.T) {
	bubble(t, 1, func(w *world) {
		log := &logbook.Book{}
		locker := w.replica(core.WithLogger(log.Logger()))
		byID, once := middleware(w, locker, ByParam("id")), middleware(w, locker, WithIdempotency(true, NoSender))
		optional := with(once, WithIdempotency(false, NoSender))
		another := middleware(w, locker, ByKey(func(*http.Request) (string, error) { return "all", nil }))

		forgetful := func(c *gin.Context) { // loses the values of the outer Lock in the context
			c.Request = c.Request.WithContext(w.Context())
			c.Next()
		}

		runs := 0
		ran := func(c *gin.Context) { runs++ }
		r := router()

		group := r.Group("/group", once.Lock)
		group.POST("/orders/:id", byID.Lock, ran)
		group.GET("/orders/:id", byID.Lock, text("read"))

		n := 0
		for _, locks := range [][]gin.HandlerFunc{
			{byID.Lock, byID.Lock}, {byID.Lock, once.Lock}, {once.Lock, byID.Lock}, {optional.Lock, byID.Lock}, {byID.Lock, another.Lock},
			{byID.Lock, forgetful, once.Lock}, {optional.Lock, optional.Lock, byID.Lock},
		} {
			path := fmt.Sprintf("/orders%d/", n)
			n++
			r.POST(path+":id", append(slices.Clone(locks), ran)...)
			for _, key := range []string{"k", "k", "another"} {
				refused := call(r, "POST", path+"1", "", "Idempotency-Key", key)
				refused.expect(w, 500, EventMisconfigured)
			}
		}

		call(r, "POST", "/orders3/1", "").expect(w, 500, EventMisconfigured) // the outer Lock does not lock this request
		call(r, "POST", "/group/orders/1", "", "Idempotency-Key", "k").expect(w, 500, EventMisconfigured)
		call(r, "GET", "/group/orders/1", "").ok(w, "read")
		log.Want(w, 3*n+2, "level=ERROR", "two Locks", "m.With(")
		if runs != 0 {
			w.Errorf("%d runs", runs)
		}

		mux := http.NewServeMux()
		mux.Handle("POST /orders/{id}", byID.LockHandler(once.LockHandler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { runs++ }))))
		call(mux, "POST", "/orders/1", "", "Idempotency-Key", "k").expect(w, 500, EventMisconfigured)
		if runs != 0 {
			w.Errorf("%d runs", runs)
		}

		// One Lock does the work of both.
		r.POST("/one/:id", with(byID, WithIdempotency(true, NoSender)).Lock, func(c *gin.Context) {
			run, _ := FromContext(c.Request.Context())
			lease, _ := core.FromContext(c.Request.Context())
			if run.Identity == "" || run.FencingToken != lease.FencingToken() || lease.Key() != routeKey("/one/:id", "1") {
				w.Errorf("%+v under %q", run, lease.Key())
			}
			c.String(200, "ran")
		})
		call(r, "POST", "/one/1", "", "Idempotency-Key", "k").ok(w, "ran")
	})
}
