package httplock

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/gin-gonic/gin"
)

// Services on the same nodes share nothing, whatever their routes, but for keys of ByKey.
func TestServicesShareNothing(t *testing.T) {
	bubble(t, 1, func(w *world) {
		g := newTurnstile()
		serviceOf := func(name string) *gin.Engine {
			m, err := New(w.replica(), name, ByParam("id"), WithMaxWait(0), WithIdempotency(false))
			if err != nil {
				w.Fatal(err)
			}
			r := router()
			r.PUT("/orders/:id", m.Lock, g.handle)
			r.PUT("/shared/:id", with(w, m, ByKey(order)).Lock, g.handle)
			r.POST("/payments/:id", m.Lock, text("paid by "+name))
			return r
		}
		billing, refunds := serviceOf("billing"), serviceOf("refunds")
		for path, want := range map[string]int{"/orders/1": 2, "/shared/1": 1} {
			both := []func() reply{background(func() reply { return call(billing, "PUT", path, "") }), background(func() reply { return call(refunds, "PUT", path, "") })}
			synctest.Wait()
			running := len(g.runs)
			if running != want {
				w.Errorf("%s: %d of two services run, want %d", path, running, want)
			}
			for range running {
				<-g.runs
				g.goOn <- struct{}{}
			}
			refused := 0
			for _, answer := range both {
				refused += refusedOrDone(w, answer())
			}
			if refused != 2-want {
				w.Errorf("%s: %d refused", path, refused)
			}
		}
		call(billing, "POST", "/payments/1", "", "Idempotency-Key", "k").ok(w, "paid by billing")
		call(refunds, "POST", "/payments/1", "", "Idempotency-Key", "k").ok(w, "paid by refunds")
	})
}

// refusedOrDone returns 1 for the answer to a request that found its key taken, and 0 for that of one that ran.
func refusedOrDone(w *world, got reply) int {
	w.Helper()
	if got.status == 409 {
		got.expect(w, 409, EventBusy)
		return 1
	}
	got.ok(w, "done")
	return 0
}

// A repetition gets an answer only with the credentials of the first request, or as the same tenant.
func TestReplayOnlyToTheSameUser(t *testing.T) {
	bubble(t, 1, func(w *world) {
		s := &shop{status: 201}
		byCredentials, _ := s.replica(w, w.locker)
		byTenant, _ := s.replica(w, w.locker, WithTenant(func(r *http.Request) (string, error) {
			user, _, _ := strings.Cut(r.Header.Get("Authorization"), ":")
			return user, nil
		}))
		for _, header := range []string{"Authorization", "Cookie", "X-Api-Key"} {
			if got := pay(byCredentials, header, header, "alice:1"); got.status != 201 {
				w.Errorf("%+v", got)
			}
			pay(byCredentials, header, header, "bob:1").expect(w, 422, EventIdempotencyMismatch)
			pay(byCredentials, header).expect(w, 422, EventIdempotencyMismatch)
			if got := pay(byCredentials, header, header, "alice:1", "User-Agent", "other"); got.header.Get("Idempotent-Replayed") != "true" {
				w.Errorf("the same user: %+v", got)
			}
		}
		s.expect(w, 3)

		pay(byTenant, "k", "Authorization", "alice:1")
		if got := pay(byTenant, "k", "Authorization", "alice:2"); got.header.Get("Idempotent-Replayed") != "true" {
			w.Errorf("the same tenant with another token: %+v", got)
		}
		if got := pay(byTenant, "k", "Authorization", "bob:1"); got.header.Get("Idempotent-Replayed") != "" || got.status != 201 {
			w.Errorf("another tenant: %+v", got)
		}
		s.expect(w, 5)
	})
}

// Nor does one of two routers that are mounted side by side answer for the other: both have the same pattern and path.
func TestMountedRoutersShareNoAnswer(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, WithIdempotency(true))
		mux := http.NewServeMux()
		for _, name := range []string{"/billing", "/refunds"} {
			inner := http.NewServeMux()
			inner.Handle("POST /orders/{id}", m.LockHandler(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write([]byte(name)) })))
			mux.Handle(name+"/", http.StripPrefix(name, inner))
		}
		for range 2 {
			call(mux, "POST", "/billing/orders/1", "", "Idempotency-Key", "k").ok(w, "/billing")
			call(mux, "POST", "/refunds/orders/1", "", "Idempotency-Key", "k").expect(w, 422, EventIdempotencyMismatch)
		}
	})
}

// A client's certificate is a credential.
func TestReplayOnlyToTheSameCertificate(t *testing.T) {
	bubble(t, 1, func(w *world) {
		s := &shop{status: 201}
		r, _ := s.replica(w, w.locker)
		for _, c := range []struct {
			certificate string
			want        int
		}{{"alice", 201}, {"alice", 201}, {"bob", 422}, {"", 422}} {
			req := newRequest("POST", path)
			req.Header.Set("Idempotency-Key", "k")
			req.TLS = &tls.ConnectionState{}
			if c.certificate != "" {
				req.TLS.PeerCertificates = []*x509.Certificate{{Raw: []byte(c.certificate)}}
			}
			out := httptest.NewRecorder()
			if r.ServeHTTP(out, req); out.Code != c.want {
				w.Errorf("%q: %d %s", c.certificate, out.Code, out.Body)
			}
		}
		s.expect(w, 1)
	})
}
