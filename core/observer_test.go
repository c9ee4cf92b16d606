package core

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/testutil"
)

// This file tests the calls of observers.

// A recording is an observer that keeps all operations and their outcomes.
type recording struct {
	mu  sync.Mutex
	ops []*observed
}

type observed struct {
	Op
	ends []Outcome
}

type opKey struct{}

func (r *recording) observer() Observer { return Observer{Start: r.start} }

func (r *recording) start(ctx context.Context, op Op) (context.Context, func(Outcome)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := &observed{Op: op}
	r.ops = append(r.ops, o)
	return context.WithValue(ctx, opKey{}, op.Kind), func(out Outcome) {
		r.mu.Lock()
		defer r.mu.Unlock()
		o.ends = append(o.ends, out)
	}
}

// of returns the operations of one kind, and their outcomes. It checks that each has ended exactly once.
func (r *recording) of(t *testing.T, kind OpKind) (ops []Op, outs []Outcome) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.ops {
		if o.Kind != kind {
			continue
		}
		if len(o.ends) != 1 {
			t.Fatalf("%v %q has ended %d times", o.Kind, o.Key, len(o.ends))
		}
		ops, outs = append(ops, o.Op), append(outs, o.ends[0])
	}
	return ops, outs
}

// Every operation that starts ends exactly once, with the error that the caller got.
func TestObserverPairs(t *testing.T) {
	acquired := ending{OpAcquire, nil, ""}

	type operations struct {
		do   func(w *world, p *process)
		want []ending // by kind, then in order, without renewals
	}
	bubbles(t, 3, map[string]operations{
		"released": {func(w *world, p *process) { w.release(w.acquire(p, "k")) },
			[]ending{acquired, {OpHold, ErrReleased, ""}, {OpRelease, nil, ""}}},
		"released twice": {func(w *world, p *process) { lease := w.acquire(p, "k"); w.release(lease); w.release(lease) },
			[]ending{acquired, {OpHold, ErrReleased, ""}, {OpRelease, nil, ""}}}, // the second release sends no request
		"completed": {func(w *world, p *process) { w.acquire(p, "k").Complete(w.t.Context(), nil) },
			[]ending{acquired, {OpHold, ErrReleased, ""}, {OpComplete, nil, ""}}},
		"done": {func(w *world, p *process) {
			w.acquire(w.process(), "k").Complete(w.t.Context(), nil)
			p.Acquire(w.t.Context(), "k")
		}, []ending{{OpAcquire, ErrDone, ""}}},
		"held": {func(w *world, p *process) { w.acquire(w.process(), "k"); p.TryAcquire(w.t.Context(), "k") },
			[]ending{{OpAcquire, ErrHeld, ""}}},
		"timeout": {func(w *world, p *process) {
			w.acquire(w.process(), "k")
			ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
			defer cancel()
			p.Acquire(ctx, "k")
		}, []ending{{OpAcquire, context.DeadlineExceeded, ""}}},
		"cancelled before": {func(_ *world, p *process) { p.Acquire(over(), "k") },
			[]ending{{OpAcquire, context.Canceled, ""}}},
		"unavailable": {func(w *world, p *process) { p.cut(); p.TryAcquire(w.t.Context(), "k") },
			[]ending{{OpAcquire, ErrUnavailable, ""}}},
		"lost": {func(w *world, p *process) {
			lease := w.acquire(p, "k")
			p.cut()
			testutil.Receive(w.t, lease.Context().Done())
			lease.Release(w.t.Context())
		}, []ending{acquired, {OpHold, ErrLost, LossExpired}, {OpRelease, ErrLost, LossExpired}}},
		"abandoned": {func(w *world, p *process) {
			ctx, cancel := context.WithCancel(w.t.Context())
			p.Acquire(ctx, "k")
			cancel()
			time.Sleep(time.Minute)
		}, []ending{acquired, {OpHold, ErrLost, LossExpired}}},
		"taken away": {func(w *world, p *process) { w.acquire(p, "k"); p.Close(over()) },
			[]ending{acquired, {OpHold, ErrLost, LossClosed}}},
		"closed": {func(w *world, p *process) { p.Close(w.t.Context()); p.Acquire(w.t.Context(), "k") },
			[]ending{{OpAcquire, ErrClosed, ""}}},
		"panic": {func(w *world, p *process) {
			defer func() { recover() }()
			p.Do(w.t.Context(), "k", func(context.Context) error { panic("fn") })
		}, []ending{acquired, {OpHold, ErrReleased, ""}, {OpRelease, nil, ""}}},
		"release not confirmed": {func(w *world, p *process) {
			lease := w.acquire(p, "k")
			p.cut()
			lease.Release(w.t.Context())
		}, []ending{acquired, {OpHold, ErrReleased, ""}, {OpRelease, ErrUnavailable, ""}}},
	}, func(t *testing.T, w *world, c operations) {
		var r recording
		p := w.process(WithObserver(r.observer()), Name("jobs"))
		c.do(w, p)

		w.pass(time.Minute) // for operations in the background
		got := r.endings(t, OpAcquire, OpHold, OpRelease, OpComplete)
		r.of(t, OpRenew)
		if !slices.EqualFunc(got, c.want, ending.is) {
			t.Errorf("observed %v, want %v", got, c.want)
		}
	})
}

