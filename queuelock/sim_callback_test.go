package queuelock

import (
	"context"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
)

// misbehaving returns an observer that does what o does, and then panics or is slow now and then, by "callbacks" of the plan:
// 1 panics, 2 is slow. What o returns from Start must reach core, so only the ends of operations and events misbehave.
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
			return ctx, func(out core.Outcome) {
				if end != nil {
					end(out)
				}
				misbehave()
			}
		},
		Event: func(ctx context.Context, e core.Event) {
			o.Event(ctx, e)
			misbehave()
		},
	}
}
