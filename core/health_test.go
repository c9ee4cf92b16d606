package core

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/internal/logbook"
	"github.com/lockkit/lockkit/internal/race"
	"github.com/lockkit/lockkit/testutil"
)

// These tests check what is done about nodes while no caller asks them, and what is logged about them.

// A node that was a replica when it was first examined takes part once it is a master.
func TestUnfitNodeComesBack(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		w.process() // provisions the nodes
		var log logbook.Book
		w.nodes[1].Down()
		p := w.stranger(WithLogger(log.Logger()))
		w.nodes[1].SetReplica(true)
		w.nodes[1].Up()
		w.release(w.acquire(p, "k"))
		time.Sleep(time.Minute)
		log.Want(t, 1, "level=ERROR", "unfit", "node=1 ", "slave")
		if n := w.nodes[1].Calls()["INFO"]; n < 5 || n > 9 { // one of them by the other process
			t.Errorf("%d looks in a minute at a node that is unfit", n)
		}

		w.nodes[0].Down()
		_, err := p.TryAcquire(t.Context(), "k")
		wantErr(t, err, ErrUnavailable)
		wantInError(t, err, "slave of another server")

		w.nodes[1].SetReplica(false)
		time.Sleep(node.RecheckEvery + time.Second)
		log.Want(t, 1, "level=INFO", "fit and takes part again", "node=1 ")
		w.release(w.acquire(p, "k"))
	})
}

// If two nodes turn out to be one server after New, only one of them takes part, however often they are examined.
func TestSameServerTwiceStaysOne(t *testing.T) {
	bubble(t, 2, func(t *testing.T, w *world) {
		p := w.sameServerTwice()
		for range 20 {
			time.Sleep(node.RecheckEvery / 2)
			if _, err := p.reaches(0, 1).TryAcquire(t.Context(), "k"); err == nil {
				t.Fatal("one server takes part as two nodes")
			}
			p.mend()
		}
		w.release(w.acquire(p, "k")) // with the other server
	})
}

// Nodes that are restarted one after another while no caller asks for a lock vote when the next caller does.
func TestQuietRollingRestart(t *testing.T) {
	bubbles(t, 3, map[string]func(*testutil.Node){
		"empty": (*testutil.Node).RestartEmpty, "with its data": (*testutil.Node).Restart, "flushed": (*testutil.Node).Flush,
	}, func(t *testing.T, w *world, restart func(*testutil.Node)) {
		p := w.process()
		w.release(w.acquire(p, "k"))
		for _, n := range w.nodes {
			time.Sleep(p.p.MaxTTL + p.e.TouchEvery())
			restart(n)
		}
		time.Sleep(time.Second) // the last one is still in quarantine
		w.release(w.acquire(p, "k"))
	})
}

// Nodes are touched only while they are idle, and not often. The observer gets the replies.
func TestTouches(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		o := &pollster{}
		p := w.process(WithObserver(o.observer()))
		lease := w.acquire(p, "k")
		time.Sleep(time.Minute)
		for i := range w.nodes {
			if n := len(o.verdicts(OpTouch, i)); n > 0 {
				t.Errorf("%d touches of node %d, which is asked all the time", n, i)
			}
		}

		w.release(lease)
		time.Sleep(time.Minute)
		for i := range w.nodes {
			if got := o.verdicts(OpTouch, i); len(got) < 11 || len(got) > 12 || slices.ContainsFunc(got, func(v Verdict) bool { return v != VerdictGranted }) {
				t.Errorf("touches of node %d in an idle minute: %v", i, got)
			}
		}

		w.nodes[1].Flush()
		w.nodes[2].Down()
		time.Sleep(6 * time.Second)
		if got := o.verdicts(OpTouch, 1); got[len(got)-1] != VerdictQuarantined {
			t.Errorf("node 1, which was flushed: %v", got)
		}
		if got := o.verdicts(OpTouch, 2); got[len(got)-1] != VerdictFailed {
			t.Errorf("node 2, which is down: %v", got)
		}

		if ops, _ := o.of(t, OpTouch); len(ops) > 0 {
			t.Errorf("%d operations begun", len(ops))
		}

		p.Close(t.Context())
		before := w.requests()
		time.Sleep(time.Minute)
		if n := w.requests() - before; n > 0 {
			t.Errorf("%d requests after Close", n)
		}
	})
}

