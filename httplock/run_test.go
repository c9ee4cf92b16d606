package httplock

import (
	"context"
	"errors"
	"fmt"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/testutil"
)

// gin pools its contexts: nothing of the middleware may touch one after its request. For the race detector.
func TestPooledContexts(t *testing.T) {
	nodes := testutil.NewNodes(t, 1)
	m := middleware(t, patientLocker(t, nodes), ByParam("id"), WithIdempotency(false), WithMaxWait(20*time.Millisecond), WithMaxWaiters(3))
	r := router()
	r.PUT("/orders/:id", m.Lock, func(c *gin.Context) {
		if c.Query("panic") != "" {
			panic("a bug")
		}
		c.String(200, c.Param("id")+c.Query("n"))
	})
	s := serve(t, r)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for j := range 20 {
				ctx, cancel := context.WithCancel(t.Context())
				if j%5 == 4 {
					time.AfterFunc(time.Duration(i*j)*20*time.Microsecond, cancel)
				}
				id := fmt.Sprint(j % 3)
				url := fmt.Sprintf("%s/orders/%s?n=%d.%d", s.URL, id, i, j)
				if j%7 == 6 {
					url += "&panic=1"
				}
				got := do(ctx, "PUT", url, "body", "Idempotency-Key", fmt.Sprintf("%d-%d", i, j))
				if got.status == 200 && got.body != fmt.Sprintf("%s%d.%d", id, i, j) {
					t.Errorf("%s answered %q", url, got.body)
				}
				cancel()
			}
		})
	}
	all.Wait()
}

// The files of an upload are removed when its request is over, as without the middleware.
func TestUploadsLeaveNoFiles(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	m := middleware(t, patientLocker(t, testutil.NewNodes(t, 1)), ByParam("id"), WithIdempotency(false))
	spooled := 0
	upload := func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseMultipartForm(1); err != nil {
			t.Error(err)
		}
		files, _ := os.ReadDir(os.TempDir())
		spooled += len(files)
	}
	r := router()
	r.POST("/orders/:id", m.Lock, func(c *gin.Context) { upload(c.Writer, c.Request) })
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}", m.LockHandler(http.HandlerFunc(upload)))
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

// The end of a request's context for whatever reason is told to a client that is there.
func TestContextEndsWhileWaiting(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"), WithMaxWait(time.Hour))
		ctx, shutDown := context.WithCancelCause(context.Background())
		s := w.serveWith(&http.Server{Handler: hosts[0].handler(m, keyOf), BaseContext: func(net.Listener) context.Context { return ctx }})
		lease, err := w.locker.Acquire(w.Context(), routeKey("/orders/{id}", "1"))
		if err != nil {
			w.Fatal(err)
		}
		var waiting []func() reply
		for _, protocol := range protocols {
			waiting = append(waiting, background(func() reply { return s.do(context.Background(), protocol, "PUT", "/orders/1", "") }))
		}
		synctest.Wait()
		shutDown(errors.New("terminated"))
		for _, got := range waiting {
			got().expect(w, 503, EventGone)
		}
		lease.Release(w.Context())
	})
}

// A deadlined connection notes what its read deadline is set to.
type deadlined struct {
	recorder
	set int
}

func (d *deadlined) SetReadDeadline(time.Time) error {
	d.set++
	return nil
}

// The read deadline of a connection is the server's and that of middlewares further out.
func TestReadDeadlineIsLeftAlone(t *testing.T) {
	bubble(t, 1, func(w *world) {
		h := hosts[1].handler(middleware(w, w.locker, ByParam("id")), keyOf)
		d := &deadlined{recorder: recorder{httptest.NewRecorder()}}
		h.ServeHTTP(d, httptest.NewRequest("PUT", "/orders/1", strings.NewReader("body")))
		if d.set != 0 || d.Code != 200 {
			w.Errorf("set %d times, %d", d.set, d.Code)
		}
	})
}
