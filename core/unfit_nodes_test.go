package core

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/internal/logbook"
	"github.com/lockkit/lockkit/testutil"
)

// This file tests which servers can be nodes, when they begin to vote, and what the log and errors report about them.

// noHistory hides the replication history of a server, as some imitations of Redis do.
var noHistory = rewriteInfo{line: "master_replid:", by: "x:"}

func wantInError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error does not mention %q: %v", part, err)
		}
	}
}

func TestUnfitNodes(t *testing.T) {
	type fault = func([]redis.UniversalClient, []*testutil.Node)
	twice := func(clients []redis.UniversalClient, nodes []*testutil.Node) { clients[1] = nodes[0].Client() }
	replica := func(_ []redis.UniversalClient, nodes []*testutil.Node) { nodes[2].SetReplica(true) }
	evicting := func(_ []redis.UniversalClient, nodes []*testutil.Node) {
		nodes[2].SetEvictionPolicy("allkeys-lru", 1<<20)
	}
	imitation := func(clients []redis.UniversalClient, _ []*testutil.Node) {
		clients[3].(*redis.Client).AddHook(noHistory)
	}

	type row struct {
		faults []fault
		want   []string // nil: all nodes are fit
	}
	bubbles(t, 5, map[string]row{
		"same server twice": {faults: []fault{twice}, want: []string{"node 0 (", "node 1 (", "the same server is listed twice"}},
		"replica":           {faults: []fault{replica}, want: []string{"node 2 (", "slave of another server"}},
		"evicting":          {faults: []fault{evicting}, want: []string{"node 2 (", "allkeys-lru"}},
		"imitation":         {faults: []fault{imitation}, want: []string{"node 3 (", "master_replid"}},
		"all at once": {faults: []fault{twice, replica, evicting, imitation},
			want: []string{"listed twice", "slave of another server", "allkeys-lru", "node 3 (", "master_replid"}},
		"evicting nothing": {faults: []fault{
			func(_ []redis.UniversalClient, nodes []*testutil.Node) { nodes[2].SetEvictionPolicy("allkeys-lru", 0) }}},
	}, func(t *testing.T, w *world, c row) {
		clients := testutil.Clients(w.nodes)
		for _, f := range c.faults {
			f(clients, w.nodes)
		}
		l, err := New(clients, quietly)
		if c.want != nil {
			wantInError(t, err, c.want...)
			if strings.Contains(err.Error(), "node 4") {
				t.Errorf("nothing is wrong with node 4: %v", err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		l.Close(t.Context())
	})
}

// Without the restart guard, a server that shows no replication history can be a node.
func TestImitationWithoutTheGuard(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		client := w.nodes[0].ClientWith(nil)
		client.AddHook(noHistory)
		l := must(New([]redis.UniversalClient{client}, quietly))
		l.Close(t.Context())
	})
}

// A node that is away does not keep a process from starting. It is checked when it is back.
func TestNodeAwayAtTheStart(t *testing.T) {
	for name, away := range map[string]func(*testutil.Node){"down": (*testutil.Node).Down, "hung": (*testutil.Node).Hang} {
		pause := node.RecheckEvery // until the requests that hung are over, and the node is checked again
		if name == "down" {
			pause = 0 // the first answer of the node starts the check
		}
		bubbleNamed(t, name, 3, func(t *testing.T, w *world) {
			w.process() // declares the nodes new
			var log logbook.Book
			away(w.nodes[1])
			away(w.nodes[2])
			start := time.Now()
			p := w.stranger(WithLogger(log.Logger()))
			wantBetween(t, "New took", time.Since(start), 0, p.p.nodeTimeout)
			log.Want(t, 1, "starting without it", "node=1 ")
			log.Want(t, 1, "starting without it", "node=2 ")

			w.nodes[1].SetEvictionPolicy("volatile-ttl", 1<<20)
			w.nodes[1].Up()
			w.nodes[2].Up()
			time.Sleep(pause)
			w.release(w.acquire(p, "k"))
			time.Sleep(time.Second)
			log.Want(t, 1, "level=ERROR", "unfit", "node=1 ", "volatile-ttl")
			log.Want(t, 0, "unfit", "node=2 ")

			before := w.nodes[1].Calls()["EVALSHA"]
			w.nodes[0].Down()
			_, err := p.TryAcquire(t.Context(), "k")
			wantErr(t, err, ErrUnavailable)
			wantInError(t, err, "node 1 (", "volatile-ttl")
			w.nodes[0].Up()
			w.release(w.acquire(p, "k"))
			if n := w.nodes[1].Calls()["EVALSHA"] - before; n > 0 {
				t.Errorf("%d requests to an unfit node", n)
			}
		})
	}
}

// A process that runs does not notice that a node may evict keys from now on. No process can start any more, though a
// quorum of nodes is fit. If one node evicts the lease, the next renewal brings it back. If a quorum does, another process
// is granted the key beside the holder, which learns of it at its next renewal.
func TestEvictionAfterTheStart(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		var log logbook.Book
		p, other := w.process(WithLogger(log.Logger())), w.process()
		lease := w.acquire(p, "k")
		w.nodes[2].SetEvictionPolicy("volatile-lru", 1<<20)
		time.Sleep(time.Minute)
		succeeds(t, p.Ready(t.Context()))
		w.release(w.acquire(p, "another"))
		log.Want(t, 0, "node")
		_, err := New(testutil.Clients(w.nodes), quietly)
		wantInError(t, err, "node 2 (", "maxmemory-policy is volatile-lru")

		evict := func(node int) { w.nodes[node].Exec("DEL", lease.attempt.lock.Resource()) }
		evict(2)
		_, err = other.TryAcquire(t.Context(), "k")
		wantErr(t, err, ErrHeld)
		time.Sleep(4 * time.Second)
		w.everywhere(p, "another")
		wantValid(t, lease)

		evict(1)
		evict(2)
		second := w.acquire(other, "k")
		start := time.Now()
		testutil.Receive(t, lease.Context().Done())
		wantReason(t, lease.Lost(), LossTaken)
		wantBetween(t, "two processes held the key", time.Since(start), 0, 4*time.Second)
		wantValid(t, second)
	})
}

