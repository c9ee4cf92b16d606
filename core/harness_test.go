package core

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/testutil"

	"github.com/lockkit/lockkit/core/internal/quorum"
)

func init() { logging.Disable() } // go-redis prints each failed dial

// A world is a set of embedded nodes and the processes that lock on them.
type world struct {
	t     *testing.T
	nodes []*testutil.Node
	// serving is the server of a node that a new connection reaches, where that is not always the same.
	serving func(i int) *testutil.Node
}

// A process is a Locker with network links of its own to the nodes.
type process struct {
	*Locker
	links []*link
}

// bubble runs f with n embedded nodes in a synctest bubble.
func bubble(t *testing.T, n int, f func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	bubbleNow(t, n, f)
}

// bubbleNow is bubble for tests that are not parallel.
func bubbleNow(t *testing.T, n int, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(t, &world{t: t, nodes: testutil.NewNodes(t, n)})
	})
}

// bubbles runs f once for each case: a subtest in a bubble of its own.
func bubbles[C any](t *testing.T, n int, cases map[string]C, f func(t *testing.T, w *world, c C)) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			bubble(t, n, func(t *testing.T, w *world) { f(t, w, c) })
		})
	}
}

var quietly = WithLogger(slog.New(slog.DiscardHandler))

// process makes a Locker and declares nodes that have no guard record to be new.
func (w *world) process(opts ...Option) *process {
	w.t.Helper()
	p := w.stranger(opts...)
	if err := p.Provision(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	return p
}

// stranger is process without Provision.
func (w *world) stranger(opts ...Option) *process {
	w.t.Helper()
	p := &process{}
	var clients []redis.UniversalClient
	for i, n := range w.nodes {
		for _, s := range scripts { // loading them later would take a message more
			if _, err := n.Exec("SCRIPT", "LOAD", s.source); err != nil {
				w.t.Fatal(err)
			}
		}
		k := &link{}
		c := n.ClientWith(func(o *redis.Options) {
			o.PoolSize = 2000
			o.MaxRetries = -1
			if w.serving != nil {
				o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
					return w.serving(i).Dial(ctx, network, addr)
				}
			}
		})
		c.AddHook(k)
		clients, p.links = append(clients, c), append(p.links, k)
	}
	var err error
	if p.Locker, err = New(clients, append([]Option{quietly}, opts...)...); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // what is still held is taken away
		p.Close(ctx)
		for _, k := range p.links {
			k.mend()
		}
		p.e.tasks.Wait()
	})
	return p
}

func (w *world) acquire(p *process, key string) *Lease {
	w.t.Helper()
	lease, err := p.TryAcquire(w.t.Context(), key)
	if err != nil {
		w.t.Fatalf("acquire: %v", err)
	}
	return lease
}

// patientTry has TryAcquire wait for an hour before it tries again: a context with a deadline leaves one attempt.
func patientTry(l *Locker) *Locker {
	l.p.retryMin, l.p.retryMax = time.Hour, time.Hour
	l.e.jitter = func(n int64) int64 { return n - 1 }
	return l
}

func (w *world) release(lease *Lease) {
	w.t.Helper()
	if err := lease.Release(context.Background()); err != nil {
		w.t.Fatalf("release: %v", err)
	}
}

// everywhere acquires key and releases it when all nodes have been asked, and have answered as far as they do at
// once: a lease that is released sooner spares the nodes that were not needed for it.
func (w *world) everywhere(p *process, key string) {
	w.t.Helper()
	lease := w.acquire(p, key)
	synctest.Wait()
	w.release(lease)
	synctest.Wait()
}

// owner is the attempt that node i says owns key, "" for none.
func (w *world) owner(p *process, i int, key string) string {
	w.t.Helper()
	r := w.resource(p, i, key)
	if r.Expiry == 0 {
		return ""
	}
	return r.Owner
}

// resource is what node i stores for key.
func (w *world) resource(p *process, i int, key string) testutil.Resource {
	w.t.Helper()
	v, err := w.nodes[i].Exec("GET", p.e.keys.Resource(key))
	if err != nil {
		w.t.Fatal(err)
	}
	s, _ := v.(string)
	return must(testutil.ParseResource(s))
}

// change writes by hand what node i stores for key.
func (w *world) change(p *process, i int, key string, by func(r *testutil.Resource)) {
	w.t.Helper()
	r := w.resource(p, i, key)
	by(&r)
	if _, err := w.nodes[i].Exec("SET", p.e.keys.Resource(key), r.String(), "PX", (24 * time.Hour).Milliseconds()); err != nil {
		w.t.Fatal(err)
	}
}

// forget removes the lease on key from node i, as replication that was lost would.
func (w *world) forget(p *process, i int, key string) {
	w.t.Helper()
	w.change(p, i, key, func(r *testutil.Resource) { r.Expiry, r.Owner = 0, "" })
}

