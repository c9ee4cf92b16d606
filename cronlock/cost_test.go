package cronlock

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
)

// requests returns the number of requests to all nodes: scripts, and reads of records, each of which has one TIME
// command.
func (w *world) requests() (n int) {
	for _, node := range w.nodes {
		n += node.Calls()["EVALSHA"] + node.Calls()["TIME"]
	}
	return n
}

// A tick of a job on three replicas takes at most 155 requests to all of three nodes.
func TestRequestsPerTick(t *testing.T) {
	for name, host := range map[string]bool{"engine": false, "hosts": true} {
		bubbleOf(t, name, 90*time.Second, func(t *testing.T, w *world) {
			w.replicas(3, plan{host: host})
			if err := w.first.Close(t.Context()); err != nil { // an open Locker sends requests, too
				t.Fatal(err)
			}

			till(5*time.Minute + 30*time.Second)
			before := w.requests()
			const n = 10
			time.Sleep(n * time.Minute)
			w.want(ticks(at(time.Minute), time.Minute, 15)...)

			each := (w.requests() - before) / n
			if t.Logf("%d requests for each tick", each); each > 155 {
				t.Error("too many")
			}
		})
	}
}

// takeTurns takes all poll slots, so that claims must wait for one.
func (r *replica) takeTurns() {
	for range maxConcurrentPolls {
		r.service.pollSlots <- struct{}{}
	}
}

// At most maxConcurrentPolls claims for ticks send requests at a time. A run by hand, and a run that goes on, take no
// poll slot.
func TestClaimsTakeTurns(t *testing.T) {
	bubble(t, 2*time.Minute, func(t *testing.T, w *world) {
		r := w.replica("a", plan{job: uncalled})
		r.takeTurns()
		if err := r.RunNow(t.Context()); err != nil {
			t.Errorf("RunNow: %v", err)
		}

		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if err := r.RunDue(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("RunDue without a turn: %v", err)
		}

		<-r.service.pollSlots
		var taken atomic.Int64 // the most slots taken during requests
		w.each(func(n *testutil.Node) {
			n.OnCall(func(int, []string) string { taken.Store(max(taken.Load(), int64(len(r.service.pollSlots)))); return "" })
		})

		c, err := r.newClaim(t.Context(), false)
		if err != nil || taken.Load() != maxConcurrentPolls || len(r.service.pollSlots) != maxConcurrentPolls-1 {
			t.Errorf("%v; %d turns were taken, and now %d", err, taken.Load(), len(r.service.pollSlots))
		}
		if err := errors.Join(c.Call(), c.End()); err != nil {
			t.Error(err)
		}
		w.want(time.Time{}, at(2*time.Minute))
	})
}

// If a job is removed or its Service closed, a claim that waits for a poll slot ends at once with ErrClosed, and no run
// starts later.
func TestEndWhileAClaimWaitsForItsTurn(t *testing.T) {
	for name, end := range map[string]func(r *replica){"Remove": func(r *replica) { r.Remove() }, "Close": (*replica).end} {
		bubbleOf(t, name, 2*time.Minute, func(t *testing.T, w *world) {
			r := w.replica("a", plan{job: uncalled})
			r.takeTurns()
			told := make(chan error, 1)
			go func() { told <- r.RunDue(t.Context()) }()
			till(2*time.Minute + time.Second)
			end(r)
			if err := <-told; !errors.Is(err, core.ErrClosed) || !time.Now().Equal(at(2*time.Minute+time.Second)) {
				t.Errorf("RunDue: %v, at %v", err, time.Now())
			}
			till(5 * time.Minute)
			w.want()
		})
	}
}

// The first poll of a new job reads the records of many ticks with few requests. A service may have hundreds of jobs,
// and all its replicas may start at once.
func TestFirstLookIsBounded(t *testing.T) {
	bubble(t, time.Hour, func(t *testing.T, w *world) {
		r := w.replica("a", plan{schedule: Every(time.Hour), job: []JobOption{AtLeastOnce(3)}})
		var requests, keys atomic.Int32
		r.locks.Link.OnRequest(func(cmd redis.Cmder) testutil.Action {
			switch cmd.Name() {
			case "time": // once in a request
				requests.Add(1)
			case "get":
				keys.Add(1)
			}
			return testutil.Action{}
		})
		time.Sleep(10 * time.Second)
		w.want(at(time.Hour))

		nodes := int32(len(w.nodes))
		t.Logf("%d requests to a node for %d keys", requests.Load()/nodes, keys.Load()/nodes)
		if n := keys.Load() / nodes; n < 2*maxLookback {
			t.Errorf("%d keys were read from a node, want two for each of %d ticks", n, maxLookback)
		}
		if n := requests.Load() / nodes; n > 15 {
			t.Errorf("%d requests to a node, want at most 15", n)
		}
	})
}

// A run by hand during a poll is not refused.
func TestRunNowDuringALook(t *testing.T) {
	bubble(t, 30*time.Minute, func(t *testing.T, w *world) {
		w.each(func(n *testutil.Node) { n.SlowReplies(5 * time.Millisecond) })
		r := w.replica("a", plan{schedule: Every(time.Hour)})
		for range 20 { // the first poll of a new job reads many earlier ticks
			time.Sleep(10 * time.Millisecond)
			if err := r.RunNow(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		w.each((*testutil.Node).Up)
	})
}
