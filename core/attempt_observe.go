package core

import "context"

// observe starts an operation on the lease, as policy.observe does.
func (a *attempt) observe(ctx context.Context, kind OpKind) (derived context.Context, end func(Outcome)) {
	if !a.isObserved() {
		return ctx, nil
	}
	return a.p.observe(ctx, kind, a.lock.Key, false, a.token)
}

// isObserved reports whether observers are told of operations on the lease. They are not told of the lease of a member
// until its operation has chosen it for the caller: all others are given back.
func (a *attempt) isObserved() bool {
	isChosen := !a.p.member || a.lease.isToldOf.Load()
	return isChosen && a.p.observer.Start != nil
}