// pass lets time pass, until nothing more happens at that time.
func (w *world) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func wantErr(t *testing.T, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("error is %v, want %v", err, target)
	}
}

// commandsOnly is what hooks have in common that look at commands alone.
type commandsOnly struct{}

func (commandsOnly) DialHook(next redis.DialHook) redis.DialHook { return next }

func (commandsOnly) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A link carries the requests of one process to one node. Its rule decides the fate of each.
type link struct {
	commandsOnly
	mu       sync.Mutex
	rule     func(op wire.Op, args []any) fate
	together func()        // called with each batch; may be nil
	wake     chan struct{} // closed by mend: what is lost fails now
}

// A fate is what happens to a request; the zero value passes.
type fate struct {
	refuse     bool          // fails at once, not sent
	lose       bool          // never arrives, never answered
	delay      time.Duration // arrives later
	twice      bool          // arrives twice, the second time after delay
	loseReply  bool
	replyDelay time.Duration
}

// with is the fate of two requests that travel together.
func (f fate) with(g fate) fate {
	return fate{refuse: f.refuse || g.refuse, lose: f.lose || g.lose, delay: max(f.delay, g.delay), twice: f.twice || g.twice,
		loseReply: f.loseReply || g.loseReply, replyDelay: max(f.replyDelay, g.replyDelay)}
}

var (
	errRefused = errors.New("connection refused")
	errLostMsg = errors.New("i/o timeout")
)

// refusing is what it takes to be refused. In a bubble every other goroutine is at rest before it is over, so that no
// refusal ends an attempt before its other requests have left, whatever else the machine does.
const refusing = time.Millisecond

// refusalsHeard waits until all that is refused now has been.
func refusalsHeard() {
	time.Sleep(2 * refusing)
	synctest.Wait()
}

// patienceOfClient is how long a client waits for an answer that never comes: longer than any node timeout.
const patienceOfClient = 6 * time.Second

// set makes f the fate of requests that run one of scripts, or all when none is named.
func (k *link) set(f fate, ops ...wire.Op) {
	k.decide(func(op wire.Op, _ []any) fate {
		if len(ops) == 0 || slices.Contains(ops, op) {
			return f
		}
		return fate{}
	})
}

// next gives the next request that runs s its fate; the others pass.
func (k *link) next(f fate, s wire.Op) { k.sequence(s, f, fate{}) }

// sequence gives the coming requests that run s their fates, one after the other; the last is for all others.
func (k *link) sequence(s wire.Op, fates ...fate) {
	k.decide(func(got wire.Op, _ []any) fate {
		if got != s {
			return fate{}
		}
		f := fates[0]
		fates = fates[min(1, len(fates)-1):]
		return f
	})
}

func (k *link) decide(rule func(wire.Op, []any) fate) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rule = rule
	if k.wake == nil {
		k.wake = make(chan struct{})
	}
}

func (k *link) mend() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rule = nil
	if k.wake != nil {
		close(k.wake)
		k.wake = nil
	}
}

func (k *link) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		f, wake := k.fateOf(cmd.Args())
		switch {
		case f.refuse:
			time.Sleep(refusing)
			cmd.SetErr(errRefused)
			return errRefused
		case f.lose:
			return unanswered(cmd, wake)
		case f.twice:
			next(ctx, redis.NewCmd(ctx, cmd.Args()...))
		}
		time.Sleep(f.delay)
		err := next(ctx, cmd)
		time.Sleep(f.replyDelay)
		if f.loseReply {
			return unanswered(cmd, wake)
		}
		return err
	}
}

// fateOf is what becomes of a command, and what is closed when those that are lost are to fail.
func (k *link) fateOf(args []any) (f fate, wake <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.rule == nil {
		return fate{}, nil
	}
	all := requestsOf(args)
	for _, q := range all {
		f = f.with(k.rule(q.op, q.args))
	}
	if len(all) > 1 && k.together != nil {
		k.together()
	}
	return f, k.wake
}

// unanswered waits for a reply that does not come.
func unanswered(cmd redis.Cmder, wake <-chan struct{}) error {
	select {
	case <-time.After(patienceOfClient):
	case <-wake:
	}
	cmd.SetErr(errLostMsg)
	return errLostMsg
}

// A script is what a command runs, and where in a batch the arguments are that a request has alone.
type script struct {
	op          wire.Op
	sha, source string
	word        string // "" = it is sent alone
	shared, own []int  // by their place after the head; see batch.lua
}

