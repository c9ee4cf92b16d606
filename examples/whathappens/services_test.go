package whathappens

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/leader"
	"github.com/lockkit/lockkit/cronlock"
	"github.com/lockkit/lockkit/httplock"
	"github.com/lockkit/lockkit/testutil"
	"github.com/lockkit/lockkit/testutil/locktest"
)

// A page is the text of docs/what-happens.md.
type page string

func open(t *testing.T) page {
	t.Helper()
	text, err := os.ReadFile("../../docs/what-happens.md")
	if err != nil {
		t.Fatal(err)
	}
	return page(text)
}

// says checks that the row of the page that names the test has the figures.
func (p page) says(t *testing.T, test string, figures ...string) {
	t.Helper()
	for line := range strings.Lines(string(p)) {
		if !strings.Contains(line, test) {
			continue
		}
		for _, figure := range figures {
			if !strings.Contains(line, figure) {
				t.Errorf("the row of %s does not say %q", test, figure)
			}
		}
		return
	}
	t.Errorf("no row names %s", test)
}

// While the nodes are away, HTTP clients get 409 or 503 after the full wait. Once the nodes are back, they get 200.
func TestRequestsWhileRedisIsAway(t *testing.T) {
	open(t).says(t, "`TestRequestsWhileRedisIsAway`", "503 after 5 s", "200")
	t.Run("3 nodes", func(t *testing.T) { synctest.Test(t, func(t *testing.T) { requestsWhileAway(t, 3) }) })
	t.Run("1 node", func(t *testing.T) { synctest.Test(t, func(t *testing.T) { requestsWhileAway(t, 1) }) })
}

// An order is behind a route that serves one request at a time, because all requests lock the key "42".
type order struct {
	route  http.Handler
	inside chan bool // closed by the request that stays until its context ends
}

func newOrder(t *testing.T, l *locktest.Locker) *order {
	m, err := httplock.New(l.Locker, "shop", httplock.ByKey(func(*http.Request) (string, error) { return "42", nil }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	o, mux := &order{inside: make(chan bool)}, http.NewServeMux()
	mux.Handle("PUT /order", m.LockHandler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery == "stay" {
			close(o.inside)
			<-r.Context().Done()
		}
	})))
	o.route = mux
	return o
}

// ask returns the status of a request, and how long the request took.
func (o *order) ask(url string) (status int, took time.Duration) {
	began, w := time.Now(), httptest.NewRecorder()
	o.route.ServeHTTP(w, httptest.NewRequest(http.MethodPut, url, nil))
	return w.Code, time.Since(began)
}

// fullWait is how long a request takes that is refused at the end of its wait.
var fullWait = span{5 * time.Second, 5100 * time.Millisecond}

func requestsWhileAway(t *testing.T, n int) {
	l := locktest.NewOn(t, testutil.NewNodes(t, n))
	o := newOrder(t, l)
	ask := func(url string, want int, within span) {
		status, took := o.ask(url)
		if t.Log(status, took); status != want || took < within.from || took > within.to {
			t.Errorf("%s: %d after %v, want %d within %v", url, status, took, want, within)
		}
	}

	ask("/order", http.StatusOK, atOnce)
	stays := make(chan bool)
	go func() {
		defer close(stays)
		// The lease of this request is lost.
		ask("/order?stay", http.StatusServiceUnavailable, span{9300 * time.Millisecond, 12900 * time.Millisecond})
	}()
	<-o.inside

	waits := make(chan bool)
	go func() {
		defer close(waits)
		time.Sleep(3 * time.Second)
		ask("/order", http.StatusConflict, fullWait) // it waits when the nodes go away
	}()
	ask("/order", http.StatusConflict, fullWait)

	elsewhere := newOrder(t, l.Replica())
	go func() {
		time.Sleep(time.Second)
		away(30 * time.Second)(l)
	}()
	asks := make(chan bool)
	go func() {
		defer close(asks)
		// The nodes have reported the holder to this replica before they go away.
		status, took := elsewhere.ask("/order")
		if status != http.StatusServiceUnavailable || took < fullWait.from || took > fullWait.to {
			t.Errorf("at another replica: %d after %v", status, took)
		}
	}()

	ask("/order", http.StatusConflict, fullWait) // the holder is in this process
	<-waits
	<-asks
	<-stays

	for range 3 {
		ask("/order", http.StatusServiceUnavailable, fullWait)
	}

	time.Sleep(11 * time.Second)
	ask("/order", http.StatusOK, span{0, time.Second})
}

