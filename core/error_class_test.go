package core

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/internal/logbook"
)

var sentinels = []error{ErrHeld, ErrDone, ErrUnavailable, ErrLost, ErrReleased, ErrClosed, ErrInvalid,
	context.Canceled, context.DeadlineExceeded}

// wantOnly checks that an error matches these sentinels and no others.
func wantOnly(t *testing.T, err error, want ...error) {
	t.Helper()
	for _, sentinel := range sentinels {
		wanted := false
		for _, w := range want {
			wanted = wanted || w == sentinel
		}
		if errors.Is(err, sentinel) != wanted {
			t.Errorf("matches %q: %v, want %v: %v", sentinel, !wanted, wanted, err)
		}
	}
}

// If a deadline ends a wait, the error also says what was known. If the caller cancels, it does not, because a caller
// that leaves is no outage.
func TestDeadlineKeepsWhatIsKnown(t *testing.T) {
	everywhere := func(f coretest.Fate) func(w *world, p *process) {
		return func(_ *world, p *process) {
			for _, k := range p.links {
				k.Set(f)
			}
		}
	}

	const long = 5 * time.Second
	for name, c := range map[string]inTheWay{
		"held":                 {func(w *world, _ *process) { w.acquire(w.process(), "k") }, long, ErrHeld, ClassHeld},
		"held by this process": {func(w *world, p *process) { w.acquire(p, "k") }, long, ErrHeld, ClassHeld},
		"down":                 {everywhere(coretest.Fate{Refuse: true}), long, ErrUnavailable, ClassUnavailable},
		"hung":                 {everywhere(coretest.Fate{Lose: true}), long, ErrUnavailable, ClassUnavailable},
		"replicas":             {func(w *world, _ *process) { w.nodes[0].SetReplica(true); w.nodes[2].SetReplica(true) }, long, ErrUnavailable, ClassUnavailable},
		"clocks off":           {func(w *world, _ *process) { w.nodes[0].StepClock(time.Hour); w.nodes[1].StepClock(-time.Hour) }, long, ErrUnavailable, ClassUnavailable},
		"quarantined":          {func(w *world, _ *process) { w.nodes[0].Flush(); w.nodes[1].Flush() }, long, ErrUnavailable, ClassUnavailable},
		"no time to find out":  {everywhere(coretest.Fate{Lose: true}), 100 * time.Millisecond, nil, ClassCancelled},
		"answers under way":    {everywhere(coretest.Fate{ReplyDelay: 500 * time.Millisecond}), 100 * time.Millisecond, nil, ClassCancelled},
		"one refusal is no proof": {func(_ *world, p *process) {
			everywhere(coretest.Fate{Lose: true})(nil, p)
			p.links[0].Set(coretest.Fate{Refuse: true})
		}, 100 * time.Millisecond, nil, ClassCancelled},
		"two are": {func(_ *world, p *process) {
			everywhere(coretest.Fate{Refuse: true})(nil, p)
			p.links[0].Set(coretest.Fate{Lose: true})
		}, 100 * time.Millisecond, ErrUnavailable, ClassUnavailable},
	} {
		bubbleNamed(t, name+", deadline", 3, func(t *testing.T, w *world) {
			ctx, stop := context.WithTimeout(t.Context(), c.deadline)
			defer stop()
			c.wantKnown(ctx, w)
		})
		bubbleNamed(t, name+", deadline with a cause", 3, func(t *testing.T, w *world) {
			cause := errors.New("the cause")
			ctx, stop := context.WithTimeoutCause(t.Context(), c.deadline, cause)
			defer stop()
			wantErr(t, c.wantKnown(ctx, w), cause)
		})
		bubbleNamed(t, name+", cancelled", 3, func(t *testing.T, w *world) {
			p := w.process()
			c.is(w, p)
			ctx, leave := context.WithCancel(t.Context())
			time.AfterFunc(c.deadline, leave)
			_, err := p.Acquire(ctx, "k")
			wantOnly(t, err, context.Canceled)
			if got := ClassOf(err); got != ClassCancelled {
				t.Errorf("class %v of one that left: %v", got, err)
			}
		})
	}
}

// An inTheWay is a reason that keeps a caller waiting until its deadline, and the error that the caller gets.
type inTheWay struct {
	is       func(w *world, p *process)
	deadline time.Duration
	known    error // nil if nothing is known
	class    Class
}

// wantKnown waits for the deadline of ctx, and checks the error.
func (c inTheWay) wantKnown(ctx context.Context, w *world) error {
	w.t.Helper()
	p := w.process()
	c.is(w, p)
	_, err := p.Acquire(ctx, "k")
	want := []error{context.DeadlineExceeded}
	if c.known != nil {
		want = append(want, c.known)
	}
	wantOnly(w.t, err, want...)
	if got := ClassOf(err); got != c.class {
		w.t.Errorf("class %v, want %v: %v", got, c.class, err)
	}
	return err
}

