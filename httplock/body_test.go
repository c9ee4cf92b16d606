package httplock

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
)

// A trickle is a body of which a byte comes each second.
type trickle struct{ left int }

func (b *trickle) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	time.Sleep(time.Second) // of the bubble
	b.left--
	p[0] = 'b'
	return 1, nil
}

func callWithBody(ctx context.Context, r http.Handler, path string, b io.Reader, header ...string) reply {
	req := httptest.NewRequestWithContext(ctx, "POST", path, b)
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	w := recorder{httptest.NewRecorder()}
	r.ServeHTTP(w, req)
	res := w.Result()
	return reply{res.StatusCode, res.Header, w.Body.String(), nil, res.Proto}
}

// A body that does not come in time is refused: within what bounds the wait.
func TestSlowBodies(t *testing.T) {
	for name, c := range map[string]struct {
		opts  []Option
		limit time.Duration // of the request's context
		bytes int
		want  time.Duration // until 408; 0 = it comes in time
		once  time.Duration // likewise, behind Once
	}{
		"in time":          {bytes: 4},
		"by default":       {bytes: 100, want: 5 * time.Second, once: 5 * time.Second},
		"by body timeout":  {opts: []Option{WithBodyTimeout(2 * time.Second)}, bytes: 100, want: 2 * time.Second, once: 2 * time.Second},
		"by max wait":      {opts: []Option{WithMaxWait(2 * time.Second)}, bytes: 100, want: 2 * time.Second, once: 5 * time.Second},
		"without waiting":  {opts: []Option{WithMaxWait(0)}, bytes: 4},
		"by the deadline":  {limit: 4 * time.Second, bytes: 100, want: 3 * time.Second, once: 3 * time.Second},
		"for a key of its": {opts: []Option{WithMaxWait(0), ByFunc(func(*http.Request) (string, error) { return "k", nil })}, bytes: 100, want: 5 * time.Second, once: 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(w *world) {
				m := middleware(w, w.locker, append([]Option{ByHeader("X-Order")}, c.opts...)...)
				r := router()
				r.POST("/orders", m.Lock, text("ran"))
				r.POST("/once", m.Once, text("ran"))
				for path, want := range map[string]time.Duration{"/orders": c.want, "/once": c.once} {
					ctx := context.Background()
					if c.limit > 0 {
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, c.limit)
						defer cancel()
					}
					start := time.Now()
					got := callWithBody(ctx, r, path, &trickle{c.bytes}, "X-Order", "1", "Idempotency-Key", "k")
					if want == 0 {
						got.ok(w, "ran")
						continue
					}
					got.expect(w, 408, EventBodyTimeout)
					if took := time.Since(start); took != want {
						w.Errorf("%s: refused after %v, want %v", path, took, want)
					}
				}
			})
		})
	}
}

// Bodies that trickle take no place of those that wait, and have a bound of their own.
func TestSlowBodiesAreInNobodysWay(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"), WithMaxWaitersTotal(1), WithMaxBodies(51))
		r := router()
		r.POST("/orders/:id", m.Lock, text("ran"))
		var slow []func() reply
		for i := range 50 {
			slow = append(slow, background(func() reply {
				return callWithBody(context.Background(), r, fmt.Sprint("/orders/", i), &trickle{100})
			}))
		}
		synctest.Wait()
		call(r, "POST", "/orders/1", "body").ok(w, "ran")
		slow = append(slow, background(func() reply { return callWithBody(context.Background(), r, "/orders/1", &trickle{100}) }))
		synctest.Wait()
		call(r, "POST", "/orders/1", "body").expect(w, 503, EventOverloaded)
		empty := httptest.NewRecorder()
		if r.ServeHTTP(empty, newRequest("POST", "/orders/1")); empty.Code != 200 {
			w.Errorf("without a body: %d %s", empty.Code, empty.Body)
		}
		answer := slow[50]
		answer().expect(w, 408, EventBodyTimeout)
		for _, answer := range slow[:50] {
			answer().expect(w, 408, EventBodyTimeout)
		}
		call(r, "POST", "/orders/1", "body").ok(w, "ran") // nothing is left behind
	})
}

