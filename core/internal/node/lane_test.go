package node

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/internal/callback"
	"github.com/lockkit/lockkit/testutil"
)

// A batch is also bounded by the size of its payloads, so that large results do not keep a server busy for long. A
// single request may have any size. A touch travels alone.
func TestBatchesAreBoundedInBulk(t *testing.T) {
	sizes := func(bulks ...int) (loads []int) {
		var queue []request
		for _, b := range bulks {
			queue = append(queue, request{round: &Round{PayloadSize: b}})
		}
		for len(queue) > 0 {
			var f batch
			queue = f.load(queue, 0)
			loads = append(loads, len(f.requests))
		}
		return loads
	}
	for _, c := range []struct{ bulks, want []int }{
		{make([]int, MaxBatch), []int{MaxBatch}},
		{make([]int, MaxBatch+1), []int{MaxBatch, 1}},
		{[]int{64 << 10, 0, 64 << 10, 64 << 10}, []int{1, 1, 1, 1}},
		{[]int{30 << 10, 30 << 10, 0, 0, 30 << 10}, []int{4, 1}},
	} {
		if got := sizes(c.bulks...); !slices.Equal(got, c.want) {
			t.Errorf("bulks of %d requests travel as %v, want %v", len(c.bulks), got, c.want)
		}
	}

	alone := request{round: &Round{op: wire.OpTouch}}
	for _, queue := range [][]request{{alone, {round: &Round{}}}, {{round: &Round{}}, alone}, {alone, alone}} {
		var f batch
		if left := f.load(queue, 0); len(f.requests) != 1 || len(left) != 1 {
			t.Errorf("%d requests travel together, one of which is to be alone", len(f.requests))
		}
	}

	var f batch
	urgent := f.load([]request{{round: &Round{PayloadSize: 64 << 10}}}, 0)
	if asking := f.load([]request{{round: &Round{}}}, 0); len(urgent) != 0 || len(asking) != 1 {
		t.Errorf("%d and %d are left behind a batch that is full", len(urgent), len(asking))
	}
}

// A request whose connection broke has a smaller maximum batch. Its next batch keeps to this maximum, whatever else is
// queued.
func TestLostRequestsTravelWithFewer(t *testing.T) {
	fresh := request{round: &Round{}}
	lost := request{round: &Round{}, maxBatch: 2}
	for _, c := range []struct {
		what       string
		queue      []request
		load, left int
	}{
		{"before fresh ones", []request{lost, fresh, fresh}, 2, 1},
		{"between them", []request{fresh, lost, fresh}, 2, 1},
		{"behind them", []request{fresh, fresh, lost, fresh}, 2, 2},
		{"among their like", []request{lost, lost, lost}, 2, 1},
		{"with one that may have more", []request{{round: &Round{}, maxBatch: 9}, lost, fresh}, 2, 1},
	} {
		var f batch
		left := f.load(c.queue, 0)
		if len(f.requests) != c.load || len(left) != c.left {
			t.Errorf("%s: %d travel and %d are left, want %d and %d", c.what, len(f.requests), len(left), c.load, c.left)
		}
		if asking := f.load([]request{fresh}, 0); len(asking) != 1 {
			t.Errorf("%s: a request of the other queue comes along in a batch that is full", c.what)
		}
	}
}

// A request is sent again if its connection broke, twice at most and within the time of its round. An acquisition is not:
// its attempt leaves no tombstone where it has arrived, and a second copy would then take the key. Nor is a request that
// travels alone.
func TestWhatIsSentAgain(t *testing.T) {
	for op, want := range map[wire.Op]bool{
		wire.OpAcquire: false, wire.OpRenew: true, wire.OpRelease: true, wire.OpComplete: true, wire.OpTouch: false, wire.OpRevoke: false,
	} {
		r := Round{Timeout: time.Second}
		r.op = op
		for _, c := range []struct {
			retries int
			passed  time.Duration
			want    bool
		}{
			{0, time.Second - 1, want},
			{1, time.Second - 1, want},
			{2, time.Second - 1, false},
			{0, time.Second, false},
		} {
			if got := (request{round: &r, retries: c.retries}).canRetry(clock.Instant(c.passed)); got != c.want {
				t.Errorf("op %d, sent again %d times, after %v: %v, want %v", op, c.retries, c.passed, got, c.want)
			}
		}
	}
}

