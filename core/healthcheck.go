package core

import (
	"context"
	"errors"
)

// A healthCheck is a call of the check of RenewWhile. Each renewal depends on one that began when the lease was granted,
// or was last renewed. Guarded by the lease's lock.
type healthCheck struct {
	cancel context.CancelFunc
	over   bool // it has answered, or its time is up
	err    error
}

var errCheckSlow = errors.New("the holder's check has not answered by the time that the lease was to be renewed")

// checkHealth begins the check that the next renewal depends on. It is the user's code, for which nobody waits. Called
// with the lock.
func (lease *Lease) checkHealth() {
	if lease.p.renewWhile == nil || !lease.renewable() {
		return
	}
	ctx, cancel := context.WithCancel(lease.ctx.Context)
	c := &healthCheck{cancel: cancel}
	lease.check = c
	lease.e.spawn(func() {
		defer cancel()
		err := lease.p.renewWhile(context.WithValue(ctx, leaseKey{}, &lease.ctx))
		lease.mu.Lock()
		defer lease.mu.Unlock()
		if c.over || lease.ctx.Context.Err() != nil { // a check fails when its context ends: that is no fault of the holder's
			return
		}
		lease.checked(err)
		lease.plan()
	})
}

// checked ends the check. One that fails is the last: the lease runs out. Called with the lock.
func (lease *Lease) checked(err error) {
	c := lease.check
	c.over, c.err = true, err
	if err != nil {
		c.cancel()
		lease.renewNoLonger(min(lease.renewAt-lease.e.clock.now(), 0), LossUnhealthy) // nor does one begin that is due already
	}
}

// healthy reports whether the check that a renewal depends on allows it. One that has not answered when the lease is due
// has failed. Called with the lock.
func (lease *Lease) healthy() bool {
	c := lease.check
	if c == nil {
		return true
	}
	if !c.over {
		if lease.e.clock.now() < lease.renewAt { // it was looked at ahead of time
			return false
		}
		lease.checked(errCheckSlow)
	}
	return c.err == nil
}