// While the key of a killed replica is taken, HTTP clients get 409 after the full wait, or 200 if the key is free by
// then.
func TestRequestsAfterAKill(t *testing.T) {
	open(t).says(t, "`TestRequestsAfterAKill`", "409", "5 s")
	synctest.Test(t, func(t *testing.T) {
		killed := locktest.New(t)
		if _, err := killed.Acquire(context.WithoutCancel(t.Context()), "42"); err != nil {
			t.Fatal(err)
		}
		o := newOrder(t, killed.Replica())
		time.Sleep(25 * time.Second)
		struck := time.Now()
		killed.Link.Kill()
		var requests sync.WaitGroup
		for range 12 {
			requests.Go(func() {
				status, took := o.ask("/order")
				switch at := time.Since(struck); {
				case status == http.StatusOK && at > taken.from:
				case status == http.StatusConflict && took >= fullWait.from && took <= fullWait.to && at < taken.to:
				default:
					t.Errorf("%d after %v, %v after the kill", status, took, at)
				}
			})
			time.Sleep(time.Second)
		}
		requests.Wait()
	})
}

// Of the ticks that fall due while the nodes are away, the latest one starts when the nodes are back. The others are
// superseded.
func TestTicksWhileRedisIsAway(t *testing.T) {
	open(t).says(t, "`TestTicksWhileRedisIsAway`", "within 2 s")
	synctest.Test(t, func(t *testing.T) {
		l := locktest.New(t)
		cron, err := cronlock.New(l.Locker, "billing")
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		type start struct{ tick, at time.Duration }
		starts := make(chan start, 100)
		_, err = cron.Add("invoices", cronlock.Every(10*time.Second), func(ctx context.Context) error {
			run, _ := cronlock.FromContext(ctx)
			starts <- start{run.Tick.Sub(began), time.Since(began)}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}

		time.Sleep(25 * time.Second)
		away(30 * time.Second)(l) // ticks fall due at 30, 40 and 50 s
		time.Sleep(40 * time.Second)
		if err := cron.Close(t.Context()); err != nil {
			t.Error(err)
		}

		close(starts)
		var ticks []time.Duration
		for s := range starts {
			t.Log(s)
			ticks = append(ticks, s.tick)
			if s.tick == 50*time.Second && (s.at < 55*time.Second || s.at > 57*time.Second) {
				t.Errorf("the tick of 50 s started at %v", s.at)
			}
		}
		if len(ticks) != 5 || ticks[3] != 50*time.Second {
			t.Errorf("started: %v", ticks)
		}
	})
}

// If a replica is killed in a run, another replica starts the tick again if AtLeastOnce allows another start. Otherwise
// it starts the next tick.
func TestReplicaKilledInATick(t *testing.T) {
	open(t).says(t, "`TestReplicaKilledInATick`", "6 to 10 s", "11 s")
	synctest.Test(t, func(t *testing.T) {
		killed := locktest.New(t)
		survivor := killed.Replica()
		starts := make(chan cronlock.Run, 10)
		service := func(l *locktest.Locker, work func(ctx context.Context) error) *cronlock.Service {
			cron, err := cronlock.New(l.Locker, "billing")
			for name, starts := range map[string]int{"at most once": 1, "at least once": 2} {
				_, failed := cron.Add(name, cronlock.Every(time.Minute), work, cronlock.AtLeastOnce(starts))
				err = errors.Join(err, failed)
			}
			if err != nil {
				t.Fatal(err)
			}
			return cron
		}

		// The first replica starts the tick of midnight, and has renewed its leases when it is killed.
		dies := service(killed, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		time.Sleep(25 * time.Second)
		lives := service(survivor, func(ctx context.Context) error {
			run, _ := cronlock.FromContext(ctx)
			starts <- run
			return nil
		})

		killed.Link.Kill()
		struck := time.Now()
		again := <-starts
		if took := time.Since(struck); again.Job != "at least once" || again.Attempt != 2 || took < 6*time.Second || took > 11*time.Second {
			t.Errorf("%+v after %v", again, took)
		}

		for range 2 {
			if next := <-starts; next.Attempt != 1 || !next.Tick.After(again.Tick) {
				t.Errorf("then %+v", next)
			}
		}

		if err := errors.Join(lives.Close(t.Context()), dies.Close(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// The first lock on new nodes waits for the max TTL, unless the nodes are declared new.
func TestNewNodes(t *testing.T) {
	open(t).says(t, "`TestNewNodes`", "10 s")
	synctest.Test(t, func(t *testing.T) {
		first := func(l *core.Locker, want span) {
			t.Helper()
			began := time.Now()
			lease, err := l.Acquire(t.Context(), "account")
			took := time.Since(began)
			if t.Log(took, err); err != nil || took < want.from || took > want.to {
				t.Fatalf("the first lock: %v after %v", err, took)
			}
			if err := lease.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
		l, err := core.New(testutil.Clients(testutil.NewNodes(t, 3)))
		if err != nil {
			t.Fatal(err)
		}
		_, err = l.TryAcquire(t.Context(), "account")
		if op, _ := errors.AsType[*core.OpError](err); !errors.Is(err, core.ErrUnavailable) || op.RetryAfter < 9*time.Second {
			t.Errorf("on new nodes: %v", err)
		}
		first(l, span{9 * time.Second, 11 * time.Second})
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
		first(locktest.New(t).Locker, atOnce) // on nodes that are declared new
	})
}

// A stuck holder keeps its key, unless MaxHold ends its lease.
func TestStuckHolder(t *testing.T) {
	open(t).says(t, "`TestStuckHolder`", "10 s", "for ever")
	synctest.Test(t, func(t *testing.T) {
		l := locktest.New(t)
		ctx := context.WithoutCancel(t.Context())
		taken := func(key string) bool {
			err := l.TryDo(ctx, key, func(context.Context) error { return nil })
			if err != nil && !errors.Is(err, core.ErrHeld) {
				t.Errorf("%s: %v", key, err)
			}
			return err != nil
		}

		if _, err := l.Acquire(ctx, "unbounded"); err != nil {
			t.Fatal(err)
		}
		stuck, err := l.Acquire(ctx, "bounded", core.MaxHold(time.Minute))
		if err != nil {
			t.Fatal(err)
		}

		time.Sleep(time.Minute)
		if !errors.Is(context.Cause(stuck.Context()), core.ErrLost) {
			t.Error("MaxHold does not end the context")
		}
		time.Sleep(10 * time.Second)
		if taken("bounded") {
			t.Error("the key of a bounded hold is taken 10 s after its end")
		}

		time.Sleep(time.Hour)
		if !taken("unbounded") {
			t.Error("the key of an unbounded hold is free")
		}
	})
}

// A single server without the guard that restarts empty grants a held key again. The first holder learns of that by its
// next renewal.
func TestSingleServerRestartsEmpty(t *testing.T) {
	open(t).says(t, "`TestSingleServerRestartsEmpty`", "at once", "4 s")
	synctest.Test(t, func(t *testing.T) {
		l := locktest.NewOn(t, testutil.NewNodes(t, 1))
		ctx := context.WithoutCancel(t.Context())
		first, err := l.Acquire(ctx, "account")
		if err != nil {
			t.Fatal(err)
		}
		l.Nodes[0].RestartEmpty()
		began := time.Now()
		second, err := l.Replica().TryAcquire(ctx, "account")
		if err != nil {
			t.Fatalf("not granted again: %v", err)
		}
		<-first.Context().Done()
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("the first holder learnt of it after %v", took)
		}
		if err := second.Release(ctx); err != nil {
			t.Error(err)
		}
	})
}

// If the run of a cron job ends while the nodes are away for 3 s, its end is recorded, and the tick does not start
// again.
func TestRunEndsWhileRedisIsAwayFor3s(t *testing.T) {
	open(t).says(t, "`TestRunEndsWhileRedisIsAwayFor3s`", "3 s", "does not start again")
	synctest.Test(t, func(t *testing.T) {
		l := locktest.New(t)
		var starts, ends atomic.Int32
		work := func(context.Context) error {
			starts.Add(1)
			time.Sleep(20 * time.Second)
			go away(3 * time.Second)(l)
			time.Sleep(time.Second) // the run ends during the outage
			ends.Add(1)
			return nil
		}
		for _, replica := range []*locktest.Locker{l, l.Replica()} {
			cron, err := cronlock.New(replica.Locker, "billing")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := cron.Add("invoices", cronlock.Every(time.Minute), work, cronlock.AtLeastOnce(3)); err != nil {
				t.Fatal(err)
			}
			defer cron.Close(t.Context())
		}
		time.Sleep(5*time.Minute + 50*time.Second) // beginning at a tick
		if starts.Load() != 6 || ends.Load() != 6 {
			t.Errorf("%d starts and %d ends of 6 ticks", starts.Load(), ends.Load())
		}
	})
}

// If a leader closes its Service during a long run, another replica leads and starts the other jobs.
func TestLeaderClosesDuringARun(t *testing.T) {
	open(t).says(t, "`TestLeaderClosesDuringARun`", "within a second")
	synctest.Test(t, func(t *testing.T) {
		l := locktest.New(t)
		type process struct {
			cron    *cronlock.Service
			elector *leader.Elector
		}
		var all []process
		var minutely, long atomic.Int32
		for _, locks := range []*locktest.Locker{l, l.Replica()} {
			e, err := leader.New(locks.Locker, "billing")
			if err != nil {
				t.Fatal(err)
			}
			cron, err := cronlock.New(locks.Locker, "billing", cronlock.WithElector(e))
			if err != nil {
				t.Fatal(err)
			}
			_, err = cron.Add("report", cronlock.Every(5*time.Minute), func(ctx context.Context) error {
				long.Add(1)
				select {
				case <-time.After(20 * time.Minute):
				case <-ctx.Done():
				}
				return ctx.Err()
			})
			_, err2 := cron.Add("invoices", cronlock.Every(time.Minute), func(context.Context) error { minutely.Add(1); return nil })
			if err := errors.Join(err, err2); err != nil {
				t.Fatal(err)
			}
			all = append(all, process{cron, e})
		}

		time.Sleep(30 * time.Second)
		closing, other := all[0], all[1]
		if other.elector.IsLeader(t.Context()) == nil {
			closing, other = other, closing
		}

		closed := make(chan error, 1)
		go func() { closed <- closing.cron.Close(t.Context()) }()
		time.Sleep(time.Second)
		if err := other.elector.IsLeader(t.Context()); err != nil {
			t.Errorf("a second later: %v", err)
		}

		before := minutely.Load()
		time.Sleep(10 * time.Minute)
		if n := minutely.Load() - before; n != 10 || long.Load() != 1 {
			t.Errorf("%d of 10 ticks ran elsewhere; the long run was started %d times", n, long.Load())
		}

		if err := <-closed; err != nil {
			t.Error(err)
		}
		if err := errors.Join(other.cron.Close(t.Context()), other.elector.Close(t.Context()), closing.elector.Close(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// If all nodes restart empty, one after another, during a run, its tick does not start again.
func TestNodesAreEmptiedDuringARun(t *testing.T) {
	open(t).says(t, "`TestNodesAreEmptiedDuringARun`", "does not start again")
	synctest.Test(t, func(t *testing.T) {
		nodes := testutil.NewNodes(t, 3)
		l := locktest.NewOn(t, nodes)
		var starts atomic.Int32
		add := func(locks *locktest.Locker) *cronlock.Service {
			cron, err := cronlock.New(locks.Locker, "billing")
			if err != nil {
				t.Fatal(err)
			}
			_, err = cron.Add("invoices", cronlock.Every(time.Hour), func(context.Context) error {
				starts.Add(1)
				time.Sleep(6 * time.Minute)
				return nil
			}, cronlock.WithGrace(30*time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			return cron
		}

		first := add(l)
		time.Sleep(time.Minute) // the bubble begins at a tick
		for _, n := range nodes {
			n.RestartEmpty()
			time.Sleep(time.Minute)
		}

		second := add(l.Replica())
		time.Sleep(20 * time.Minute)
		if starts.Load() != 1 {
			t.Errorf("%d starts", starts.Load())
		}
		if err := errors.Join(first.Close(t.Context()), second.Close(t.Context())); err != nil {
			t.Error(err)
		}
	})
}
