package core

import "context"

// observe starts an operation on the lease, as policy.observe does.
func (a *attempt) observe(ctx context.Context, kind OpKind) (derived context.Context, end func(Outcome)) {
	if !a.isObserved(kind) {
		return ctx, nil
	}
	return a.p.observe(ctx, kind, a.lock.Key, false, a.token)
}

// isObserved reports whether observers are told of operations of this kind on the lease.
func (a *attempt) isObserved(kind OpKind) bool {
	if a.p.observer.Start == nil {
		return false
	}
	switch {
	case !a.p.member:
		return true
	case a.p.isSlot():
		// The operation has chosen this lease for the caller: all others are given back.
		return a.lease.isToldOf.Load()
	default:
		// The set is told of as a whole, except that each of its leases is renewed by itself.
		return kind == OpRenew
	}
}
