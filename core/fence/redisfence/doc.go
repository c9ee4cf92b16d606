// Package redisfence makes Redis refuse the writes of stale lock holders: a script runs unless Redis has seen a greater
// fencing token of the same lock.
//
//	var withdraw = redisfence.NewScript("return redis.call('DECRBY', KEYS[1], ARGV[1])")
//	…
//	balance, err := withdraw.Run(ctx, client, []string{"{account:42}:balance"}, 10).Int()
//
// ctx is the context of a function under a lock, as for package fence. client is the client of the Redis that has the
// data. It need not be one of the lock nodes.
//
//	Run          write under the innermost lease of ctx
//	RunLease     under another lease, such as one of several that are held at once
//	RunPermit    under a permit of a semaphore, whose tokens compare slot by slot
//
// # Guarantee
//
// Once a script has run under a fencing token, no script runs under a smaller token of the same lock for keys with the
// same hash tag. An equal token passes. This holds as long as:
//
//   - every write to these keys is done by such a script, under the lock;
//   - the fencing tokens of the lock grow (guarantee 3 in docs/guarantees.md);
//   - Redis does not lose writes that it has confirmed, and its clock is right to a day.
//
// # Non-guarantee
//
// A failover of Redis loses writes that it has confirmed and not replicated, and so does a crash without
// "appendfsync always". If that takes a token away, a stale holder can write again. If your data cannot bear
// that, use a database with package fence.
//
// Nothing is written exactly once. If a reply is lost, it is unknown whether the script has run, and go-redis may send
// it again (MaxRetries). Let scripts set values instead of adding to them, or use a client with MaxRetries: -1. A
// script that fails halfway is not rolled back: Redis keeps what it has written, with its token.
//
// # Order
//
// A script is atomic, so it may read values and write others that depend on them. If a write depends on values that were
// read outside of its script, run a script that writes nothing before that read, such as NewScript("return 1"). After
// it, no earlier holder writes. Without it, a stale holder may write between the read and the script, and its write is
// overwritten.
//
// # Keys
//
// All keys of a call have the same hash tag, which is the part of a key in braces, or else the whole key. So they are
// in one slot of a Redis Cluster, and the token is there, too: in the key "lockkit-fence:{tag}:" and a hash of the
// lock. One lock may protect keys of several tags, and each tag has its token. A script must use no other keys. With an
// ACL, the user of Redis needs the commands eval, evalsha, get, set, time and info, and the keys lockkit-fence:*.
//
// # Memory
//
// The key of a token expires 31 days after the last script under the lock. If there is none, a token that is older than
// 30 days is refused with fence.ErrTooOld, as by package fence.
//
// A Redis that evicts keys could evict tokens, too: if maxmemory is set, maxmemory-policy must be noeviction. A script
// checks this when it makes the key of a token, which is at the first write under a lock and tag, and at the first one
// after the key has expired or was evicted. It is refused with core.ErrInvalid then, and has written nothing. NewScript
// checks nothing, and neither does a write that finds its token, because a token that is there was not evicted.
//
// # Errors
//
//	fence.ErrStale     a later holder has been at work: stop. It also matches core.ErrLost
//	fence.ErrTooOld    the lease is older than 30 days, and has not written for as long: acquire it again
//	core.ErrInvalid    a bug in the caller: no lease, no keys, keys with different hash tags, a Redis that evicts
//	redis.Nil          the script has run, and returned nothing
//
// The adapters know these errors: see package fence. Any other error comes from Redis or from the script.
package redisfence