// sameServerTwice makes a process whose nodes 0 and 1 are one server. The server is down while New checks the nodes.
func (w *world) sameServerTwice() *process {
	w.t.Helper()
	w.process(WithRestartGuard(true)) // declares both servers new
	twice := &world{t: w.t, nodes: []*testutil.Node{w.nodes[0], w.nodes[0], w.nodes[1]}}
	w.nodes[0].Down()
	defer w.nodes[0].Up()
	return twice.stranger()
}

// Two clients of one server never have two votes, even if the server was down when New checked the nodes.
func TestSameServerTwiceFoundLate(t *testing.T) {
	bubble(t, 2, func(t *testing.T, w *world) {
		p := w.sameServerTwice()
		p.links[2].Set(coretest.Fate{Refuse: true})
		lease, err := p.TryAcquire(t.Context(), "k")
		if err == nil {
			t.Fatalf("one server of two granted a lease until %v", lease.ValidUntil())
		}
		wantErr(t, err, node.ErrSameServer)
		time.Sleep(5 * time.Second)
		w.wantFree(p, "k", 0)
	})
}

func TestProvision(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.stranger()
		synctest.Wait() // the checks of New are over
		for range 2 {   // repeating it is harmless
			succeeds(t, p.Provision(t.Context()))
		}
		w.release(w.acquire(p, "k"))

		w.nodes[1].Flush()
		p.TryAcquire(t.Context(), "other") // begins the quarantine
		synctest.Wait()
		time.Sleep(3 * time.Second)
		err := p.Provision(t.Context())
		wantErr(t, err, ErrUnavailable)
		wantInError(t, err, "node 1 (", "quarantined for another 7s")

		w.nodes[2].Hang()
		err = p.Provision(t.Context())
		wantInError(t, err, "node 1 (", "quarantined", "node 2 (", "no answer within the node timeout")
		if strings.Contains(err.Error(), "node 0") {
			t.Errorf("node 0 votes: %v", err)
		}

		ctx, cancel := context.WithCancelCause(t.Context())
		errHurry := errors.New("hurry")
		cancel(errHurry)
		wantErr(t, p.Provision(ctx), errHurry)
		w.nodes[2].Up()
	})
}

func TestProvisionAfterAFlushUnnoticed(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		holder, other := w.process(), w.process()
		w.holds(holder, "k")
		w.nodes[1].Promote() // as if a replica with the same guard record took over
		err := other.Provision(t.Context())
		wantErr(t, err, ErrUnavailable)
		wantInError(t, err, "node 1 (", "quarantined for another 10s")
	})
}

