package httplock

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9/logging"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
	"github.com/lockkit/lockkit/testutil/locktest"
)

func init() {
	gin.SetMode(gin.ReleaseMode)
	gin.DefaultErrorWriter = io.Discard
	logging.Disable()
}

const ttl = 10 * time.Second

// events counts the events of an observer by their kinds.
type events struct{ locktest.Events }

func (e *events) count(k core.EventKind) int { return e.Count("httplock " + string(k)) }

// newReplica returns the Locker of a replica on embedded nodes. All its leases must be released by the end of the test.
func newReplica(t testing.TB, nodes []*testutil.Node, opts ...core.Option) *locktest.Locker {
	t.Helper()
	l := locktest.NewOn(t, nodes, append([]core.Option{core.TTL(ttl), core.WithClockWindow(50 * time.Millisecond)}, opts...)...)
	closeAtEnd(t, "Locker", l)
	return l
}

// patient has options for tests in real time that do not wait for a lease to run out: the machine may be slow.
var patient = []core.Option{core.TTL(time.Minute), core.WithClockWindow(5 * time.Second)}

func closeAtEnd(t testing.TB, what string, c interface{ Close(context.Context) error }) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Errorf("closing the %s: %v", what, err)
		}
	})
}

const service = "shop"

func middleware(t testing.TB, locker *core.Locker, opts ...Option) *Middleware {
	t.Helper()
	m := must(New(locker, service, opts...))
	closeAtEnd(t, "Middleware", m)
	return m
}

func with(m *Middleware, opts ...Option) *Middleware { return must(m.With(opts...)) }

// must returns v. It panics on an error, which only a fault of the test or of the machine can cause.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// router returns an engine with Recovery, as users have it.
func router() *gin.Engine {
	r := gin.New()
	r.Use(gin.Recovery())
	return r
}

// A reply is a response, as a client got it.
type reply struct {
	status int
	header http.Header
	body   string
	err    error
	proto  string
	began  time.Time // when its header came
}

// whole reports whether a client takes the response for a complete success.
func (r reply) whole() bool { return r.err == nil && r.status >= 200 && r.status < 300 }

// kind returns the kind of a refusal, and checks that it is a valid problem document.
func (r reply) kind(t testing.TB) core.EventKind {
	t.Helper()
	if r.header.Get("Content-Type") != "application/problem+json" {
		t.Fatalf("not a problem: %d %v %q %v", r.status, r.header, r.body, r.err)
	}
	var p struct {
		Type, Title, Detail string
		Status              int
	}
	if err := json.Unmarshal([]byte(r.body), &p); err != nil || r.err != nil {
		t.Fatal(err)
	}
	kind, ok := strings.CutPrefix(p.Type, "urn:lockkit:httplock:")
	if !ok || p.Title == "" || p.Detail == "" || p.Status != r.status {
		t.Errorf("%d: %s", r.status, r.body)
	}
	after := r.header.Get("Retry-After")
	if n, err := strconv.Atoi(after); after != "" && (err != nil || n < 1) {
		t.Errorf("Retry-After %q", after)
	}
	return core.EventKind(kind)
}

// expect checks the status and kind of a refusal.
func (r reply) expect(t testing.TB, status int, kind core.EventKind) {
	t.Helper()
	if got := r.kind(t); r.status != status || got != kind {
		t.Errorf("%d %s, want %d %s", r.status, got, status, kind)
	}
}

// ok checks the response of a handler.
func (r reply) ok(t testing.TB, body string) {
	t.Helper()
	if r.err != nil || r.status != 200 || r.body != body {
		t.Errorf("%d %.100q (%v), want 200 %.100q", r.status, r.body, r.err, body)
	}
}

