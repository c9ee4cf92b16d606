package locktest

import (
	"context"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
)

// Lose takes the lease that ctx runs under away from its holder, as if the key had
// been granted to another holder. It returns when the holder has noticed: the
// lease's context has ended, with cause [core.ErrLost] and reason taken. That takes
// until the lease's next renewal, up to about a third of its TTL; without a
// watchdog, it takes until the lease expires. During the call no client can get
// the key; afterwards every client can. A waiter in the nodes' queue gets the key
// when the lease would have expired. The lease may be of any Locker on these nodes
// with l's key prefix.
//
// Lose may be called from any goroutine, including the holder's own; the end of the
// test waits for it. It fails the test if ctx runs under no lease, if the lease
// ends in another way, or if it does not end. The last happens if a quorum of the
// nodes has lost its memory, because such nodes trust the holder.
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

// otherOwner is an owner that is no attempt of any Locker.
const otherOwner = "locktest"

// take changes the key on every node as if it had been granted to another owner, until free is called.
func (l *Locker) take(lease *core.Lease) (free func()) {
	key := l.KeyPrefix() + "{0}r:" + lease.Key()

	// The key must not be granted before the lease has ended. The holder trusts the lease for less time than the nodes
	// keep it, so a second after the end of its validity is enough.
	until := lease.ValidUntil().Add(time.Second).UnixMilli()
	before := make([]testutil.Resource, len(l.Nodes))
	owner := otherOwner
	for i, n := range l.Nodes {
		r, err := load(n, key)
		if err != nil {
			l.tb.Errorf("locktest: %s: %v", n.Name(), err)
		}
		before[i] = r

		isLease := r.Expiry > 0 && r.Counter == int64(lease.FencingToken())
		if isLease {
			owner = r.Owner
		}

		r.Expiry = max(r.Expiry, until)
		r.Owner = otherOwner
		r.Before = r.Counter
		r.Counter++
		l.store(n, key, r)
	}

	return func() {
		for i, n := range l.Nodes {
			// The key is free, and the lease that ended last was this one: so a late renewal does not bring it back.
			r := before[i]
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
