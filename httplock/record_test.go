package httplock

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
)

// An answer that asks for another try gets one; what else has failed may have done something, and is repeated.
func TestAnswersThatAskForAnotherTry(t *testing.T) {
	all := func(int) bool { return true }
	for _, c := range []struct {
		status     int
		retryAfter string
		opts       []Option
		recorded   bool
	}{
		{429, "", nil, false},
		{503, "", nil, false},
		{503, "1", nil, false},
		{409, "1", nil, false},
		{500, "1", nil, false},
		{201, "1", nil, true},
		{409, "", nil, true},
		{500, "", nil, true},
		{504, "", nil, true},
		{503, "1", []Option{WithRecord(all)}, true},
		{201, "", []Option{WithRecord(func(status int) bool { return status >= 500 })}, false},
	} {
		t.Run(fmt.Sprintf("%d, after %q, %d options", c.status, c.retryAfter, len(c.opts)), func(t *testing.T) {
			bubble(t, 1, func(w *world) {
				s := &shop{status: c.status, before: func(g *gin.Context) { g.Header("Retry-After", c.retryAfter) }}
				r, _ := s.replica(w, w.locker, c.opts...)
				first := pay(r, "k")
				if first.status != c.status || first.header.Get("Retry-After") != c.retryAfter {
					w.Errorf("%+v", first)
				}
				again := pay(r, "k")
				if c.recorded {
					again.replays(w, first)
					s.expect(w, 1)
				} else {
					s.expect(w, 2)
				}
			})
		})
	}
}

// A handler that knows that it has done nothing says so.
func TestDiscard(t *testing.T) {
	bubble(t, 1, func(w *world) {
		Discard(w.Context()) // does nothing
		s := &shop{status: 400, before: func(c *gin.Context) { Discard(c.Request.Context()) }}
		r, _ := s.replica(w, w.locker, ByParam("id"))
		pay(r, "k")
		pay(r, "k")
		s.expect(w, 2)
	})
}

// The identity is the same for each run of a request, and that of no other; a UNIQUE column of it makes one effect of two
// runs. The token grows.
func TestIdentity(t *testing.T) {
	bubble(t, 1, func(w *world) {
		var runs []Execution
		unique := map[string]int{}
		s := &shop{status: 201, before: func(c *gin.Context) {
			e, ok := FromContext(c.Request.Context())
			if !ok || len(e.Identity) != 64 {
				w.Errorf("%+v %v", e, ok)
			}
			runs = append(runs, e)
			unique[e.Identity]++
			if c.GetHeader("X-Lose") != "" {
				w.nodes[0].Flush() // the effect is there, and the record will not be
			}
		}}
		r, _ := s.replica(w, w.locker, ByParam("id"))
		pay(r, "a", "X-Lose", "1").expect(w, 503, EventLost)
		time.Sleep(ttl) // of the bubble
		pay(r, "a")
		pay(r, "b")
		if len(runs) != 3 || runs[0].Identity != runs[1].Identity || runs[1].Identity == runs[2].Identity || runs[1].FencingToken <= runs[0].FencingToken {
			w.Errorf("%+v", runs)
		}
		if len(unique) != 2 {
			w.Errorf("%d effects of two requests", len(unique))
		}
		if _, ok := FromContext(w.Context()); ok {
			w.Error("an execution outside of Once")
		}
		e := Execution{Identity: "id", FencingToken: 7}
		if got, ok := FromContext(NewContext(w.Context(), e)); got != e || !ok {
			w.Errorf("%+v %v", got, ok)
		}
	})
}

// Large answers are recorded in parts, up to the limit, and are whole in a replay, or not sent at all.
func TestReplayInParts(t *testing.T) {
	bubble(t, 3, func(w *world) {
		runs := 0
		handle := func(c *gin.Context) {
			runs++
			var n int
			fmt.Sscan(c.Query("n"), &n)
			var b strings.Builder
			for b.Len() < n {
				fmt.Fprintf(&b, "%d %d,", runs, b.Len()) // nothing repeats
			}
			c.Header("Location", "/made")
			c.String(201, b.String()[:n])
		}
		replica := func(l *core.Locker) *gin.Engine {
			r := router()
			m := middleware(w, l)
			r.POST("/reports", m.Once, handle)
			r.POST("/larger", with(w, m, WithRecordLimit(2<<20)).Once, handle)
			return r
		}
		one, other := replica(w.locker), replica(w.replica())
		for path, n := range map[string]int{"/reports?n=61441": 60<<10 + 1, "/reports?n=122880": 120 << 10, "/reports?n=1048576": 1 << 20, "/larger?n=2097152": 2 << 20} {
			first := call(one, "POST", path, "", "Idempotency-Key", path)
			if first.status != 201 || len(first.body) != n {
				w.Errorf("%s: %d, %d bytes", path, first.status, len(first.body))
			}
			call(other, "POST", path, "", "Idempotency-Key", path).replays(w, first)
		}
		call(one, "POST", "/reports?n=1048577", "", "Idempotency-Key", "k")
		call(other, "POST", "/reports?n=1048577", "", "Idempotency-Key", "k").expect(w, 410, EventIdempotencyOmitted)
		if runs != 5 {
			w.Errorf("%d runs", runs)
		}

		w.nodes[0].Down()
		w.nodes[1].Down()
		got := call(other, "POST", "/larger?n=2097152", "", "Idempotency-Key", "/larger?n=2097152")
		if got.status != 503 || runs != 5 {
			w.Errorf("without a quorum: %+v, %d runs", got.status, runs)
		}
	})
}

