package locktest

import (
	"context"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
)

// Lose takes the lease that ctx runs under away from its holder, as if somebody
// else had been granted the key, and returns when the holder has learnt of it:
// its context has ended, with cause [core.ErrLost] and reason taken. That takes as
// long as it is to the lease's next renewal, about a third of its TTL; without a
// watchdog the lease runs out. Nobody has the key meanwhile, and anybody may
// afterwards; who waits in the nodes' queue gets it when the lease would have run
// out. The lease may be of any Locker on these nodes with l's key prefix.
//
// It may be called from any goroutine, also from the holder's own; the end of the
// test waits for it. It fails the
// test if ctx runs under no lease, or the lease ends in another way, or not at
// all: where a quorum of nodes has lost its memory, these believe the holder.
func (l *Locker) Lose(ctx context.Context) {
	l.tb.Helper()
	l.loses.Add(1)
	defer l.loses.Done()
	lease, ok := core.FromContext(ctx)
	if !ok {
		l.tb.Errorf("locktest: Lose of a context that runs under no lease")
		return
	}
	limit := time.NewTimer(time.Minute + 2*time.Until(lease.ValidUntil()))
	defer limit.Stop()
	free := l.take(lease)
	defer free()
	select {
	case <-lease.Context().Done():
	case <-limit.C:
		l.tb.Errorf("locktest: %q is not lost: its nodes believe the holder", lease.Key())
		return
	}
	if lease.Lost() == nil {
		l.tb.Errorf("locktest: %q was not lost: %v", lease.Key(), context.Cause(lease.Context()))
	}
}

// nobody is an owner that is not an attempt of anybody.
const nobody = "locktest"

// take has every node believe that the lease's key was granted to somebody else, until free is called.
func (l *Locker) take(lease *core.Lease) (free func()) {
	key := l.KeyPrefix() + "{0}r:" + lease.Key()
	// Nobody must be granted the key before the lease has ended. It is trusted for less than the nodes keep it.
	until := lease.ValidUntil().Add(time.Second).UnixMilli()
	was := make([]testutil.Resource, len(l.Nodes))
	owner := nobody
	for i, n := range l.Nodes {
		r, err := load(n, key)
		if err != nil {
			l.tb.Errorf("locktest: %s: %v", n.Name(), err)
		}
		was[i] = r
		isLease := r.Expiry > 0 && r.Counter == int64(lease.FencingToken())
		if isLease {
			owner = r.Owner
		}
		r.Expiry = max(r.Expiry, until)
		r.Owner = nobody
		r.Before = r.Counter
		r.Counter++
		l.store(n, key, r)
	}
	return func() {
		for i, n := range l.Nodes {
			r := was[i]
			// Ended, as it was the lease's own: a renewal that comes late does not bring it back.
			r.Expiry = 0
			r.Owner = owner
			r.Counter++
			r.Before = -1
			l.store(n, key, r)
		}
	}
}

func load(n *testutil.Node, key string) (testutil.Resource, error) {
	v, err := n.Exec("GET", key)
	if err != nil {
		return testutil.Resource{Before: -1}, err
	}
	s, _ := v.(string)
	return testutil.ParseResource(s)
}

func (l *Locker) store(n *testutil.Node, key string, r testutil.Resource) {
	if _, err := n.Exec("SET", key, r.String(), "PX", (48 * time.Hour).Milliseconds()); err != nil {
		l.tb.Errorf("locktest: %s: %v", n.Name(), err)
	}
}
