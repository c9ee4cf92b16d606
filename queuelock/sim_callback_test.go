package queuelock

import (
	"context"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
)

// misbehaving returns an observer that does what o does, and now and then panics or is slow, by "callbacks" of the plan: 1
// panics, 2 is slow. What o returns from Start must reach core, so only the ends of operations and events misbehave.
//
// The end of an acquisition is heard by o after that, and of everything else before it: the call of Acquire returns only then,
// and until it has returned, the task keeps its place to wait on.
func (p *simProcess) misbehaving(o core.Observer) core.Observer {
	how := p.s.Is("callbacks")
	if how == 0 {
		return o
	}

	var mu sync.Mutex
	random := p.s.Random(uint64(1000 + p.place))
	misbehave := func() {
		mu.Lock()
		now, long := random.IntN(10) == 0, time.Duration(random.IntN(100))*time.Millisecond
		mu.Unlock()
		switch {
		case !now:
		case how == 1:
			p.s.Count("callback panics")
			panic("observer")
		default:
			p.s.Count("callback is slow")
			time.Sleep(long)
		}
	}
	return core.Observer{
		Start: func(ctx context.Context, op core.Op) (context.Context, func(core.Outcome)) {
			ctx, end := o.Start(ctx, op)
			if end == nil {
				end = func(core.Outcome) {}
			}
			if op.Kind == core.OpAcquire {
				return ctx, func(out core.Outcome) {
					defer end(out)
					misbehave()
				}
			}
			return ctx, func(out core.Outcome) {
				end(out)
				misbehave()
			}
		},
		Event: func(ctx context.Context, e core.Event) {
			o.Event(ctx, e)
			misbehave()
		},
	}
}

// hearsLosses is within what time the observer hears that a lease was lost: that is told in the background, after all that was
// told of the lease before.
func (p *simProcess) hearsLosses() time.Duration {
	if p.s.Is("callbacks") == 2 {
		return time.Second
	}
	return time.Millisecond
}