var scripts = func() (all []script) {
	k := wire.NewKeyspace("p", 1, false)
	l, h := k.LockOf("key", "attempt"), wire.NewHead(0, 1, 0)
	for _, s := range []struct {
		q           wire.Request
		word        string
		shared, own []int
	}{
		{l.Acquire(wire.Millis{}, wire.Acquire{}), "A", []int{0, 2, 3, 4, 5}, []int{1}},
		{l.Renew(wire.Millis{}, 1, func(int) wire.Renew { return wire.Renew{} })(0), "R", []int{2, 3, 4, 5}, []int{0, 1}},
		{l.Complete(wire.Millis{}, 1, func(int) wire.Complete { return wire.Complete{} })(0), "C", nil, []int{0, 1, 2, 3, 4, 5, 6, 7}},
		{l.Release(h, wire.Release{}), "E", []int{0, 1, 3, 4, 5, 6}, []int{2}},
		{q: k.Touch(0)}, {q: k.Provision(0, "", "")}, {q: l.Revoke(h, 0)}, {q: k.Forget("key", 1)}, {q: k.Probe(0, false)},
	} {
		args, full := h.Encode(s.q, time.Time{}).Args(), h.Encode(s.q, time.Time{}).InFull()
		all = append(all, script{s.q.Op(), args[1].(string), full[1].(string), s.word, s.shared, s.own})
	}
	batch := h.EncodeBatch(0, nil, time.Time{})
	return append(all, script{op: wire.OpBatch, sha: batch.Args()[1].(string), source: batch.InFull()[1].(string)})
}()

// scriptOf is what a command runs.
func scriptOf(args []any) (s script, ok bool) {
	for _, s := range scripts {
		if len(args) > 1 && (args[1] == any(s.sha) || args[1] == any(s.source)) {
			return s, true
		}
	}
	return script{}, false
}

// A sentRequest is a request with its arguments as if it had been sent alone.
type sentRequest struct {
	op   wire.Op
	args []any
}

// Places in the arguments of a request: how many keys there are, and the first of them.
const (
	keysArg = 2 + iota
	resourceArg
	tombstoneArg
)

// wallArg is the place of the client's wall clock.
func wallArg(args []any) int { return resourceArg + args[keysArg].(int) + 1 }

// proposalArg is the place of the token that an acquisition proposes.
func proposalArg(args []any) int { return wallArg(args) + 7 }

// requestsOf takes a command apart.
func requestsOf(args []any) (all []sentRequest) {
	s, ok := scriptOf(args)
	switch {
	case !ok:
		return nil
	case s.op != wire.OpBatch:
		return []sentRequest{{s.op, args}}
	}
	n := args[keysArg].(int)
	keys, argv := args[resourceArg:resourceArg+n], args[resourceArg+n:]
	head, rest := argv[:7], argv[7:]
	for k := 0; k+1 < n; {
		s := scripts[slices.IndexFunc(scripts, func(s script) bool { return s.word != "" && s.word == rest[0] })]
		count, lease, shared := rest[1].(int), rest[2], rest[3:3+len(s.shared)]
		rest = rest[3+len(s.shared):]
		for range count {
			own := []any{keys[k], keys[k+1]}
			if n%2 == 1 && s.op != wire.OpRelease {
				own = append(own, keys[n-1])
			}
			q := sentRequest{op: s.op, args: append([]any{"evalsha", s.sha, len(own)}, append(own, rest[0])...)}
			if s.op != wire.OpRelease {
				q.args = append(append(append(q.args, head[1:3]...), lease), head[4:]...)
			}
			tail := make([]any, len(s.shared)+len(s.own))
			for i, at := range s.shared {
				tail[at] = shared[i]
			}
			for i, at := range s.own {
				tail[at] = rest[1+i]
			}
			q.args = append(q.args, tail...)
			rest = rest[1+len(s.own):]
			all = append(all, q)
			k += 2
		}
	}
	return all
}

// name is what the nodes call the attempt.
func (a *attempt) name() string { return a.lock.Waiter().Name }

// alone asks a node what the round asks of it, and nothing else of the round happens.
func (r *round) alone(node int) quorum.Vote { return r.e.askAlone(node, r.to(node)) }

// askAlone sends a request to a node.
func (e *ensemble) askAlone(node int, q wire.Request) quorum.Vote {
	reply, err := run(context.Background(), e.nodes[node].client, e.head.Load().Encode(q, time.Now()))
	return voteOf(q, reply, err, wire.Request.Decode)
}

// renewAlone renews on node 0 as if it had last confirmed that expiry.
func (lease *Lease) renewAlone(confirmed wire.NodeTime) quorum.Vote {
	q := lease.lock.Renew(lease.p.lease, 1, func(int) wire.Renew { return wire.Renew{Token: lease.token, Confirmed: confirmed, Turn: lease.p.turn} })(0)
	return lease.e.askAlone(0, q)
}

// sourceOf is the script for an op.
func sourceOf(op wire.Op) string {
	return scripts[slices.IndexFunc(scripts, func(s script) bool { return s.op == op })].source
}