func TestClassOf(t *testing.T) {
	t.Parallel()
	other := errors.New("other")
	for _, c := range []struct {
		err  error
		want Class
	}{
		{nil, ClassNone}, {other, ClassOther},
		{ErrInvalid, ClassInvalid}, {ErrReleased, ClassInvalid},
		{ErrClosed, ClassClosed}, {ErrDone, ClassDone}, {ErrHeld, ClassHeld}, {ErrLost, ClassLost}, {ErrUnavailable, ClassUnavailable},
		{context.Canceled, ClassCancelled}, {context.DeadlineExceeded, ClassCancelled},
		{&OpError{Err: ErrHeld, Ended: context.DeadlineExceeded}, ClassHeld},
		{&OpError{Err: ErrUnavailable, Ended: context.DeadlineExceeded}, ClassUnavailable},
		{&OpError{Err: ErrUnavailable, Nodes: []NodeReply{{Err: context.DeadlineExceeded}}}, ClassUnavailable},
		{&OpError{Err: context.Canceled, Nodes: []NodeReply{{Err: other}}}, ClassCancelled},
		{errors.Join(other, ErrLost), ClassLost},
		{errors.Join(context.Canceled, ErrHeld, ErrLost), ClassLost},
		{fmt.Errorf("while: %w", &OpError{Err: ErrDone}), ClassDone},
	} {
		if got := ClassOf(c.err); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}

	names := map[string]bool{}
	for class := ClassNone; class <= ClassOther; class++ {
		names[class.String()] = true
	}
	if len(names) != int(ClassOther)+1 || names["unknown"] || (ClassOther+1).String() != "unknown" {
		t.Errorf("names of classes: %v", names)
	}
}

// Constructors and calls with invalid options return ErrInvalid.
func TestInvalidOption(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		_, err := New(nil, TTL(-1))
		wantOnly(t, err, ErrInvalid)
		_, err = Open([]string{"no"})
		wantOnly(t, err, ErrInvalid)
		p := w.process()
		_, err = p.With(TTL(0))
		wantOnly(t, err, ErrInvalid)
		_, err = p.Acquire(t.Context(), "k", MaxWait(-1))
		wantOnly(t, err, ErrInvalid)
	})
}

// The log line of an OpError has everything that its text has, except the key.
func TestOpErrorLogs(t *testing.T) {
	t.Parallel()
	var log logbook.Book
	log.Logger().Error("x", "err", &OpError{Op: OpAcquire, Key: "secret", Err: ErrHeld, RetryAfter: time.Second,
		Nodes: []NodeReply{{Node: 0, Verdict: VerdictHeld, Remaining: 2 * time.Second}, {Node: 1, Verdict: VerdictPending}}})
	log.Want(t, 1, `err="lockkit: acquire key_hash=`+keyHash("secret")+`: held by another holder, retry after 1s: node 0: held for another 2s"`)
	log.Want(t, 0, "secret")
}

// An operator learns from the error which nodes failed, and why.
func TestErrorNamesNodes(t *testing.T) {
	type row struct {
		fault func(w *world, p *process)
		want  []string
	}
	bubbles(t, 3, map[string]row{
		"clock": {func(w *world, p *process) {
			w.nodes[0].StepClock(3 * time.Second)
			w.nodes[1].StepClock(-2 * time.Second)
		}, []string{"node 0 (embedded-", "off by 3s", "node 1 (embedded-", "off by -2s"}},
		"memory": {func(w *world, p *process) {
			w.nodes[0].RestartEmpty()
			w.nodes[1].Flush()
		}, []string{"node 0", "node 1", "quarantined for another 10s", "retry after 10s"}},
		"network": {func(w *world, p *process) {
			p.links[0].Set(coretest.Fate{Refuse: true})
			p.links[2].Set(coretest.Fate{Lose: true})
			p.links[1].Set(coretest.Fate{Lose: true})
		}, []string{"node 0", "connection refused", "node 1", "no answer within the node timeout"}},
		"late": {func(_ *world, p *process) {
			p.set(coretest.Fate{Delay: p.p.Window * 3 / 2}, wire.OpAcquire)
		}, []string{"the request arrived too late"}},
		"replica": {func(w *world, p *process) {
			w.nodes[0].SetReplica(true)
			w.nodes[1].SetReplica(true)
		}, []string{"node 0", "is a replica, not a master"}},
	}, func(t *testing.T, w *world, c row) {
		p := w.process()
		c.fault(w, p)
		_, err := p.TryAcquire(t.Context(), "some key")
		wantErr(t, err, ErrUnavailable)
		wantInError(t, err, append(c.want, `acquire "some key"`)...)
	})
}