// Nodes are not touched without the guard, because there is no quarantine to begin.
func TestNoTouchesWithoutTheGuard(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		w.process(WithRestartGuard(false))
		before := w.requests()
		time.Sleep(time.Hour)
		if n := w.requests() - before; n > 0 {
			t.Errorf("%d requests", n)
		}
	})
}

// clusterOfOne returns the client of a Cluster with one server.
func clusterOfOne(n *testutil.Node) *redis.ClusterClient {
	return redis.NewClusterClient(&redis.ClusterOptions{
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: n.Name()}}}}, nil
		},
		NewClient: func(o *redis.Options) *redis.Client {
			return n.ClientWith(func(own *redis.Options) { own.MaxRetries = -1 })
		},
		MaxRedirects: -1,
	})
}

// A Cluster has a guard record in each of its buckets. All are touched, one at a time.
func TestTouchesOfACluster(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		n := w.nodes[0]
		for _, source := range coretest.Sources() {
			must(n.Exec("SCRIPT", "LOAD", source))
		}
		client := clusterOfOne(n)
		defer client.Close()

		o := &pollster{}
		l := must(New([]redis.UniversalClient{client}, WithRestartGuard(true), WithObserver(o.observer()), quietly))
		defer l.Close(over())
		pass := l.e.TouchEvery()
		if pass < 16*time.Second {
			t.Errorf("a pass takes %v", pass)
		}

		start := time.Now()
		var last time.Time
		n.OnRequest(func([]string) testutil.Action {
			if time.Since(last) < 100*time.Millisecond {
				t.Errorf("two requests within %v, after %v", time.Since(last), time.Since(start))
			}
			last = time.Now()
			return testutil.Action{}
		})

		time.Sleep(2*pass + time.Second)
		n.OnRequest(nil)
		guards := 0
		for _, key := range n.Keys() {
			if strings.HasSuffix(key, "}g") {
				guards++
			}
		}
		if guards != wire.Buckets {
			t.Errorf("%d guard records", guards)
		}
		if got := len(o.verdicts(OpTouch, 0)); got < wire.Buckets || got > 2*wire.Buckets+2 {
			t.Errorf("%d touches", got)
		}
	})
}

// A connection that is lost now and then is not logged, and each change of a node's state is logged once.
func TestLogOfAFlappingNode(t *testing.T) {
	race.SkipSweep(t)
	t.Run("one request in a hundred", func(t *testing.T) { bubble(t, 3, oneRefusalInAHundred) })
	t.Run("up and down", func(t *testing.T) { bubble(t, 3, upAndDown) })
}

func oneRefusalInAHundred(t *testing.T, w *world) {
	var log logbook.Book
	p := w.process(WithLogger(log.Logger()))
	for i, k := range p.links {
		n := i * 33
		k.Decide(func(wire.Op, coretest.Sent) coretest.Fate { n++; return coretest.Fate{Refuse: n%100 == 0} })
	}
	for range 1000 {
		if lease, err := p.TryAcquire(t.Context(), "k"); err == nil {
			lease.Release(t.Context())
		}
		time.Sleep(5 * time.Millisecond)
	}
	log.Want(t, 0, "node=")
	if lines := log.Count(); lines > 100 {
		t.Errorf("%d lines in five seconds", lines)
	}
}