// A part that cannot be recorded, or is not there any more, makes no short answer.
func TestPartsThatAreMissing(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker)
		var taken *core.Lease
		r := router()
		r.POST("/reports", m.Once, func(c *gin.Context) {
			lease, _ := core.FromContext(c.Request.Context())
			var err error // whoever took it: the key of a part is one as any other
			if taken, err = w.locker.TryAcquire(w.Context(), partKey(lease.Key(), lease.FencingToken(), 1)); err != nil {
				w.Error(err)
			}
			c.String(201, strings.Repeat("x", 61<<10))
		})
		if got := call(r, "POST", "/reports", "", "Idempotency-Key", "k"); got.status != 201 || len(got.body) != 61<<10 {
			w.Errorf("%d, %d bytes", got.status, len(got.body))
		}
		taken.Release(w.Context())
		call(r, "POST", "/reports", "", "Idempotency-Key", "k").expect(w, 410, EventIdempotencyOmitted)

		key := core.Key(idempotent, service, "", "POST", "/reports", "gone")
		lease, err := w.locker.TryAcquire(w.Context(), key)
		if err != nil {
			w.Fatal(err)
		}
		x := &exchange{m: m, r: newRequest("POST", "/reports"), body: &body{whole: true}}
		o := outcome{Fingerprint: x.fingerprint(), Status: 201, Parts: 2}
		if err := lease.Complete(w.Context(), o.encode()); err != nil {
			w.Fatal(err)
		}
		for range 2 { // and a look does not take it
			call(r, "POST", "/reports", "", "Idempotency-Key", "gone").expect(w, 410, EventIdempotencyOmitted)
		}
	})
}

// What is read from the nodes is checked: it may have been written by something else.
func TestRecordsThatNobodyWrites(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker)
		r := router()
		r.POST("/orders", m.Once, text("ran"))
		x := &exchange{m: m, r: newRequest("POST", "/orders"), body: &body{whole: true}}
		good := outcome{Fingerprint: x.fingerprint(), Status: 201, Header: http.Header{"Location": {"/made"}, "Set-Cookie": {"session=mine"}, "Content-Length": {"1"}}, body: []byte("body")}
		for i, change := range []func(o *outcome){
			func(o *outcome) { o.Status = 0 }, func(o *outcome) { o.Status = 99 }, func(o *outcome) { o.Status = 101 }, func(o *outcome) { o.Status = 1000 },
			func(o *outcome) { o.Parts = -1 }, func(o *outcome) { o.Parts = 1 << 30 }, nil,
		} {
			lease, err := w.locker.TryAcquire(w.Context(), core.Key(idempotent, service, "", "POST", "/orders", fmt.Sprint(i)))
			if err != nil {
				w.Fatal(err)
			}
			o := good
			if change != nil {
				change(&o)
			}
			if err := lease.Complete(w.Context(), o.encode()); err != nil {
				w.Fatal(err)
			}
			got := call(r, "POST", "/orders", "", "Idempotency-Key", fmt.Sprint(i))
			if change != nil {
				got.expect(w, 500, EventMisconfigured)
				continue
			}
			if got.status != 201 || got.body != "body" || got.header.Get("Location") != "/made" || got.header.Get("Set-Cookie") != "" || got.header.Get("Content-Length") != "" {
				w.Errorf("%+v", got)
			}
		}
	})
}

// How long to wait for the first request is what such requests have taken.
func TestRetryAfterOfWhatIsInFlight(t *testing.T) {
	bubble(t, 1, func(w *world) {
		g := newTurnstile()
		m := middleware(w, w.locker)
		r := router()
		r.POST("/reports", m.Once, g.handle)
		for i, want := range []string{"1", "30", "25"} { // nothing is known; 30s; a quarter of the way to 10s
			key := fmt.Sprint(i)
			first := background(func() reply { return call(r, "POST", "/reports", "", "Idempotency-Key", key) })
			<-g.runs
			got := call(r, "POST", "/reports", "", "Idempotency-Key", key)
			got.expect(w, 409, EventIdempotencyInFlight)
			if after := got.header.Get("Retry-After"); after != want {
				w.Errorf("Retry-After %s, want %s", after, want)
			}
			time.Sleep(time.Duration(30-20*i) * time.Second) // of the bubble
			g.goOn <- struct{}{}
			first()
		}
	})
}

// Outcomes are written as they are read.
func TestOutcomeRoundTrip(t *testing.T) {
	o := outcome{Fingerprint: []byte("f"), Status: 201, Header: http.Header{"Location": {"/x"}}, Parts: 3}
	got, err := parseOutcome(o.encode())
	a, _ := json.Marshal(o)
	if b, _ := json.Marshal(got); err != nil || string(a) != string(b) {
		t.Errorf("%s, %s, %v", a, b, err)
	}
}