// call serves a request without a network.
func call(r http.Handler, method, path, body string, header ...string) reply {
	req := httptest.NewRequest(method, path, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	return serveWith(r, req)
}

func serveWith(r http.Handler, req *http.Request) reply {
	w := recorder{httptest.NewRecorder()}
	r.ServeHTTP(w, req)
	res := w.Result()
	return reply{status: res.StatusCode, header: res.Header, body: w.Body.String(), proto: res.Proto}
}

// newRequest returns a request without a body, for serveWith.
func newRequest(method, path string) *http.Request { return httptest.NewRequest(method, path, nil) }

// A recorder has no connection that could be broken, so responses are not streamed to it.
type recorder struct{ *httptest.ResponseRecorder }

// A world has the nodes and a Locker in a bubble.
type world struct {
	*testing.T
	nodes  []*testutil.Node
	events *events // the events of locker
	locker *core.Locker
	lose   func(ctx context.Context) // makes locker lose the lease of ctx
}

// bubble runs f in a bubble, in parallel with other tests. The leases of its Locker last 10 s.
func bubble(t *testing.T, nodes int, f func(w *world)) {
	t.Helper()
	t.Parallel()
	alone(t, nodes, f)
}

// bubbleOf calls bubble in a subtest with the given name.
func bubbleOf(t *testing.T, name string, nodes int, f func(w *world)) {
	t.Run(name, func(t *testing.T) { bubble(t, nodes, f) })
}

// alone is bubble without parallel tests, for measurements.
func alone(t *testing.T, nodes int, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, nodes: testutil.NewNodes(t, nodes), events: &events{}}
		l := newReplica(w, w.nodes, core.WithObserver(w.events.Observer()))
		w.locker, w.lose = l.Locker, l.Lose
		f(w)
	})
}

// replica returns the Locker of another replica.
func (w *world) replica(opts ...core.Option) *core.Locker {
	return newReplica(w, w.nodes, opts...).Locker
}

// holding returns the Locker of another replica. Its leases can be ended with expire.
func (w *world) holding() *core.Locker {
	return newReplica(w, w.nodes, core.WithObserver(w.events.Observer()), core.MaxHold(time.Hour)).Locker
}

// A turnstile is a handler that sends each of its runs to a channel, and returns when it may go on.
type turnstile struct {
	runs chan *gin.Context
	goOn chan struct{}
}

func newTurnstile() *turnstile {
	return &turnstile{make(chan *gin.Context, 100), make(chan struct{}, 100)}
}

func (g *turnstile) handle(c *gin.Context) {
	g.runs <- c
	<-g.goOn
	c.String(200, "done")
}

// background runs f in a goroutine. The function that it returns waits for the result.
func background[T any](f func() T) func() T {
	c := make(chan T, 1)
	go func() { c <- f() }()
	return func() T { return <-c }
}

func text(s string) gin.HandlerFunc { return func(c *gin.Context) { c.String(200, s) } }

// routeKey returns the key of a route with the given values of its parameters.
func routeKey(route string, values ...string) string {
	return core.Key(append([]string{"http/route", service, "", route}, values...)...)
}

// onceKey returns the key of an identity without a sender: for a route, an Idempotency-Key and the values of
// parameters.
func onceKey(method, route, given string, parameters ...string) string {
	return core.Key(append([]string{"http/idempotent", service, "", method, route, "", given}, parameters...)...)
}

// keyOf responds with the key that the request holds, or with "none".
func keyOf(w http.ResponseWriter, r *http.Request) {
	if lease, ok := core.FromContext(r.Context()); ok {
		io.WriteString(w, lease.Key())
		return
	}
	io.WriteString(w, "none")
}

// expire makes the innermost lease of ctx lost at once.
func expire(ctx context.Context) {
	lease, _ := core.FromContext(ctx)
	lease.Extend(1)
	<-lease.Context().Done()
}

// anyKey returns a middleware that uses another key for each request, with leases that last in real time.
func anyKey(t *testing.T) *Middleware {
	l := newReplica(t, testutil.NewNodes(t, 1), append([]core.Option{core.MaxHold(time.Hour)}, patient...)...)
	var id atomic.Int64 // a connection that is reset puts requests in no order that the race detector knows
	return middleware(t, l.Locker, ByFunc(func(*http.Request) (string, error) { return fmt.Sprint(id.Add(1)), nil }))
}
