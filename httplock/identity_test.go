package httplock

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/logbook"
)

// user returns the sender that the authentication has found.
func user(r *http.Request) (string, error) { return r.Header.Get("X-User"), nil }

// A ledger is a table with a UNIQUE column, as in the package documentation. If it already has a row of the request's
// identity, the handler responds with that row.
type ledger map[string]string

func (l ledger) pay(w http.ResponseWriter, r *http.Request) {
	run, _ := FromContext(r.Context())
	if _, made := l[run.Identity]; !made {
		l[run.Identity] = "payment of " + r.Header.Get("X-User")
	}
	fmt.Fprint(w, l[run.Identity])
}

// The key, the identity and the fingerprint are made of the parts that the table in the package documentation lists.
// Two requests differ in one part. They exclude each other, or the second is a repetition, or it is refused as
// different.
func TestTableOfIdentities(t *testing.T) {
	for name, c := range map[string]struct {
		path, method, body string
		header             []string
		unnamed            bool // the sender is NoSender
		key, identity      bool // both requests have the same
		replayed           bool // the second request is a repetition
	}{
		"nothing":                {key: true, identity: true, replayed: true},
		"the method":             {method: "PATCH", key: true},
		"the route":              {path: "/refunds/1?q=1"},
		"a parameter of the key": {path: "/orders/2?q=1"},
		"the query":              {path: "/orders/1?q=2", key: true, identity: true},
		"the body":               {body: "another", key: true, identity: true},
		"the address":            {path: "http://another.example:8081/orders/1?q=1", key: true, identity: true, replayed: true},
		"the sender":             {header: []string{"X-User", "bob"}, key: true},
		"the tenant":             {header: []string{"X-Tenant", "umbrella"}},
		"the Idempotency-Key":    {header: []string{"Idempotency-Key", "k2"}, key: true},
		"how it is written":      {header: []string{"Idempotency-Key", `"k"`}, key: true, identity: true, replayed: true},
		"parameters of it":       {header: []string{"Idempotency-Key", `"k"; a=1;b="x";c;d=?1; e=:YQ==:;f=t/x`}, key: true, identity: true, replayed: true},
		"a renewed token":        {header: []string{"Authorization", "Bearer renewed"}, key: true, identity: true, replayed: true},
		"another header":         {header: []string{"Accept-Language", "fr"}, key: true, identity: true, replayed: true},
		"a token, no sender":     {header: []string{"Authorization", "Bearer renewed"}, unnamed: true, key: true, identity: true},
		"a cookie, no sender":    {header: []string{"Cookie", "a=b"}, unnamed: true, key: true, identity: true},
		"an API key, no sender":  {header: []string{"X-Api-Key", "x"}, unnamed: true, key: true, identity: true},
		"the user, no sender":    {header: []string{"X-User", "bob"}, unnamed: true, key: true, identity: true, replayed: true},
	} {
		bubbleOf(t, name, 1, func(w *world) {
			sender := user
			if c.unnamed {
				sender = NoSender
			}

			var keys, identities []string
			m := middleware(w, w.locker, ByParam("id"), WithTenant(header("X-Tenant")), WithIdempotency(true, sender))

			mux := http.NewServeMux()
			for _, pattern := range []string{"/orders/{id}", "/refunds/{id}"} {
				mux.Handle(pattern, m.LockHandler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					lease, _ := core.FromContext(r.Context())
					run, _ := FromContext(r.Context())
					keys, identities = append(keys, lease.Key()), append(identities, run.Identity)
				})))
			}

			send := func(method, path, body string, header []string) reply {
				req := httptest.NewRequest(method, path, strings.NewReader(body))
				for _, h := range [][]string{{"Idempotency-Key", "k", "Authorization", "Bearer old", "X-User", "alice", "X-Tenant", "acme"}, header} {
					for i := 0; i < len(h); i += 2 {
						req.Header.Set(h[i], h[i+1])
					}
				}
				return serveWith(mux, req)
			}

			or := func(s, other string) string {
				if s == "" {
					return other
				}
				return s
			}

			if got := send("POST", "/orders/1?q=1", "body", nil); got.status != 200 {
				w.Fatalf("%+v", got)
			}

			again := send(or(c.method, "POST"), or(c.path, "/orders/1?q=1"), or(c.body, "body"), c.header)
			switch replayed := again.header.Get("Idempotent-Replayed") == "true"; {
			case replayed != c.replayed:
				w.Errorf("replayed %v: %+v", replayed, again)
			case c.identity && !c.replayed:
				again.expect(w, 422, EventIdempotencyMismatch)
			case c.identity:
			case len(keys) != 2 || (keys[0] == keys[1]) != c.key || identities[0] == identities[1]:
				w.Errorf("keys %q, identities %q: %+v", keys, identities, again)
			}
		})
	}
}