// A client that stays, and sends nothing more, gets its answer.
func TestStalledBodies(t *testing.T) {
	seen := &events{}
	m := middleware(t, patientLocker(t, testutil.NewNodes(t, 1), core.WithObserver(seen.Observer())), ByParam("id"), WithBodyTimeout(50*time.Millisecond))
	r := router()
	r.POST("/orders/:id", m.Lock, text("ran"))
	r.POST("/once/:id", m.Once, text("ran"))
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		s := httptest.NewUnstartedServer(r)
		s.EnableHTTP2 = protocol == "HTTP/2.0"
		s.StartTLS()
		t.Cleanup(s.Close)
		for _, path := range []string{"/orders/1", "/once/1"} {
			body, stalled := io.Pipe()
			got := background(func() reply {
				req, _ := http.NewRequest("POST", s.URL+path, body)
				req.Header.Set("Idempotency-Key", "k")
				res, err := s.Client().Do(req)
				if err != nil {
					return reply{err: err}
				}
				defer res.Body.Close()
				b, err := io.ReadAll(res.Body)
				return reply{res.StatusCode, res.Header, string(b), err, res.Proto}
			})
			fmt.Fprint(stalled, "half")
			answer := got()
			if answer.err != nil || answer.proto != protocol {
				t.Fatalf("%s: %+v", protocol, answer)
			}
			answer.expect(t, 408, EventBodyTimeout)
			stalled.Close()
		}
	}
}

// A deadlined connection is one as net/http has it, and notes what its read deadline is set to.
type deadlined struct {
	recorder
	set []time.Time
}

func (d *deadlined) SetReadDeadline(t time.Time) error {
	d.set = append(d.set, t)
	return nil
}

// The time for the body is that of what is read before the wait. For the rest the handler has its own: what the server
// gives it. At the end of a body net/http itself ends its deadline.
func TestReadDeadlines(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"), WithBodyLimit(10), WithBodyTimeout(time.Second))
		r := router()
		r.POST("/orders/:id", m.Lock, func(c *gin.Context) {
			b, err := io.ReadAll(c.Request.Body)
			c.String(200, "%s %v", b, err)
		})
		now := time.Now()
		for name, c := range map[string]struct {
			body   string
			server *http.Server
			want   []time.Time
		}{
			"no body":                          {"", nil, nil},
			"whole":                            {"0123456789", &http.Server{ReadTimeout: time.Minute}, []time.Time{now.Add(time.Second)}},
			"the server has less time":         {"0123456789", &http.Server{ReadTimeout: time.Millisecond}, []time.Time{now.Add(time.Millisecond)}},
			"in part":                          {"0123456789abc", &http.Server{}, []time.Time{now.Add(time.Second), {}}},
			"in part, with a timeout":          {"0123456789abc", &http.Server{ReadTimeout: time.Minute}, []time.Time{now.Add(time.Second), now.Add(time.Minute)}},
			"in part, and nothing of a server": {"0123456789abc", nil, []time.Time{now.Add(time.Second), {}}},
		} {
			var body io.Reader
			if c.body != "" {
				body = io.MultiReader(strings.NewReader(c.body)) // of no known length
			}
			req := httptest.NewRequest("POST", "/orders/1", body)
			if c.server != nil {
				req = req.WithContext(context.WithValue(req.Context(), http.ServerContextKey, c.server))
			}
			d := &deadlined{recorder: recorder{httptest.NewRecorder()}}
			r.ServeHTTP(d, req)
			if !slices.EqualFunc(d.set, c.want, time.Time.Equal) || d.Body.String() != c.body+" <nil>" {
				w.Errorf("%s: %v, want %v; %s", name, d.set, c.want, d.Body)
			}
		}
	})
}

