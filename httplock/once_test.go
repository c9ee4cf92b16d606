package httplock

import (
	"crypto/sha256"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
)

// Lock knows nothing of Idempotency-Keys: it runs a request as often as it is sent, one at a time.
func TestLockWithoutOnce(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"), WithMaxWait(0), WithIdempotencyKeyRequired(true))
		g := newTurnstile()
		r := router()
		r.POST("/orders/:id", m.Lock, func(c *gin.Context) {
			if e, ok := FromContext(c.Request.Context()); ok {
				w.Errorf("an execution of Once: %+v", e)
			}
			g.handle(c)
		})
		for range 2 {
			running := background(func() reply { return call(r, "POST", "/orders/1", "", "Idempotency-Key", "k") })
			synctest.Wait()
			if n := len(g.runs); n != 1 {
				w.Fatalf("%d run", n)
			}
			<-g.runs
			call(r, "POST", "/orders/1", "", "Idempotency-Key", "k").expect(w, 409, EventBusy)
			g.goOn <- struct{}{}
			running().ok(w, "done")
		}
		g.goOn <- struct{}{}
		call(r, "POST", "/orders/1", "").ok(w, "done") // none is required
	})
}

// Once knows nothing of resources: requests for one, each with its own Idempotency-Key, run beside each other.
func TestOnceWithoutLock(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"), WithMaxWait(0))
		g := newTurnstile()
		r := router()
		r.POST("/orders/:id", m.Once, g.handle)
		pay := func(key string) reply { return call(r, "POST", "/orders/1", "", "Idempotency-Key", key) }
		both := []func() reply{background(func() reply { return pay("a") }), background(func() reply { return pay("b") })}
		synctest.Wait()
		if n := len(g.runs); n != 2 {
			w.Errorf("%d run", n)
		}
		if lease, err := w.locker.TryAcquire(w.Context(), routeKey("/orders/:id", "1")); err != nil {
			w.Errorf("the resource: %v", err)
		} else {
			lease.Release(w.Context())
		}
		for range both {
			g.goOn <- struct{}{}
		}
		for _, answer := range both {
			answer().ok(w, "done")
		}
		if got := pay("a"); got.header.Get("Idempotent-Replayed") != "true" {
			w.Errorf("%+v", got)
		}
	})
}

// A record tells by a hash alone who has sent the first request.
func TestRecordsHaveNoCredentials(t *testing.T) {
	bubble(t, 1, func(w *world) {
		s := &shop{status: 201}
		r, _ := s.replica(w, w.locker)
		pay(r, "k", "Authorization", "Bearer hunter2", "Cookie", "session=hunter2", "X-Api-Key", "hunter2")
		_, err := w.locker.TryAcquire(w.Context(), core.Key(idempotent, service, "", "POST", "/orders/:id/payments", "k"))
		op, ok := errors.AsType[*core.OpError](err)
		if !ok || op.Record == nil {
			w.Fatalf("no record: %v", err)
		}
		o, err := parseOutcome(op.Record.Result)
		if err != nil || len(o.Fingerprint) != sha256.Size || strings.Contains(string(op.Record.Result)+string(o.Fingerprint), "hunter2") {
			w.Errorf("%q, %v", op.Record.Result, err)
		}
	})
}