// Two users with the same Idempotency-Key get rows of their own, also after a loss between commit and record, and with
// tokens that are renewed in between.
func TestRowsOfTwoSenders(t *testing.T) {
	bubble(t, 1, func(w *world) {
		rows, runs := ledger{}, 0
		m := middleware(w, w.holding(), ByParam("id"), WithIdempotency(true, user))
		mux := http.NewServeMux()
		mux.Handle("POST /accounts/{id}/payments", m.LockHandler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			rows.pay(rw, r)
			if runs++; runs == 1 {
				expire(r.Context()) // after the commit
			}
		})))

		pay := func(user, account, token string) reply {
			return call(mux, "POST", "/accounts/"+account+"/payments", "", "Idempotency-Key", "1", "X-User", user, "Authorization", token)
		}

		pay("alice", "1", "a").expect(w, 503, EventLost)
		time.Sleep(time.Minute)
		pay("bob", "1", "b").ok(w, "payment of bob")
		pay("bob", "2", "b").ok(w, "payment of bob")
		pay("alice", "1", "renewed").ok(w, "payment of alice")
		pay("alice", "1", "renewed again").ok(w, "payment of alice")

		if len(rows) != 3 {
			w.Errorf("%v", rows)
		}
		pay("", "1", "x").expect(w, 400, EventKeyMissing)
	})
}

// If the function that names the sender calls NoSender for a visitor without a name, the visitor's credentials count.
func TestAnonymousSenders(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, WithIdempotency(true, func(r *http.Request) (string, error) {
			if r.Header.Get("X-User") == "" {
				return NoSender(r)
			}
			return user(r)
		}))
		mux := http.NewServeMux()
		mux.Handle("POST /payments", m.LockHandler(http.HandlerFunc(ledger{}.pay)))
		pay := func(header ...string) reply {
			return call(mux, "POST", "/payments", "", append([]string{"Idempotency-Key", "1"}, header...)...)
		}
		pay("Cookie", "session=1").ok(w, "payment of ")
		pay("Cookie", "session=2").expect(w, 422, EventIdempotencyMismatch)
		pay("X-User", "alice").ok(w, "payment of alice")
	})
}

// With a sender, a client's certificate may be renewed. Without a sender, it is a credential.
func TestCertificates(t *testing.T) {
	bubble(t, 1, func(w *world) {
		for name, sender := range map[string]func(*http.Request) (string, error){"named": user, "unnamed": NoSender} {
			m := middleware(w, w.locker, WithIdempotency(true, sender))
			mux := http.NewServeMux()
			mux.Handle("POST /"+name, m.LockHandler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
			status := 0
			for _, certificate := range []string{"old", "renewed"} {
				req := newRequest("POST", "/"+name)
				req.Header.Set("Idempotency-Key", "k")
				req.Header.Set("X-User", "alice")
				req.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{Raw: []byte(certificate)}}}
				status = serveWith(mux, req).status
			}
			if want := map[string]int{"named": 200, "unnamed": 422}[name]; status != want {
				w.Errorf("%s: %d, want %d", name, status, want)
			}
		}
	})
}

// A repetition gets the record before anything else is checked: even if the resource is gone, and while its key is
// held.
func TestRecordComesFirst(t *testing.T) {
	bubble(t, 1, func(w *world) {
		orders := map[string]string{"1": "alice"} // the customer of each order
		byCustomer := func(r *http.Request) (string, error) {
			c, ok := orders[r.PathValue("id")]
			if !ok {
				return "", errors.New("no such order")
			}
			return core.Key("customer", c), nil
		}

		for name, by := range map[string]Option{"ByFunc": ByFunc(byCustomer), "ByKey": ByKey(byCustomer)} {
			orders["1"] = "alice"
			m := middleware(w, w.locker, by, WithIdempotency(true, NoSender), WithMaxWait(0))
			mux := http.NewServeMux()
			mux.Handle("DELETE /orders/{id}", m.LockHandler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				delete(orders, r.PathValue("id"))
				fmt.Fprint(rw, "refunded 100")
			})))

			remove := func(key string) reply { return call(mux, "DELETE", "/orders/1", "", "Idempotency-Key", name+key) }

			first := remove("k")
			first.ok(w, "refunded 100")
			remove("k").replays(w, first)
			remove("another").expect(w, 400, EventKeyMissing)
			remove("another").expect(w, 400, EventKeyMissing) // the lease of the refused request was released
			orders["1"] = "alice"
			holder := must(w.locker.Acquire(w.Context(), core.Key("customer", "alice")))
			remove("k").replays(w, first)
			holder.Release(w.Context())
		}
	})
}