// An ending has the parts of an Outcome that the test compares.
type ending struct {
	kind   OpKind
	err    error
	reason LossReason
}

func (e ending) is(want ending) bool {
	return e.kind == want.kind && errors.Is(e.err, want.err) && (e.err == nil) == (want.err == nil) && e.reason == want.reason
}

// endings returns the ends of all operations of these kinds. It checks that they have the key "k", the name "jobs" and
// three nodes.
func (r *recording) endings(t *testing.T, kinds ...OpKind) (all []ending) {
	t.Helper()
	for _, kind := range kinds {
		ops, outs := r.of(t, kind)
		for i, out := range outs {
			if op, ok := errors.AsType[*OpError](out.Err); ok && op.Reason != out.Reason {
				t.Errorf("%v: reason %q, the error has %q", kind, out.Reason, op.Reason)
			}
			if ops[i].Key != "k" || ops[i].Name != "jobs" || ops[i].Nodes != 3 {
				t.Errorf("operation %+v", ops[i])
			}
			all = append(all, ending{kind, out.Err, out.Reason})
		}
	}
	return all
}

func TestOutcomeOfAcquire(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		var r recording
		p, other := w.process(WithObserver(r.observer()), withRetryDelay(100*time.Millisecond, 100*time.Millisecond)), w.process()
		w.release(w.acquire(other, "warm")) // loads the scripts
		p.links[0].Set(coretest.Fate{ReplyDelay: 5 * time.Millisecond})
		p.links[1].Set(coretest.Fate{ReplyDelay: 9 * time.Millisecond})
		p.links[2].Set(coretest.Fate{Refuse: true})
		first := w.acquire(p, "k")
		ops, outs := r.of(t, OpAcquire)
		out := outs[0]
		if !ops[0].Try || out.Token != first.FencingToken() || out.Attempts != 1 || out.Contended {
			t.Errorf("granted at once: %+v %+v", ops[0], out)
		}
		if want := p.p.validity - p.p.margin - 9*time.Millisecond; out.Margin != want {
			t.Errorf("margin %v, want %v", out.Margin, want)
		}
		wantReplies(t, out.Nodes, []NodeReply{
			{Verdict: VerdictGranted, Latency: 5 * time.Millisecond},
			{Verdict: VerdictGranted, Latency: 9 * time.Millisecond},
			{Verdict: VerdictFailed, Latency: coretest.Refusing},
		})

		// The first call waits one second for a lease of the same process. Then the second call waits for another
		// process.
		p.links[0].Set(coretest.Fate{})
		p.links[1].Set(coretest.Fate{})
		elsewhere := w.acquire(other, "elsewhere")
		time.AfterFunc(time.Second, func() { first.Release(t.Context()) })
		time.AfterFunc(1150*time.Millisecond, func() { elsewhere.Release(t.Context()) })
		lease := w.await(p, "k")
		second := w.await(p, "elsewhere")
		ops, outs = r.of(t, OpAcquire)
		if len(outs) != 3 {
			t.Fatalf("%d acquisitions observed", len(outs))
		}
		if out := outs[1]; ops[1].Try || !out.Contended || out.Attempts != 1 || out.Token != lease.FencingToken() {
			t.Errorf("granted after a local wait: %+v", out)
		}
		if out := outs[2]; !out.Contended || out.Attempts < 2 || out.Token != second.FencingToken() {
			t.Errorf("granted when another process released it: %+v", out)
		}
	})
}