// The more batches are in flight, the longer the next one waits. The second half of the connections is used slowly. A
// single node that is far away gets two batches without a wait.
func TestPace(t *testing.T) {
	const near, far = 2 * MinPace, 2*MinPace + 1
	conf := config
	conf.Pace = MinPace
	for _, c := range []struct {
		nodes, underWay int
		took, want      time.Duration
	}{
		{3, 0, far, 0}, {3, 1, far, MinPace}, {3, 2, far, MinPace}, {3, 4, far, 4 * MinPace}, {3, 10, far, 25 * MinPace}, {3, 11, far, config.Timeout / slowPart},
		{1, 0, near, 0}, {1, 1, near, MinPace}, {1, 4, near, 4 * MinPace}, {1, 11, near, config.Timeout / slowPart},
		{1, 0, far, 0}, {1, 1, far, 0}, {1, 2, far, MinPace}, {1, 5, far, 4 * MinPace}, {1, 11, far, config.Timeout / slowPart},
	} {
		l := lane{Bucket: &Bucket{Group: &Group{Conf: conf, Nodes: make([]*Node, c.nodes)}}, node: &Node{Connections: 20}, inFlight: c.underWay, latency: c.took}
		if got := l.pace(); got != c.want {
			t.Errorf("%d nodes, %d batches under way, answered in %v: %v, want %v", c.nodes, c.underWay, c.took, got, c.want)
		}
	}
}

// If all connections of the pool are in use, that is not a failure of the node.
func TestPoolTimeoutsDoNotOpenTheCircuit(t *testing.T) {
	n := aloneNode(t)
	for range 9 {
		b, err := n.begin(0, time.Second, false, "")
		if err != nil {
			t.Fatal(err)
		}
		n.end(b, 0, fmt.Errorf("acquire: %w", redis.ErrPoolTimeout))
	}
}

// A round ends with the last vote, whatever its outcome. A later vote is not counted.
func TestRoundEndsWithTheLastVote(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 5; n++ {
		r := Round{Decided: func(*Round) bool { return false }, Tally: quorum.New(nil, n, quorum.All(n))}
		for i := range n {
			if r.over {
				t.Fatalf("%d nodes: over after %d votes", n, i)
			}
			r.addVote(i, quorum.NewVote(wire.TimedOut, nil))
		}
		if !r.over {
			t.Fatalf("%d nodes: not over after all votes", n)
		}
		r.addVote(0, quorum.NewVote(wire.Granted, nil))
		if got := r.Count(wire.Granted); got != 0 || r.Pending != 0 {
			t.Errorf("%d nodes: a late vote counts: %d granted, %d pending", n, got, r.Pending)
		}
	}
}

// A consenting asker lets all of its requests be sent.
type consenting struct{}

func (consenting) ReplyCallbacks() *callback.Queue { return nil }

func (consenting) StartSend(wire.Op, int) bool                       { return true }
func (consenting) OnReply(_ wire.Op, got Reply) (wire.Verdict, bool) { return got.Verdict, false }

// A slot that the first lane in line no longer needs goes to the next lane.
func TestSlotsGoToWhoCanUseThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := testutil.NewNodes(t, 1)[0]
		g := newGroup(server)
		defer g.end()
		n := g.Nodes[0]
		b := n.breaker("")
		b.slots = &slotPool{}
		lanes := []*lane{{Bucket: g.Buckets[0], node: n}, {Bucket: g.Buckets[0], node: n}}
		for _, l := range lanes {
			l.mu.Lock()
			b.slots.take(l)
			l.mu.Unlock()
		}
		lock := g.Keys.Lock("k", g.Keys.Resource("k"), 1)
		r := &Round{Request: lock.Acquire(wire.MillisOf(time.Minute), wire.Acquire{ProposedToken: wire.StampOf(time.Now())})}
		r.Init(g.Buckets[0], wire.OpAcquire, time.Second, consenting{}, func(*Round) bool { return false })
		r.Send(t.Context(), 0)
		b.inFlight++
		lanes[1].submit(request{round: r, breaker: b})
		b.slots.put()
		synctest.Wait()
		if stored, err := server.Exec("EXISTS", lock.Resource()); stored != 1 || err != nil {
			t.Errorf("the second lane has not sent: %v, %v", stored, err)
		}
	})
}

