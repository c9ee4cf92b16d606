package httplock

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"testing"
)

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