// wantReplies checks the verdict and the latency of each node. Nodes that failed must have refused the connection.
func wantReplies(t *testing.T, got, want []NodeReply) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d nodes", len(got))
	}
	for i, w := range want {
		n := got[i]
		if n.Node != i || n.Addr == "" || n.Verdict != w.Verdict || n.Latency != w.Latency || errors.Is(n.Err, coretest.ErrRefused) != (w.Verdict == VerdictFailed) {
			t.Errorf("node %d: %+v", i, n)
		}
	}
}

func TestOutcomeOfRenewal(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		var r recording
		p := w.process(WithObserver(r.observer()))
		lease := w.acquire(p, "k")
		trusted := lease.remaining()
		time.Sleep(5 * time.Second)
		p.cut()
		testutil.Receive(t, lease.Context().Done())
		time.Sleep(10 * time.Second)
		ops, outs := r.of(t, OpRenew)
		if len(outs) < 2 || outs[0].Err != nil || !errors.Is(outs[1].Err, ErrUnavailable) {
			t.Fatalf("renewals: %+v", outs)
		}
		if outs[0].Margin >= trusted || outs[0].Margin <= 0 {
			t.Errorf("%v left before the first renewal, at first %v", outs[0].Margin, trusted)
		}
		for i, n := range outs[1].Nodes {
			if n.Verdict != VerdictTimedOut || n.Latency != p.p.nodeTimeout || ops[1].Token != lease.FencingToken() {
				t.Errorf("node %d of a renewal that failed: %+v", i, n)
			}
		}
	})
}

// kindHook is a client hook. It records each request with the operation and the caller's value in its context.
type kindHook struct {
	coretest.Link
	mu   sync.Mutex
	seen map[string]bool
}

type callerKey struct{}

func (h *kindHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		operation := "no operation"
		if kind, ok := ctx.Value(opKey{}).(OpKind); ok {
			operation = kind.String()
		}
		caller, _ := ctx.Value(callerKey{}).(string)
		for name, s := range map[string]wire.Op{"acquire": wire.OpAcquire, "renew": wire.OpRenew, "release": wire.OpRelease, "complete": wire.OpComplete} {
			if slices.ContainsFunc(coretest.RequestsOf(cmd.Args()), func(q coretest.Sent) bool { return q.Op == s }) {
				h.mu.Lock()
				h.seen[name+" in "+operation+" of "+caller] = true
				h.mu.Unlock()
			}
		}
		return next(ctx, cmd)
	}
}

// The hooks of a client see the context that the observer derived for the operation. A renewal does not wait for the
// observer: its hooks see the context that the caller passed to Acquire.
func TestContextReachesTheClient(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		var r recording
		p := w.process(WithObserver(r.observer()))
		hook := &kindHook{seen: map[string]bool{}}
		p.e.Nodes[1].Client.(*redis.Client).AddHook(hook)

		ctx := context.WithValue(t.Context(), callerKey{}, "caller")
		lease, err := p.Acquire(ctx, "k")
		if err != nil {
			t.Fatal(err)
		}

		time.Sleep(5 * time.Second)
		lease.Release(ctx)
		synctest.Wait() // the next request must not be sent together with the release

		if lease, err = p.Acquire(ctx, "k"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		lease.Complete(ctx, nil)
		synctest.Wait()

		for _, want := range []string{"acquire in acquire of caller", "renew in no operation of caller", "release in release of caller", "complete in complete of caller"} {
			if !hook.seen[want] {
				t.Errorf("no %s", want)
			}
			delete(hook.seen, want)
		}
		if len(hook.seen) > 0 {
			t.Errorf("and also %v", hook.seen)
		}
	})
}

// A listener is an observer that also keeps events.
type listener struct {
	recording
	events []Event
}

func (l *listener) observer() Observer {
	return Observer{Start: l.start, Event: func(_ context.Context, e Event) { l.events = append(l.events, e) }}
}

// An event of a package that is built on core reaches every observer that has an Event function.
func TestEvents(t *testing.T) {
	var heard listener
	var deaf recording
	want := Event{Source: "cronlock", Name: "nightly", Kind: "tick_missed"}
	bubble(t, 1, func(t *testing.T, w *world) {
		for _, o := range []Observer{{}, deaf.observer(), heard.observer()} {
			w.process(WithObserver(o)).Event(t.Context(), want)
		}
	})
	if got := heard.events; !slices.Equal(got, []Event{want}) {
		t.Fatalf("heard %v", got)
	}
}