// newGroup returns a group over one server. The caller must end it.
func newGroup(server *testutil.Node) *Group {
	return New([]redis.UniversalClient{server.ClientWith(func(o *redis.Options) { o.MaxRetries = -1 })}, config)
}

func (g *Group) end() {
	g.BeginClose()
	g.Tasks.Close()
	g.WaitFor(g.Tasks.Empty(), nil, time.Second)
}

var config = Config{Timeout: time.Second, Window: 500 * time.Millisecond, MaxTTL: time.Minute, Prefix: "lockkit:", Logger: slog.New(slog.DiscardHandler)}

// An error reply is an answer of the node, but a refused connection is not. Close waits on only while nodes answer.
func TestAnswersOfNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := testutil.NewNodes(t, 1)[0]
		g := newGroup(server)
		defer g.end()
		answers := func(prepare func()) bool {
			time.Sleep(time.Second)
			prepare()
			before := g.Clock.Now()
			g.Buckets[0].Touch(1)
			synctest.Wait()
			return g.lastAnswer.Load() >= before
		}
		if !answers(func() {}) || !answers(func() { server.Refuse("EVALSHA", "MISCONF") }) {
			t.Error("an answer is none")
		}
		if answers(server.Down) {
			t.Error("a refused connection is an answer")
		}
	})
}

// A mayEnd is an asker whose attempt can end.
type mayEnd struct {
	consenting
	ended bool
}

func (m *mayEnd) StartSend(wire.Op, int) bool { return !m.ended }

// After a batch has left the queue, a request is dropped if it was counted as not sent, if its attempt has ended, or if
// it is too old. If it were sent, nothing would release what it acquires.
func TestNotEveryRequestBoards(t *testing.T) {
	for name, meanwhile := range map[string]func(r *Round, a *mayEnd){
		"it was counted as not sent": func(r *Round, _ *mayEnd) { r.TimeOut() },
		"its attempt has ended":      func(_ *Round, a *mayEnd) { a.ended = true },
		"it is too old":              func(r *Round, _ *mayEnd) { time.Sleep(r.Timeout + 1) },
	} {
		for _, op := range []wire.Op{wire.OpAcquire, wire.OpRenew} {
			t.Run(fmt.Sprint(name, "/", op), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := newGroup(testutil.NewNodes(t, 1)[0])
					defer g.end()
					var r Round
					a := &mayEnd{}
					r.Init(g.Buckets[0], op, time.Second, a, func(*Round) bool { return false })
					r.Begin(t.Context(), 1)
					q, _ := r.admit(0)
					meanwhile(&r, a)
					f := &batch{lane: g.Buckets[0].lanes[0], requests: []request{q}}
					if f.filter(g.Clock.Now()); len(f.requests) > 0 {
						t.Error("sent all the same")
					}
					if q.breaker.inFlight != 0 {
						t.Error("it is booked still")
					}
				})
			})
		}
	}
}

// A server in trouble gets one probe per timeout. A request that was dropped because its attempt had ended is no probe:
// the next request passes. One that was too old has waited behind others, so it counts.
func TestDroppedRequestIsNoProbe(t *testing.T) {
	for _, c := range []struct {
		name      string
		meanwhile func(r *Round, a *mayEnd)
		passes    bool
	}{
		{"its attempt has ended", func(_ *Round, a *mayEnd) { a.ended = true }, true},
		{"it is too old", func(r *Round, _ *mayEnd) { time.Sleep(r.Timeout/2 + 1) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGroup(testutil.NewNodes(t, 1)[0])
				defer g.end()
				n, b := g.Nodes[0], g.Buckets[0]
				for range MaxFailures {
					n.end(n.mustAdmit(t, g.Clock.Now(), b.tagName), g.Clock.Now(), coretest.ErrRefused)
				}

				var r Round
				a := &mayEnd{}
				r.Init(b, wire.OpAcquire, time.Second, a, func(*Round) bool { return false })
				r.Begin(t.Context(), 1)
				q, ok := r.admit(0)
				if !ok {
					t.Fatal("the probe does not pass")
				}
				c.meanwhile(&r, a)
				f := &batch{lane: b.lanes[0], requests: []request{q}}
				f.filter(g.Clock.Now())

				_, err := n.begin(g.Clock.Now(), time.Second, false, b.tagName)
				if passes := err == nil; passes != c.passes {
					t.Errorf("the next request: %v", err)
				}
			})
		})
	}
}

