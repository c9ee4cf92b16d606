package queuelock

import (
	"context"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
)

// misbehaving returns an observer that does what o does, and sometimes panics or is slow. "callbacks" of the plan
// selects how: 1 panics, 2 is slow. Only the ends of operations and the events misbehave, because core needs the
// results of Start.
//
// At the end of an acquisition, o is called after the misbehavior, and in all other cases before it. Acquire returns
// only then, and until it has returned, the task keeps its waiting place.
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

// hearsLosses returns how late the observer may learn that a lease was lost. A loss is reported in the background,
// after the earlier reports about the lease.
func (p *simProcess) hearsLosses() time.Duration {
	if p.s.Is("callbacks") == 2 {
		return time.Second
	}
	return time.Millisecond
}