// What reads the body for a key leaves it to the handler.
func TestKeysOfTheBody(t *testing.T) {
	bubble(t, 1, func(w *world) {
		type order struct {
			ID string `json:"id"`
		}
		byGin := ByFunc(func(c *gin.Context) (string, error) {
			var o order
			err := c.ShouldBindJSON(&o)
			return o.ID, err
		})
		byRequest := ByFunc(func(r *http.Request) (string, error) {
			var o order
			err := json.NewDecoder(r.Body).Decode(&o)
			return o.ID, err
		})
		m := middleware(w, w.locker, WithBodyLimit(100))
		handle := func(c *gin.Context) {
			b, err := io.ReadAll(c.Request.Body)
			lease, _ := core.FromContext(c.Request.Context())
			c.String(200, "%s %s %v", lease.Key(), b, err)
		}
		r := router()
		for path, opts := range map[string][]Option{
			"/gin": {byGin}, "/request": {byRequest}, "/json": {ByJSON("id")}, "/at-once": {byGin, WithMaxWait(0)},
		} {
			r.POST(path, with(w, m, opts...).Lock, handle)
			body := `{"id":"42", "more": [1,2,3]}`
			call(r, "POST", path, body).ok(w, fmt.Sprintf("%s %s <nil>", routeKey(path, "42"), body))
			call(r, "POST", path, "").expect(w, 400, EventKeyMissing)
			call(r, "POST", path, "{").expect(w, 400, EventKeyMissing)
			large := fmt.Sprintf(`{"more":"%s","id":"42"}`, strings.Repeat("x", 100))
			call(r, "POST", path, large).expect(w, 413, EventBodyTooLarge)
			callWithBody(context.Background(), r, path, io.MultiReader(strings.NewReader(large))).expect(w, 413, EventBodyTooLarge) // chunked
		}
		tenant := with(w, m, ByHeader("X-Order"), WithTenant(func(c *gin.Context) (string, error) { b, err := c.GetRawData(); return string(b), err }))
		r.POST("/tenant", tenant.Once, tenant.Lock, handle)
		call(r, "POST", "/tenant", "acme", "X-Order", "1", "Idempotency-Key", "k").ok(w, core.Key("http/route", service, "acme", "/tenant", "1")+" acme <nil>")
	})
}

// A key of a field is that field's, whatever else is in the body; what could be read in two ways is refused.
func TestByJSON(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByJSON("order", "id"))
		r := router()
		r.POST("/orders", m.Lock, keyOf)
		r.POST("/both/:id", with(w, m, ByParam("id"), ByJSON("item")).Lock, keyOf)
		for body, want := range map[string]string{
			`{"order":{"id":42}}`:                        "42",
			`{"order":{"id":"42"}}`:                      "42",
			`{"order":{"id":42.0}}`:                      "42.0",
			`{"order":{"id":true}, "id":7}`:              "true",
			` {"a":[{"order":1}],"order":{"id":"a b"}} `: "a b",
			`{"order":{"id":"\u0061"}}`:                  "a",
			`{"order":{"id":""}}`:                        "",
			`{"order":{"id":null}}`:                      "",
			`{"order":{"id":[1]}}`:                       "",
			`{"order":{"id":{"id":1}}}`:                  "",
			`{"order":7}`:                                "",
			`{"order":{}}`:                               "",
			`{}`:                                         "",
			`[]`:                                         "",
			`7`:                                          "",
			`{"order":{"id":1}} {"order":{"id":2}}`:      "",
			`{"order":{"id":1,"id":2}}`:                  "",
			`{"order":{"id":1,"ID":2}}`:                  "",
			`{"order":{"ID":2,"id":1}}`:                  "",
			`{"order":{"ID":2}}`:                         "",
			`{"order":{"id":1},"Order":{"id":2}}`:        "",
			`{"order":{"id":1`:                           "",
		} {
			got := call(r, "POST", "/orders", body)
			if want == "" {
				got.expect(w, 400, EventKeyMissing)
				continue
			}
			got.ok(w, routeKey("/orders", want))
		}
		call(r, "POST", "/both/1", `{"item":2}`).ok(w, routeKey("/both/:id", "1", "2"))
	})
}