func TestProvisionWithoutTheGuard(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		w.process(WithRestartGuard(false))
		for _, n := range w.nodes {
			if calls := n.Calls(); calls["EVALSHA"]+calls["EVAL"] > 1 || len(n.Keys()) > 0 { // one is the probe of New
				t.Errorf("requests %v, keys %v", calls, n.Keys())
			}
		}
	})
}

// Nodes that were not declared new may have lost their memory. They vote only when every lease that they may have
// forgotten is over.
func TestWithoutProvision(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.stranger(WithMaxTTL(12*time.Second), untouched) // a background request would begin the quarantines
		const way = time.Millisecond
		p.set(coretest.Fate{Delay: way}) // all nodes are asked before the first has answered

		start := time.Now()
		_, err := p.TryAcquire(t.Context(), "k")
		wantErr(t, err, ErrUnavailable)
		wantInError(t, err, "quarantined for another 12s")
		if op, _ := errors.AsType[*OpError](err); op.RetryAfter != 12*time.Second {
			t.Errorf("retry after %v", op.RetryAfter)
		}
		lease := must(p.Acquire(t.Context(), "k"))
		wantBetween(t, "granted after", time.Since(start), 12*time.Second, 12*time.Second+p.p.retryMin+4*way)
		w.release(lease)
	})
}

// The log has one line when a node stops voting, and one when it votes again. A node in quarantine still answers
// releases, renewals and completions, but that is not reported as a recovery.
func TestLogOfANodeInTrouble(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		var log logbook.Book
		p := w.process(WithLogger(log.Logger()))
		held := w.acquire(p, "held")
		log.Want(t, 0, "node")
		done := 0
		use := func() {
			for i := range 20 {
				w.everywhere(p, "k")
				if i%5 == 0 {
					done++
					w.complete(w.acquire(p, fmt.Sprint("done ", done)), "")
					time.Sleep(time.Second)
				}
				time.Sleep(200 * time.Millisecond)
			}
		}

		synctest.Wait() // all answers so far have been processed
		w.nodes[1].Flush()
		use()
		log.Want(t, 1, "level=WARN", "does not vote", "node=1 ", "verdict=quarantined", "quarantined for another 10s")
		log.Want(t, 0, "votes again")
		time.Sleep(10 * time.Second)
		use()
		log.Want(t, 1, "level=INFO", "votes again", "node=1 ")
		log.Want(t, 2, "node")

		w.nodes[2].Down()
		use()
		log.Want(t, 1, "does not vote", "node=2 ", "verdict=failed", "connection refused")
		time.Sleep(5 * time.Second) // until no request is under way that could still fail
		w.nodes[2].Up()
		use()
		log.Want(t, 1, "votes again", "node=2 ")
		log.Want(t, 4, "node")
		w.release(held)
	})
}

func TestLogOfLeases(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		var log logbook.Book
		p := w.process(WithLogger(log.Logger()))
		lease := w.acquire(p, "job 7")
		w.release(lease)
		log.Want(t, 0, "")

		lease = w.acquire(p, "job 7")
		p.cut()
		time.Sleep(time.Minute)
		log.Want(t, 1, "level=WARN", "lease lost", "key_hash="+keyHash("job 7"), "reason=expired", "held=7.")
		lease.Release(t.Context())
		log.Want(t, 1, "lease lost")
		log.Want(t, 0, "not confirmed") // the line about the loss is enough

		p.mend()
		time.Sleep(time.Minute)
		lease = w.acquire(p, "job 9")
		for _, n := range w.nodes {
			n.Flush()
		}
		wantErr(t, lease.Release(t.Context()), ErrLost) // the release notices the loss
		wantErr(t, lease.Release(t.Context()), ErrLost)
		log.Want(t, 2, "lease lost")
		log.Want(t, 1, "lease lost", "key_hash="+keyHash("job 9"), "reason=taken", "held=")

		time.Sleep(time.Minute)
		lease = w.acquire(p, "job 8")
		p.cut()
		wantErr(t, lease.Release(t.Context()), ErrUnavailable)
		log.Want(t, 1, "level=WARN", "release not confirmed", "key_hash="+keyHash("job 8"))
		log.Want(t, 0, "job 7") // keys may be secret
		log.Want(t, 0, "job 8")
	})
}
