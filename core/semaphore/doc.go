// Package semaphore lets at most k callers hold a key at a time, across all processes that use the same nodes: three
// calls at a time to an API, two imports at a time per customer.
//
//	limit, err := semaphore.New(locker, 3)
//	…
//	err = limit.Do(ctx, "payments-api", func(ctx context.Context) error {
//		return pay(ctx, 42) // ctx ends if the permit is lost
//	})
//
//	Do, TryDo             run a function under a permit; TryDo does not wait
//	Acquire, TryAcquire   return a Permit; to end it, call its Release
//	FromContext           the permit under which a context runs: its slot, its fencing token
//
// # Guarantee
//
// At any time at most k permits for a key have a live context. Each permit is a lease of package core on one of k locks,
// the slots of the key, and has all guarantees of one: its context ends before its slot can be granted again, the
// watchdog renews it, a dead holder's slot is free after the TTL, and locks go on while a minority of the nodes is down.
// If a slot is lost, the context of its holder alone ends.
//
// Slot 0 is the key itself. So a semaphore of 1 is the plain lock, and a holder of core.Locker.Do on the key counts as one
// holder of the semaphore. Processes may use different k, as they do while a new k is rolled out: at any
// time, no more hold the key than the largest k of all that hold it or ask for it.
//
// # Non-guarantee
//
// Waiters are not served in the order of their arrival, except within a slot (guarantee 9 of docs/guarantees.md): a call
// waits in the queues of two slots, after 50 ms of four, later of eight, and takes the first that it is granted. With
// more than eight slots, a call that waits tries the others in turn, eight a second, so it may take k/8 seconds to find a
// free slot that others do not use. A killed holder's slot is missing for the TTL.
//
// Fencing tokens grow within a slot only. A store that rejects late writes needs the largest token of each slot number:
//
//	permit, _ := semaphore.FromContext(ctx)
//	// UPDATE … SET token = $token WHERE slot = $slot AND token <= $token
//	save(ctx, permit.Slot(), permit.FencingToken())
//
// Code that is written for one holder does not meet a permit. [core.FromContext] and [core.Locker.Holding] pass over
// permits, a permit cannot be completed, and [core.Reentrant] does not run under one. If a call already runs under a permit
// or a lease for its key, it returns ErrHeld at once (HeldByCaller). Do not use Once or Complete on the key of a semaphore:
// the record would keep slot 0 for the retention, and calls that meet it return ErrDone. To run each task once, and at
// most k at a time, put Once around the semaphore:
//
//	err := locker.Once(ctx, core.Key("import", "42"), func(ctx context.Context) error {
//		return limit.Do(ctx, "imports", func(ctx context.Context) error { … })
//	})
//
// A limit of calls in progress is no limit of calls per second. For the latter, release with [core.Cooldown]: at most k
// permits are then granted within a cooldown.
//
// # Cost
//
// Without contention, a permit costs as much as a lock: one request to each node, and one for its release. A call that
// waits costs about three more, and one a second for each queue in which it waits. If all slots are taken, TryAcquire asks
// each of them. The process remembers which slots it used, for at most 1024 keys that it does not use now.
//
// To observers (core.WithObserver) an acquisition is one operation, on the key, however many slots it asks for; the hold
// and the release belong to the slot. core.Name names the semaphore in metrics. The keys of slots 1, 2, … are
// core.Key("slot", key, "1"), core.Key("slot", key, "2"), …; lockctl shows them together.
package semaphore
