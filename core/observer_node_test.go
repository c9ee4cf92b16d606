package core

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/node"
)

// A pollster is an observer that also keeps the replies of nodes.
type pollster struct {
	recording
	replies map[OpKind][]NodeReply
}

func (p *pollster) observer() Observer { return Observer{Start: p.start, Node: p.node} }

func (p *pollster) node(_ context.Context, kind OpKind, reply NodeReply) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.replies == nil {
		p.replies = map[OpKind][]NodeReply{}
	}
	p.replies[kind] = append(p.replies[kind], reply)
}

func (p *pollster) verdicts(kind OpKind, node int) (list []Verdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.replies[kind] {
		if r.Node == node {
			list = append(list, r.Verdict)
		}
	}
	return list
}

// The Node function of an observer is called once for each request and node. That includes nodes that answer after the
// outcome, and nodes that are left alone.
func TestNodeObserver(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		o := &pollster{}
		p := w.process(WithObserver(o.observer()))
		p.links[1].Set(coretest.Fate{ReplyDelay: 70 * time.Millisecond})
		p.links[2].Set(coretest.Fate{Refuse: true})
		for range node.MaxFailures {
			lease := w.acquire(p, "k")
			p.links[1].Set(coretest.Fate{ReplyDelay: 20 * time.Millisecond}) // the slow reply is needed only once
			w.release(lease)
			coretest.RefusalsHeard()
		}
		p.links[1].Set(coretest.Fate{})
		lease := w.acquire(p, "k")
		succeeds(t, lease.Complete(t.Context(), nil))
		coretest.RefusalsHeard()

		all := func(v Verdict, n int) []Verdict { return slices.Repeat([]Verdict{v}, n) }
		for _, c := range []struct {
			kind OpKind
			node int
			want []Verdict
		}{
			{OpAcquire, 0, all(VerdictGranted, 4)}, {OpAcquire, 1, all(VerdictGranted, 4)},
			{OpComplete, 0, all(VerdictGranted, 1)}, {OpComplete, 1, all(VerdictGranted, 1)}, {OpComplete, 2, all(VerdictFailed, 1)},
		} {
			if got := o.verdicts(c.kind, c.node); !slices.Equal(got, c.want) {
				t.Errorf("%v, node %d: %v, want %v", c.kind, c.node, got, c.want)
			}
		}
		if got := o.verdicts(OpAcquire, 2); len(got) != 4 || got[0] != VerdictFailed || got[3] != VerdictCircuitOpen {
			t.Errorf("acquire, the node that is down: %v", got)
		}
		if n := len(o.verdicts(OpRelease, 0)); n != node.MaxFailures {
			t.Errorf("%d releases heard on node 0", n)
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		if first := o.replies[OpAcquire]; !slices.ContainsFunc(first, func(r NodeReply) bool { return r.Latency == 70*time.Millisecond }) {
			t.Errorf("no slow reply among %+v", first)
		}
	})
}

// The observer is notified of a request that is not sent because too many others are under way.
func TestNodeObserverHearsOfOverload(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		o := &pollster{}
		w.connections = 2
		p := w.process(WithObserver(o.observer()))
		w.everywhere(p, "warm")
		before := len(o.verdicts(OpAcquire, 0))
		p.links[0].Set(coretest.Fate{ReplyDelay: 800 * time.Millisecond})
		var calls sync.WaitGroup
		for i := range 5 {
			calls.Go(func() { _, _ = p.TryAcquire(t.Context(), Key("k", strconv.Itoa(i))) })
			time.Sleep(5 * time.Millisecond)
		}
		calls.Wait()
		w.pass(5 * time.Second)
		if heard := o.verdicts(OpAcquire, 0)[before:]; len(heard) != 5 || !slices.Contains(heard, VerdictCircuitOpen) {
			t.Errorf("of 5 requests, it heard %v", heard)
		}
	})
}

// The observer is notified of a reply that comes after the outcome, so a node that is slower than the quorum is
// visible.
func TestNodeObserverHearsStragglers(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		o := &pollster{}
		p := w.process(WithObserver(o.observer()))
		p.links[1].Set(coretest.Fate{ReplyDelay: 50 * time.Millisecond})
		lease := w.acquire(p, "k")
		if _, outs := o.of(t, OpAcquire); outs[0].Nodes[1].Verdict != VerdictPending {
			t.Fatalf("the outcome waited for %v", outs[0].Nodes[1])
		}
		if got := o.verdicts(OpAcquire, 1); len(got) != 0 {
			t.Fatalf("heard %v before it answered", got)
		}
		time.Sleep(time.Second)
		if got := o.verdicts(OpAcquire, 1); !slices.Equal(got, []Verdict{VerdictGranted}) {
			t.Errorf("heard %v of the straggler", got)
		}
		w.release(lease)
	})
}