// The log does not contain a client's key, even if the request is refused because of a fault of the program.
func TestKeysAreNotLogged(t *testing.T) {
	bubble(t, 3, func(w *world) {
		log := &logbook.Book{}
		m := middleware(w, w.replica(core.WithLogger(log.Logger())), WithIdempotency(true, NoSender), WithMaxWait(0))
		r := router()
		r.POST("/twice", m.Lock, m.Lock, text("ran"))
		r.POST("/orders", func(c *gin.Context) { // the request already runs under the lease
			lease := must(m.locker.Acquire(c.Request.Context(), onceKey("POST", "/orders", "sEcReT")))
			defer lease.Release(w.Context())
			c.Request = c.Request.WithContext(lease.Context())
			c.Next()
		}, m.Lock, text("ran"))
		r.POST("/lost", m.Lock, func(c *gin.Context) { expire(c.Request.Context()) })
		r.POST("/open", m.Lock, func(*gin.Context) { w.nodes[0].Down(); w.nodes[1].Down() })

		call(r, "POST", "/twice", "", "Idempotency-Key", "sEcReT").expect(w, 500, EventMisconfigured)
		call(r, "POST", "/orders", "", "Idempotency-Key", "sEcReT").expect(w, 500, EventMisconfigured)
		call(r, "POST", "/open", "", "Idempotency-Key", "sEcReT")
		call(r, "POST", "/open", "", "Idempotency-Key", "sEcReT").expect(w, 503, EventUnavailable)

		time.Sleep(time.Minute)
		w.nodes[0].Up()
		w.nodes[1].Up()
		log.Want(w, 2, "level=ERROR", "misconfigured")
		log.Want(w, 1, "level=ERROR", "was not recorded")
		log.Want(w, 0, "sEcReT")
	})
}

// A repetition restores neither a header that the handler has removed, nor an earlier value of a header that a
// middleware further out sets.
func TestRemovedHeadersStayRemoved(t *testing.T) {
	bubble(t, 1, func(w *world) {
		n := 0
		m := middleware(w, w.locker, WithIdempotency(true, NoSender))
		mux := http.NewServeMux()
		mux.Handle("POST /orders", m.LockHandler(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Del("Cache-Control")
			rw.Header().Del("X-Frame-Options")
			rw.Header()["Content-Type"] = nil
			fmt.Fprint(rw, "<html>")
		})))

		s := w.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			n++
			rw.Header().Set("Cache-Control", "no-store")
			rw.Header().Set("X-Frame-Options", "DENY")
			rw.Header().Set("Content-Type", "text/plain")
			rw.Header().Set("X-Request-Id", fmt.Sprint(n))
			mux.ServeHTTP(rw, r)
		}))

		for _, protocol := range protocols {
			for range 2 {
				got := s.do(context.Background(), protocol, "POST", "/orders", "", "Idempotency-Key", protocol[5:])
				if h := got.header; h.Get("Cache-Control") != "" || h.Get("X-Frame-Options") != "" || h.Get("Content-Type") != "" || h.Get("X-Request-Id") != fmt.Sprint(n) {
					w.Errorf("%s, request %d: %v", protocol, n, h)
				}
			}
		}
	})
}

// zips is a middleware that compresses responses for clients that accept gzip.
func zips(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Vary", "Accept-Encoding")
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			h.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		recorded := httptest.NewRecorder()
		h.ServeHTTP(recorded, r)
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		io.Copy(z, recorded.Body)
		z.Close()
		w.Write(b.Bytes())
	})
}

// With an Idempotency-Key, compression inside the Lock does not see which encodings the client accepts, so that clients
// that accept others can read a repetition. Compression outside sees it.
func TestCompressionOfRepetitions(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, WithIdempotency(false, NoSender), ByParam("id"))
		made := http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, "made") })
		inside, outside := http.NewServeMux(), http.NewServeMux()
		inside.Handle("POST /inside/{id}", m.LockHandler(zips(made)))
		outside.Handle("POST /outside/{id}", m.LockHandler(made))

		for _, c := range []struct {
			h         http.Handler
			path, key string
			accept    string
			want      string
		}{
			{inside, "/inside/1", "k", "gzip", ""}, {inside, "/inside/1", "k", "", ""}, {inside, "/inside/1", "k", "br, gzip", ""},
			{inside, "/inside/1", "", "gzip", "gzip"}, {inside, "/inside/1", "", "", ""}, // without a key there are no repetitions
			{zips(outside), "/outside/1", "k", "gzip", "gzip"}, {zips(outside), "/outside/1", "k", "", ""}, {zips(outside), "/outside/1", "k", "gzip", "gzip"},
		} {
			req := httptest.NewRequest("POST", c.path, nil)
			for name, value := range map[string]string{"Idempotency-Key": c.key, "Accept-Encoding": c.accept} {
				if value != "" {
					req.Header.Set(name, value)
				}
			}

			got := serveWith(c.h, req).unzipped()
			if got.ok(w, "made"); got.header.Get("Content-Encoding") != c.want {
				w.Errorf("%+v: %v", c, got.header)
			}
			if req.Header.Get("Accept-Encoding") != c.accept {
				w.Errorf("the request of who is further out has become %v", req.Header)
			}
		}
	})
}

// The target of a request has no address of the service, and otherwise it is as the client has sent it.
func TestRequestTargets(t *testing.T) {
	for sent, want := range map[string]string{
		"/a|b?c": "/a|b?c", "http://h/a|b?c": "/a|b?c", "https://h:1/": "/", "http://h": "/", "http://h?c": "/?c", "*": "*",
		"http:/a?b=://h/c": "http:/a?b=://h/c", "/a?b=http://h/c": "/a?b=http://h/c", "a:b://h/c": "a:b://h/c",
	} {
		if got := requestTarget(&http.Request{RequestURI: sent}); got != want {
			t.Errorf("%s: %s, want %s", sent, got, want)
		}
	}
}