// A request waits for its turn only as long as it is worth sending, even if other processes have longer leases.
func TestRequestsWaitAsLongAsTheyAreWorth(t *testing.T) {
	g := &Group{Conf: config}
	g.Head.Store(wire.NewPreamble(0, 24*time.Hour, 0))
	for op := wire.OpAcquire; op <= wire.OpProbe; op++ {
		var r Round
		r.Init(&Bucket{Group: g}, op, time.Second, nil, nil)
		r.LeaseTTL = 10 * time.Second
		want := time.Second
		switch op {
		case wire.OpAcquire:
			want = time.Second / 2
		case wire.OpRelease, wire.OpComplete:
			want = r.LeaseTTL
		}
		if before, after := r.isStale(clock.Instant(want)), r.isStale(clock.Instant(want+1)); before || !after {
			t.Errorf("operation %d: stale %v at %v, and %v after it", op, before, want, after)
		}
	}
}

// Requests that are worth sending for a short time do not stay behind requests that are worth it for longer.
func TestStaleRequestsAreFoundBehindOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := testutil.NewNodes(t, 1)[0]
		g := newGroup(server)
		defer g.end()
		g.Nodes[0].Connections = 1
		server.Hang()
		defer server.Up()

		end := func(n int, lease time.Duration) {
			for range n {
				var r Round
				lock := g.Keys.Lock("k", g.Keys.Resource("k"), 1)
				r.Init(g.Buckets[0], wire.OpRelease, config.Timeout, consenting{}, nil)
				r.LeaseTTL, r.AskTroubled, r.Request = lease, true, lock.Release(wire.Release{})
				r.Send(t.Context(), 1)
				r.Abandon()
			}
		}

		const long, short = 4 * MaxBatch * 10, 2000
		end(long, time.Hour)
		end(short, 5*time.Second)
		time.Sleep(time.Minute) // the client may take some seconds to give up a request
		synctest.Wait()

		l := g.Buckets[0].lanes[0]
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, q := range l.urgent {
			if q.round.LeaseTTL < time.Hour {
				t.Fatalf("of %d requests that wait, one is not worth it any more", len(l.urgent))
			}
		}
		if len(l.urgent) == 0 {
			t.Fatal("the schedule is off: none waits")
		}
	})
}

// A lost batch is one failure of the node, not one for each request.
func TestLostBatchIsOneFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(testutil.NewNodes(t, 1)[0])
		defer g.end()
		f := &batch{lane: g.Buckets[0].lanes[0], err: io.EOF}
		for range MaxFailures {
			var r Round
			r.Init(g.Buckets[0], wire.OpAcquire, time.Second, &mayEnd{}, nil)
			r.Begin(t.Context(), 1)
			q, _ := r.admit(0)
			f.requests, f.votes = append(f.requests, q), append(f.votes, failedVote(io.EOF))
		}
		f.deliver(0, g.Clock.Now(), time.Now())
		if b := f.requests[0].breaker; b.failures != 1 || b.inFlight != 0 {
			t.Errorf("%d failures, and %d under way", b.failures, b.inFlight)
		}
	})
}

// Each guard bucket has its own lane on each node, even if one node is a Cluster and another one a plain server.
func TestLanesOfAMixedList(t *testing.T) {
	plain := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { plain.Close() })
	g := New([]redis.UniversalClient{newFakeCluster(t), plain}, config)
	if len(g.Buckets) != wire.Buckets {
		t.Errorf("%d buckets", len(g.Buckets))
	}
	for i, b := range g.Buckets {
		if len(b.lanes) != len(g.Nodes) {
			t.Errorf("bucket %d: %d lanes", i, len(b.lanes))
		}
	}
}
