package httplock

import (
	"context"
	"encoding/json"
	"github.com/redis/go-redis/v9/logging"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
)

func init() {
	gin.SetMode(gin.ReleaseMode)
	gin.DefaultErrorWriter = io.Discard
	logging.Disable()
}

const ttl = 10 * time.Second

// A watch is an observer that tells tests what happens.
type watch struct {
	mu      sync.Mutex
	kinds   []Kind
	names   []string // of routes, with each kind
	asking  int      // acquisitions under way
	holding int
	changed chan struct{}
}

func newWatch() *watch { return &watch{changed: make(chan struct{})} }

func (w *watch) change(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *watch) Start(ctx context.Context, op core.Op) (context.Context, func(core.Outcome)) {
	var n *int
	switch op.Kind {
	case core.OpAcquire:
		n = &w.asking
	case core.OpHold:
		n = &w.holding
	default:
		return ctx, nil
	}
	w.change(func() { *n++ })
	return ctx, func(core.Outcome) { w.change(func() { *n-- }) }
}

func (w *watch) Event(_ context.Context, e core.Event) {
	w.change(func() {
		if e.Source == "httplock" {
			w.kinds, w.names = append(w.kinds, Kind(e.Kind)), append(w.names, e.Name)
		}
	})
}

// until waits until so holds.
func (w *watch) until(t *testing.T, what string, so func() bool) {
	t.Helper()
	timeout := time.After(30 * time.Second)
	for {
		w.mu.Lock()
		ok, changed := so(), w.changed
		w.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("never came: %s", what)
		}
	}
}

func (w *watch) untilAsking(t *testing.T, n int) {
	t.Helper()
	w.until(t, "waiting requests: "+strconv.Itoa(n), func() bool { return w.asking == n })
}

func (w *watch) untilKind(t *testing.T, k Kind) {
	t.Helper()
	w.until(t, "event "+string(k), func() bool { return slices.Contains(w.kinds, k) })
}

func (w *watch) count(k Kind) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, seen := range w.kinds {
		if seen == k {
			n++
		}
	}
	return n
}

// locker makes a Locker with clients of its own, as a replica has.
func locker(t testing.TB, nodes []*testutil.Node, opts ...core.Option) *core.Locker {
	t.Helper()
	var clients []redis.UniversalClient
	for _, n := range nodes {
		clients = append(clients, n.ClientWith(func(o *redis.Options) { o.PoolSize, o.MaxRetries = 2000, -1 }))
	}
	return lockerOn(t, clients, append([]core.Option{core.WithClockWindow(50 * time.Millisecond)}, opts...)...)
}

// patient is for servers in real time, in tests that do not wait for a lease to run out: a machine may be slow.
var patient = []core.Option{core.WithTTL(time.Minute), core.WithClockWindow(5 * time.Second), core.WithNodeTimeout(10 * time.Second)}

func lockerOn(t testing.TB, clients []redis.UniversalClient, opts ...core.Option) *core.Locker {
	t.Helper()
	l, err := core.New(clients, append([]core.Option{core.WithTTL(ttl), core.WithLogger(slog.New(slog.DiscardHandler))}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := l.Close(ctx); err != nil {
			t.Errorf("closing the Locker: %v", err)
		}
	})
	return l
}

func middleware(t testing.TB, locks *core.Locker, opts ...Option) *Middleware {
	t.Helper()
	m, err := New(locks, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := m.Close(ctx); err != nil {
			t.Errorf("closing the Middleware: %v", err)
		}
	})
	return m
}

