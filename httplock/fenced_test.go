package httplock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/fence"
	"github.com/lockkit/lockkit/core/fence/httpfence"
)

// staleToken is the error of package fence that a greater fencing token was seen.
var staleToken = &core.OpError{Op: core.OpCheck, Key: "k", Err: core.ErrLost, Reason: core.LossStale}

// The work of a request with an Idempotency-Key is its identity. It is the same in each run, whatever the resource's key
// and the body. A request without the header has the work of its caller's context, here none.
func TestWorkOfARequest(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"), WithIdempotency(false, NoSender))
		r := router()
		r.POST("/orders/:id", m.Lock, func(c *gin.Context) {
			work, _ := core.Work(c.Request.Context())
			lease, _ := core.FromContext(c.Request.Context())
			c.String(500, work+" "+lease.Key()) // not recorded, so that a repetition runs
		})

		want := "lockkit:{" + core.Key(onceKey("POST", "/orders/:id", "k", "1")) + "} " + routeKey("/orders/:id", "1")
		for _, body := range []string{"a", "b"} {
			if got := call(r, "POST", "/orders/1", body, "Idempotency-Key", "k"); got.body != want {
				w.Errorf("%q, want %q", got.body, want)
			}
		}
		if got := call(r, "POST", "/orders/1", ""); got.body != " "+routeKey("/orders/:id", "1") {
			w.Errorf("without an Idempotency-Key: %q", got.body)
		}
	})
}

// A handler whose token a store has refused gets the refusal of a lost lease in place of its response. Nothing is
// recorded, so a repetition runs.
func TestStaleTokenIsALoss(t *testing.T) {
	bubble(t, 1, func(w *world) {
		var runs atomic.Int32
		m := middleware(w, w.locker, WithIdempotency(true, NoSender))
		r := http.NewServeMux()
		r.Handle("POST /", m.LockHandler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if runs.Add(1) == 1 && !Lost(r, fmt.Errorf("booking: %w", staleToken)) {
				w.Error("a stale token is no loss")
			}
			io.WriteString(rw, "booked")
		})))
		call(r, "POST", "/", "", "Idempotency-Key", "k").expect(w, 503, EventLost)
		call(r, "POST", "/", "", "Idempotency-Key", "k").ok(w, "booked")
		if n := runs.Load(); n != 2 {
			w.Errorf("%d runs, want 2", n)
		}
	})
}

// Other errors are none of the middleware's business.
func TestLostOfOtherErrors(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"))
		r := http.NewServeMux()
		r.Handle("POST /{id}", m.LockHandler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if Lost(r, nil) || Lost(r, errors.New("other")) || Lost(r, core.ErrDone) {
				w.Error("no loss counts as one")
			}
			io.WriteString(rw, "booked")
		})))
		call(r, "POST", "/1", "").ok(w, "booked")
	})
}

// Where no Lock responds, the handler must: Lost returns false.
func TestLostWithoutALease(t *testing.T) {
	for _, host := range hosts[:2] {
		bubbleOf(t, host.name, 1, func(w *world) {
			optional := middleware(w, w.locker, WithIdempotency(false, NoSender))
			resource := middleware(w, w.locker, ByParam("id"))
			handler := func(rw http.ResponseWriter, r *http.Request) {
				if Lost(r, staleToken) {
					w.Errorf("%s %s: Lost says that the middleware responds", r.Method, r.URL)
				}
				http.Error(rw, "try again", http.StatusInternalServerError)
			}
			for _, got := range []reply{
				call(host.handler(nil, handler), "PUT", "/orders/1", ""),
				call(host.handler(optional, handler), "PUT", "/orders/1", ""),
				call(host.handler(resource, handler), "GET", "/orders/1", ""),
			} {
				if got.status != 500 || got.body != "try again\n" {
					w.Errorf("%+v", got)
				}
			}
		})
	}
}

// The context of a request whose handlers have returned does not make Lost promise a response: a session may have it, or
// a part of the request that goes on.
func TestLostAfterTheHandlers(t *testing.T) {
	for _, host := range hosts[:2] {
		bubbleOf(t, host.name, 1, func(w *world) {
			m := middleware(w, w.locker, ByParam("id"))
			var session context.Context
			login := host.handler(m, func(rw http.ResponseWriter, r *http.Request) {
				session = context.WithoutCancel(r.Context())
				for range 2 {
					if !Lost(r, staleToken) {
						w.Error("nobody responds")
					}
				}
			})
			call(login, "POST", "/orders/1", "").expect(w, 503, EventLost)

			read := host.handler(m, func(rw http.ResponseWriter, r *http.Request) {
				if Lost(r, staleToken) {
					w.Error("Lost says that the middleware responds")
				}
			})
			read.ServeHTTP(httptest.NewRecorder(), newRequest("GET", "/orders/1").WithContext(session))
		})
	}
}

// A handler whose database has done the work of the request in an earlier try writes the stored result as its response.
// It is recorded, so a further repetition is answered without the handler.
func TestWorkIsDoneInTheDatabase(t *testing.T) {
	bubble(t, 1, func(w *world) {
		var runs atomic.Int32
		m := middleware(w, w.locker, WithIdempotency(true, NoSender))
		r := http.NewServeMux()
		r.Handle("POST /", m.LockHandler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			runs.Add(1)
			work, _ := core.Work(r.Context())
			var err error = &core.OpError{ // of Once, in place of the transaction
				Op: core.OpOnce, Key: work, Err: core.ErrDone, Record: &core.Record{Result: []byte("booked")},
			}
			if Lost(r, err) {
				w.Error("work that is done counts as a loss")
			}
			op, _ := errors.AsType[*core.OpError](err)
			rw.Write(op.Record.Result)
		})))
		call(r, "POST", "/", "", "Idempotency-Key", "k").ok(w, "booked")
		call(r, "POST", "/", "", "Idempotency-Key", "k").ok(w, "booked")
		if n := runs.Load(); n != 1 {
			w.Errorf("%d runs, want 1", n)
		}
	})
}

// If the handler refuses the token that another service has sent, nothing is recorded for the Idempotency-Key: the same
// request runs again with a greater token, or with a header that can be used.
func TestRefusedTokenIsNoOutcome(t *testing.T) {
	bubble(t, 1, func(w *world) {
		refusals := []error{httpfence.ErrHeader, fence.ErrStale, fence.ErrTooOld, nil}
		var runs atomic.Int32
		m := middleware(w, w.locker, WithIdempotency(true, NoSender))
		r := http.NewServeMux()
		r.Handle("POST /", m.LockHandler(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			if !httpfence.Refuse(rw, refusals[runs.Add(1)-1]) {
				io.WriteString(rw, "booked")
			}
		})))
		for _, want := range []int{400, 409, 409, 200, 200} {
			if got := call(r, "POST", "/", "", "Idempotency-Key", "k"); got.status != want {
				w.Errorf("%d, want %d", got.status, want)
			}
		}
		if n := runs.Load(); n != 4 {
			w.Errorf("%d runs, want 4", n)
		}
	})
}