// The files of an upload are removed when its request is over, as without the middleware.
func TestUploadsLeaveNoFiles(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	m := middleware(t, patientLocker(t, testutil.NewNodes(t, 1)), ByParam("id"), WithBodyLimit(1<<20))
	spooled := 0
	upload := func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseMultipartForm(1); err != nil {
			t.Error(err)
		}
		files, _ := os.ReadDir(os.TempDir())
		spooled += len(files)
	}
	r := router()
	r.POST("/orders/:id", m.Once, m.Lock, func(c *gin.Context) { upload(c.Writer, c.Request) })
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}", m.OnceHandler(m.LockHandler(http.HandlerFunc(upload))))
	for name, h := range map[string]http.Handler{"gin": r, "net/http": mux} {
		s := httptest.NewServer(h)
		for _, key := range []string{"", "k"} {
			var body strings.Builder
			form := multipart.NewWriter(&body)
			file, _ := form.CreateFormFile("file", "large")
			fmt.Fprint(file, strings.Repeat("x", 100<<10))
			form.Close()
			header := []string{"Content-Type", form.FormDataContentType()}
			if key != "" {
				header = append(header, "Idempotency-Key", key)
			}
			if got := do(t.Context(), "POST", s.URL+"/orders/1", body.String(), header...); got.status != 200 {
				t.Errorf("%s: %+v", name, got)
			}
		}
		s.Close() // waits for the ends of the requests
		if files, err := os.ReadDir(os.TempDir()); err != nil || len(files) > 0 {
			t.Errorf("%s: %d files are left, %v", name, len(files), err)
		}
	}
	if spooled != 4 {
		t.Errorf("%d uploads were spooled", spooled)
	}
}

// A hold ends when the option says, and as a loss, also if it is that of an Idempotency-Key.
func TestMaxHold(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"), WithMaxHold(time.Second))
		r := router()
		ended := make(chan time.Time, 3)
		handle := func(c *gin.Context) {
			ctx := c.Request.Context()
			<-ctx.Done()
			if ended <- time.Now(); ctx.Err() != context.Canceled || core.ClassOf(context.Cause(ctx)) != core.ClassLost {
				w.Errorf("%v, %v", ctx.Err(), context.Cause(ctx))
			}
			if c.Query("stuck") != "" {
				time.Sleep(time.Minute) // of the bubble
			}
			c.String(200, "late")
		}
		r.PUT("/orders/:id", m.Lock, handle)
		r.PUT("/once/:id", m.Once, handle)
		for _, path := range []string{"/orders/1", "/once/1"} {
			start := time.Now()
			call(r, "PUT", path, "", "Idempotency-Key", "k").expect(w, 503, EventLost)
			if held := time.Since(start); held != time.Second {
				w.Errorf("%s: held for %v", path, held)
			}
		}
		<-ended
		<-ended
		stuck := background(func() reply { return call(r, "PUT", "/orders/1?stuck=1", "") })
		synctest.Wait()
		start := time.Now()
		lease, err := w.locker.Acquire(w.Context(), routeKey("/orders/:id", "1"))
		if took := time.Since(start); err != nil || took < time.Second || took > time.Second+ttl {
			w.Errorf("%v after %v", err, took)
		} else {
			lease.Release(w.Context())
		}
		if at := (<-ended).Sub(start); at != time.Second {
			w.Errorf("the stuck handler was told after %v", at)
		}
		stuck().expect(w, 503, EventLost)
	})
}