func with(t testing.TB, m *Middleware, opts ...Option) *Middleware {
	t.Helper()
	d, err := m.With(opts...)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// router is an engine as people set it up.
func router() *gin.Engine {
	r := gin.New()
	r.Use(gin.Recovery())
	return r
}

// serve serves r over TCP.
func serve(t testing.TB, r http.Handler) *httptest.Server {
	s := httptest.NewServer(r)
	t.Cleanup(s.Close)
	return s
}

// A reply is what a client got.
type reply struct {
	status int
	header http.Header
	body   string
	err    error
	proto  string
}

// kind is that of a refusal, checked as a problem document.
func (r reply) kind(t testing.TB) Kind {
	t.Helper()
	if r.header.Get("Content-Type") != "application/problem+json" {
		t.Fatalf("not a problem: %d %v %q %v", r.status, r.header, r.body, r.err)
	}
	var p struct {
		Type, Title, Detail string
		Status              int
		RetryAfter          int `json:"retry_after"`
	}
	if err := json.Unmarshal([]byte(r.body), &p); err != nil {
		t.Fatal(err)
	}
	kind, ok := strings.CutPrefix(p.Type, "urn:lockkit:httplock:")
	if !ok || p.Title == "" || p.Status != r.status {
		t.Errorf("%d: %s", r.status, r.body)
	}
	after := r.header.Get("Retry-After")
	if n, err := strconv.Atoi(after); after != "" && (err != nil || n < 1 || n != p.RetryAfter) || after == "" && p.RetryAfter != 0 {
		t.Errorf("Retry-After %q, in the body %d", after, p.RetryAfter)
	}
	return Kind(kind)
}

// expect checks a refusal.
func (r reply) expect(t testing.TB, status int, kind Kind) {
	t.Helper()
	if got := r.kind(t); r.status != status || got != kind {
		t.Errorf("%d %s, want %d %s", r.status, got, status, kind)
	}
}

// ok checks a handler's answer.
func (r reply) ok(t testing.TB, body string) {
	t.Helper()
	if r.err != nil || r.status != 200 || r.body != body {
		t.Errorf("%d %.100q (%v), want 200 %.100q", r.status, r.body, r.err, body)
	}
}

// do sends a request over TCP. Header fields come in pairs.
func do(ctx context.Context, method, url, body string, header ...string) reply {
	return doWith(client, ctx, method, url, body, header...)
}

func put(s *httptest.Server, path string) reply {
	return doWith(s.Client(), context.Background(), "PUT", s.URL+path, "body")
}

func doWith(client *http.Client, ctx context.Context, method, url, body string, header ...string) reply {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return reply{err: err}
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	res, err := client.Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return reply{res.StatusCode, res.Header, string(b), err, res.Proto}
}

var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 300}}

// call serves a request without a network, as bubbles need it.
func call(r http.Handler, method, path, body string, header ...string) reply {
	return callWith(context.Background(), r, method, path, body, header...)
}

func callWith(ctx context.Context, r http.Handler, method, path, body string, header ...string) reply {
	req := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	r.ServeHTTP(w, req)
	res := w.Result()
	return reply{res.StatusCode, res.Header, w.Body.String(), nil, res.Proto}
}

// A world is a bubble with nodes.
type world struct {
	*testing.T
	nodes []*testutil.Node
	watch *watch
	locks *core.Locker
}

// bubble runs f in a bubble, on nodes, with a Locker whose leases last 10s.
func bubble(t *testing.T, nodes int, f func(w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, nodes: testutil.Embedded(t, nodes), watch: newWatch()}
		w.locks = w.locker(w.watch)
		f(w)
	})
}

// locker is that of one more replica.
func (w *world) locker(o core.Observer) *core.Locker {
	return locker(w, w.nodes, core.WithObserver(o))
}

// A gate is a handler that reports each of its runs and ends when it is let go.
type gate struct {
	runs chan *gin.Context
	goOn chan struct{}
}

func newGate() *gate { return &gate{make(chan *gin.Context, 100), make(chan struct{}, 100)} }

func (g *gate) handle(c *gin.Context) {
	g.runs <- c
	<-g.goOn
	c.String(200, "done")
}

// background runs f, and returns its result once it is asked for.
func background[T any](f func() T) func() T {
	c := make(chan T, 1)
	go func() { c <- f() }()
	return func() T { return <-c }
}

func text(s string) gin.HandlerFunc { return func(c *gin.Context) { c.String(200, s) } }
