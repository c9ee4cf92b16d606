package core

import "context"

// WithWork returns a context that names the work that is done in it. Parts are what tells the work from all other work,
// such as "payment" and the number of an order, as in [Key]. The identity of the work is the key prefix of l (see
// WithKeyPrefix) and, in braces, Key of the parts. Package fence records it in the database, in the transaction that has
// the effect of the work.
//
// Every try of the same work must have the same parts, so they must not have a number of the attempt, a time of day or
// a fencing token. Work of different types must have different parts.
//
// The identity stays when a lease is acquired: leases in this context change the key and the fencing token, and not the
// work. The adapters set it for their handlers: queuelock to the identity of the task, httplock to that of the
// Idempotency-Key, cronlock to the job and its tick. [Locker.Once] sets it to its key, unless ctx has one. Without
// parts, the context has no identity.
func (l *Locker) WithWork(ctx context.Context, parts ...string) context.Context {
	if len(parts) == 0 {
		return withWork(ctx, "")
	}
	return withWork(ctx, identityOf(l.KeyPrefix(), Key(parts...)))
}

// Work returns the identity of the work that ctx belongs to: see [Locker.WithWork].
func Work(ctx context.Context) (identity string, ok bool) {
	identity, _ = ctx.Value(workKey{}).(string)
	return identity, identity != ""
}

// workKey is the key of the identity in a context.
type workKey struct{}

// identityOf returns the identity of the work with this key. A prefix has no braces, so different pairs of a prefix and a
// key have different identities, even if one prefix begins with the other one.
func identityOf(prefix, key string) string { return prefix + "{" + key + "}" }

// withWork returns a context with an identity that has the key prefix already.
func withWork(ctx context.Context, identity string) context.Context {
	return context.WithValue(ctx, workKey{}, identity)
}

// workContext returns the context of a function that Once runs under the lease. Its work is that of the caller, or else
// the key.
func workContext(lease *Lease) context.Context {
	if _, isNamed := Work(&lease.ctx); isNamed {
		return &lease.ctx
	}
	return withWork(&lease.ctx, identityOf(lease.KeyPrefix(), lease.Key()))
}
