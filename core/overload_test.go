package core

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/internal/race"
)

const crowd = 1100

// atOnce runs f for each of crowd keys at the same time. It returns the number of failures, and the error of one of
// them.
func atOnce(f func(key string) error) (failed int64, example error) {
	var n atomic.Int64
	var last atomic.Value
	var all sync.WaitGroup
	for i := range crowd {
		all.Go(func() {
			if err := f(fmt.Sprint("k", i)); err != nil {
				n.Add(1)
				last.Store(err)
			}
		})
	}
	all.Wait()
	example, _ = last.Load().(error)
	return n.Load(), example
}

// With many callers at once, healthy nodes do not seem unavailable, and no key stays taken.
func TestCrowd(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		p.set(coretest.Fate{Delay: 10 * time.Millisecond})
		var leases sync.Map
		if n, err := atOnce(func(key string) error {
			lease, err := p.TryAcquire(t.Context(), key)
			leases.Store(key, lease)
			return err
		}); n > 0 {
			t.Fatalf("%d acquisitions failed: %v", n, err)
		}
		if n, err := atOnce(func(key string) error {
			lease, _ := leases.Load(key)
			return lease.(*Lease).Release(t.Context())
		}); n > 0 {
			t.Errorf("%d releases failed: %v", n, err)
		}
		time.Sleep(time.Second) // until the slowest node has answered
		for i := range crowd {
			w.wantFree(p, fmt.Sprint("k", i), 0)
		}
	})
}

// Close with a context that has ended releases the keys of many leases.
func TestCloseFreesACrowd(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		for i := range crowd {
			w.acquire(p, fmt.Sprint("k", i))
		}
		p.set(coretest.Fate{Delay: 10 * time.Millisecond}, wire.OpRelease)
		wantErr(t, p.Close(over()), context.Canceled)
		time.Sleep(time.Second)
		for i := range crowd {
			w.wantFree(p, fmt.Sprint("k", i), 0)
		}
	})
}

// If a node has answered since, one request that was lost long ago does not make it look hung.
func TestOneLostRequestDoesNotOpenTheCircuit(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process()
		p.links[0].Next(coretest.Fate{Lose: true}, wire.OpAcquire)
		p.TryAcquire(t.Context(), "lost")
		time.Sleep(1500 * time.Millisecond)
		p.links[0].Set(coretest.Fate{Delay: time.Millisecond})
		var all sync.WaitGroup
		for i := range 3 {
			all.Go(func() {
				if _, err := p.TryAcquire(t.Context(), fmt.Sprint("k", i)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	})
}

// While one node is in quarantine for a long time, a call gets the key soon after another node is back.
func TestQuarantineIsNotSleptThrough(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process(WithMaxTTL(time.Hour))
		w.nodes[1].RestartEmpty()
		p.links[0].Set(coretest.Fate{Refuse: true})
		time.AfterFunc(time.Second, p.links[0].Mend)
		start := time.Now()
		lease := must(p.Acquire(t.Context(), "k"))
		if d := time.Since(start); d > 3*time.Second {
			t.Errorf("granted after %v, a quorum voted after 1s", d)
		}
		w.release(lease)
	})
}

// If MaxWait ends in the middle of a round, the error for a held key is still ErrHeld and not ErrUnavailable.
func TestMaxWaitEndsInsideARound(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		holder, p := w.process(), w.process(MaxWait(5*time.Second))
		lease := w.acquire(holder, "k")
		p.set(coretest.Fate{Delay: p.p.Window * 9 / 10}) // about every second wait ends in the middle of a round
		for range 20 {
			_, err := p.Acquire(t.Context(), "k")
			wantOnly(t, err, ErrHeld)
		}
		w.release(lease)
	})
}

// A slow logger does not cost a vote.
func TestSlowLogger(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process(WithLogger(slog.New(slowHandler{slog.DiscardHandler})))
		p.refused()
		p.TryAcquire(t.Context(), "x")

		// No background request is due then. If one failed just before, its node would be left alone for a second.
		time.Sleep(22 * time.Second)
		p.mend()
		w.release(w.acquire(p, "k"))
	})
}

type slowHandler struct{ slog.Handler }

func (slowHandler) Enabled(context.Context, slog.Level) bool { return true }

func (slowHandler) Handle(context.Context, slog.Record) error {
	time.Sleep(5 * time.Second)
	return nil
}

// Close waits for releases as long as nodes answer, however many leases there are. It closes its own clients only when
// no node has answered for the node timeout.
func TestCloseWaitsWhileNodesAnswer(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p, other := w.process(), w.process()
		const leases = 3*node.MaxBatch + 1
		for i := range leases {
			w.acquire(p, fmt.Sprint(i))
		}
		p.e.closeOwnClients = p.e.Nodes[0].Client.Close
		p.e.Nodes[0].Connections = 1 // the leases are released in one batch after another
		p.links[0].Set(coretest.Fate{ReplyDelay: p.p.nodeTimeout * 3 / 5}, wire.OpRelease)
		start := time.Now()
		p.Close(over())
		if d := time.Since(start); d < 2*p.p.nodeTimeout {
			t.Errorf("the schedule is off: closed within %v", d)
		}
		for i := range leases {
			w.wantFree(other, fmt.Sprint(i))
		}
	})
}

// Requests that end leases do not pile up for a node that hangs. They are dropped when the leases have run out.
func TestEndsForANodeThatHangs(t *testing.T) {
	race.SkipSweep(t)
	bubble(t, 3, func(t *testing.T, w *world) {
		w.connections, w.heeds = 10, true
		p := w.process()
		result, n := make([]byte, 60<<10), 0
		waiting := func() int {
			return reflect.ValueOf(p.e.Buckets[0]).Elem().FieldByName("lanes").Index(2).Elem().FieldByName("urgent").Len()
		}
		complete := func(d time.Duration) int {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
				n++
				must(p.OnceResult(t.Context(), Key("k", strconv.Itoa(n)), func(context.Context) ([]byte, error) { return result, nil }, Retention(5*time.Second)))
			}
			return waiting()
		}

		complete(time.Second)
		w.nodes[2].Hang()
		if early, late := complete(2*p.p.ttl), complete(2*p.p.ttl); late > early*5/4 || early == 0 {
			t.Errorf("%d requests wait for it, and %d later", early, late)
		}

		w.nodes[2].Up()
		w.pass(time.Minute)
		if left := waiting(); left != 0 {
			t.Errorf("%d requests are left", left)
		}
	})
}
