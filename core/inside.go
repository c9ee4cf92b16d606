package core

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/inside"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/slot"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/internal/callback"
)

// init gives packages that are built on core access to the internals of a Locker: admin and lockctl through inside,
// semaphore through slot, the others through callback.
func init() { //nolint:funlen // a list of functions
	callback.BackgroundOf = func(locker any) *callback.Background { return locker.(*Locker).e.Callbacks }
	inside.Enter = func(ctx context.Context, locker any, key *string) (*node.Group, func(), error) {
		l := locker.(*Locker)
		err := l.checkCall(ctx)
		if key != nil {
			_, err = l.policyForCall(ctx, *key, nil)
		}
		if err != nil {
			return nil, nil, err
		}
		admitted := l.e.gate.Enter()
		if !admitted {
			return nil, nil, ErrClosed
		}
		return l.e.Group, l.e.gate.Leave, nil
	}
	inside.Config = func(nodes []redis.UniversalClient, options any) (*node.Config, error) {
		p, err := policyFor(nodes, options.([]Option))
		return &p.Config, err
	}
	inside.Dial = func(urls []string, options any) ([]redis.UniversalClient, error) {
		return dialNodes(urls, options.([]Option))
	}
	inside.Replies = func(g *node.Group, t *quorum.Tally) any { return replies(g, t) }
	inside.ContextError = contextError
	inside.KeyHash = keyHash
	inside.Fail = func(failed any, err error) { failed.(*OpError).setErr(err) }
	inside.AllowUnfit = option(func(p *policy) { p.ReadOnly = true })
	inside.Stored = func(text string, clock time.Time) (k KeyOnNode) {
		k.Verdict = VerdictGone
		k.parse(text, wire.NodeTimeOf(clock))
		if k.Record != nil {
			k.Record = &Record{Token: k.Record.Token} // its result may be incomplete
		}
		return k
	}
	inside.Settled = keyStateOf

	slot.Begin = func(ctx context.Context, locker any, key string, try bool, opts any) (slot.Operation, error) {
		op, err := locker.(*Locker).beginSlot(ctx, key, try, opts.([]CallOption))
		if err != nil {
			return nil, err
		}
		return op, nil
	}
	slot.MemoryOf = func(locker any) *slot.Memory {
		l := locker.(*Locker)
		if !l.valid() {
			return nil
		}
		return &l.e.slots
	}
	slot.ReleaseAfter = func(ctx context.Context, lease any, err error) error {
		return releaseAfter(ctx, lease.(*Lease), err)
	}
}