func upAndDown(t *testing.T, w *world) {
	var log logbook.Book
	p := w.process(WithLogger(log.Logger()))
	for range 3 {
		for _, refuse := range []bool{true, false} {
			p.links[1].Set(coretest.Fate{Refuse: refuse})
			for range 12 { // each for longer than the pause between two probes
				w.everywhere(p, "k")
				time.Sleep(250 * time.Millisecond)
			}
		}
	}
	log.Want(t, 3, "level=WARN", "does not vote", "node=1 ")
	log.Want(t, 3, "level=INFO", "votes again", "node=1 ")
	log.Want(t, 6, "node=")
}

// If a node is not asked any more, or does not answer in time, the error says how the node failed before.
func TestCauseIsKept(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		p.refused()
		for range node.MaxFailures {
			p.TryAcquire(t.Context(), "k")
			coretest.RefusalsHeard()
		}

		_, err := p.TryAcquire(t.Context(), "k")
		wantErr(t, err, node.ErrNotAsked)
		wantErr(t, err, coretest.ErrRefused)

		p.cut()
		time.Sleep(2 * p.p.nodeTimeout)
		_, err = p.TryAcquire(t.Context(), "k")
		wantErr(t, err, node.ErrNoAnswer)
		wantErr(t, err, coretest.ErrRefused)

		p.mend()
		time.Sleep(time.Minute)
		w.release(w.acquire(p, "k"))

		synctest.Wait()
		for i, n := range p.e.Nodes {
			if err := p.e.Buckets[0].NoAnswerError(i); errors.Is(err, coretest.ErrRefused) {
				t.Errorf("%v remembers what is over: %v", n, err)
			}
		}
	})
}

// Replies that were under way for long say little about a node's clock.
func TestClockOffsetOfLateReplies(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		w.release(w.acquire(p, "k"))

		for _, n := range w.nodes {
			n.SlowReplies(400 * time.Millisecond)
		}
		for range 3 {
			w.release(w.acquire(p, "k"))
		}
		time.Sleep(time.Second)
		if offset, _ := p.ClockOffset(); offset != 0 {
			t.Errorf("offset %v, the clocks agree", offset)
		}

		for range 10 { // if all replies are late, the error is at most half of the delay
			w.release(w.acquire(p, "k"))
		}
		time.Sleep(time.Second)
		if offset, _ := p.ClockOffset(); offset.Abs() > 200*time.Millisecond {
			t.Errorf("offset %v, the clocks agree", offset)
		}
	})
}

// A foreign value under one key does not count as a failure of the node.
func TestForeignKeyIsNoTroubleOfTheNode(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		var log logbook.Book
		p := w.process(WithLogger(log.Logger()))
		for _, n := range w.nodes {
			n.Exec("HSET", p.e.Keys.Resource("type"), "a", "hash")
			n.Exec("SET", p.e.Keys.Resource("layout"), "\x09foreign")
		}
		for range 2 * node.MaxFailures {
			for key, want := range map[string]string{"type": "WRONGTYPE", "layout": "LAYOUT"} {
				_, err := p.TryAcquire(t.Context(), key)
				wantErr(t, err, ErrUnavailable)
				wantInError(t, err, want)
			}
		}
		w.release(w.acquire(p, "k"))
		log.Want(t, 0, "does not vote")
	})
}

// The quarantine of a new node begins with New, and not with the first request for a key. Provision can still declare
// the node new.
func TestQuarantineBeginsWithNew(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		for _, n := range w.nodes {
			n.RestartEmpty()
		}
		l, err := New(testutil.Clients(w.nodes), quietly)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close(over())
		synctest.Wait()

		w.nodes[0].Flush() // it has no guard record now
		if err := l.Provision(t.Context()); err != nil {
			t.Error(err)
		}

		for _, n := range w.nodes {
			n.RestartEmpty()
		}
		next := must(New(testutil.Clients(w.nodes), quietly))
		defer next.Close(over())
		time.Sleep(10*time.Second + time.Millisecond) // the max TTL
		w.release(w.acquire(&process{Locker: next}, "k"))
	})
}
