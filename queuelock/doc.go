// Package queuelock runs the tasks of asynq (github.com/hibiken/asynq) one at a time per key, and completes each once.
// asynq delivers at least once: it hands a task to a second worker while the first handler still runs (timeout, cancellation,
// lost lease, shutdown), and runs a task again whose completion it failed to write.
//
//	ql, err := queuelock.New(locker, queuelock.WithKey(queuelock.ByPayloadField("order_id")))
//	…
//	cfg := asynq.Config{Concurrency: 20}
//	if err := ql.Configure(&cfg); err != nil { … } // last, before NewServer
//	mux := asynq.NewServeMux()
//	mux.Use(ql.Middleware)
//	…
//	client.Enqueue(asynq.NewTask("charge", payload), queuelock.ID("charge", paymentID))
//
// # The rules
//
//  1. A task's identity is its id. If asynq made it (a UUID), or [ID], or a [Scheduler], the task's completion is remembered
//     ([WithRetention]). A completed task with any other, foreign id may run again, but not two deliveries of it at a time.
//  2. A handler runs under two leases: that of the identity, then that of the key ([WithKey]). They are held until it returns,
//     or until a grace after its context has ended ([WithGrace]).
//  3. A delivery that gets no lease waits for it once, and is then given back to asynq. For a held key that does not rest
//     ([Cooldown]) it waits until half of the task's time is over, if the server has a waiting place left; for locks out of
//     reach, up to 5 s. A last attempt needs no place, and waits for either until shortly before its deadline. Waiting places
//     are a quarter of the workers, rounded up, and never all of them ([WithWaiters]).
//  4. A task that is given back counts no retry. It comes again at once, or when its key has rested ([Cooldown]). A server gives
//     back ten tasks a second per worker at most. A last attempt is archived if its deadline comes before its turn.
//     When a server dies, its keys are free within the TTL. Its tasks come later: asynq's recoverer finds them after one to
//     two minutes and counts a retry of each, even of those that only waited. The delay of that retry comes on top. A server that
//     is cut off from asynq's Redis holds back what it has fetched, and counts a retry of each task whose timeout passes meanwhile.
//  5. Nil and asynq.RevokeTask are recorded before asynq hears of them; every other error is asynq's business.
//  6. A tick is a task whose id is made of service, name and instant.
//
// # Guarantee
//
// At most one handler per key has a context that has not ended. Two handlers of one key overlap only after the context of the
// first has ended, and the grace and the rest of its lease have passed; or after its lease was lost, or taken away by the Close
// of its Locker. A delivery of a remembered task that has completed returns nil without running its handler.
//
// # Non-guarantee
//
// Order: a task that is given back may be overtaken. If order matters, carry a sequence number and check it in the store.
// Effects are done once only if the store rejects a fencing token smaller than the largest it has seen, commits them with a
// record of them, or knows them by the identity: see [FromContext]. A delivery that comes after the retention runs again, and
// so does each delivery of a completed task with a foreign id. The limits of package core apply: a process that is paused does
// not notice that its lease has ended, and nodes that lose their memory lose records.
//
// # What becomes of a delivery
//
//	task on record as completed  nil: asynq removes the task            EventDuplicate
//	key held                     waits, or is given back                EventContended
//	locks out of reach           waits, then is given back; never run   EventUnavailable
//	no key can be made of it     a failure, and an error in the log     EventNoKey
//	its key is completed         likewise                               EventNoKey
//	last attempt, in vain        archived, and an error in the log      EventArchived
//	handler returns nil          recorded, then nil
//	… after its context ended    likewise, and a warning in the log     EventNilAfterCancel
//	… not to be recorded         tried for 30 s or until the deadline,
//	                             then nil, and an error in the log      EventUnrecorded
//	… lease granted to another   core.ErrLost, a failure                EventRefused
//	handler fails or panics      leases released; asynq's business
//	handler returns Cooldown     given back; the key rests              EventCooldown
//	handler does not return      leases run out after the grace         EventAbandoned
//
// A key is completed if Complete or Once was called for it elsewhere: it is not granted within that retention. A task that is
// revoked (asynq.RevokeTask) stays revoked. asynq lists a task that was given back as a retry until it is due, and then as
// pending; its last error begins with "queuelock: not run" and gives the reason. [core.Locker.Inspect] and lockctl show the
// holder. Middleware outside of this one sees [ErrNotRun]; asynq's ErrorHandler is not called.
//
// A handler that returns nil when its context ends, as in "case <-ctx.Done(): return nil", has its task recorded as done. Let
// it return ctx.Err(). The context is asynq's; it also ends when a lease is lost, with a cause that matches [core.ErrLost]. A
// handler's own test calls it without the middleware, with a context of [NewContext].
//
// # Ids
//
// Producers give two tasks that are the same work the same id: ID("charge", paymentID), instead of asynq.Unique or a key from
// the payload. An aggregator gives the task that it returns such an id, too, made of its members:
// asynq may aggregate them twice. At the first task of a type with a foreign id, such as TaskID("report:daily"), the log warns
// that its completions are not remembered (EventForeignID). Applications that share lock nodes, but not asynq's Redis, need
// key prefixes of their own (core.WithKeyPrefix) or a part of ID that tells them apart.
//
// To drop a task while another one of its key runs, do without WithKey and use TryDo in the handler. Drop the task only if a
// quorum has another holder, since core.ErrHeld may also mean split votes, or the lease of an earlier delivery of the task:
//
//	run, _ := queuelock.FromContext(ctx)
//	err := locker.TryDo(ctx, key, report, core.Note(run.Identity))
//	if errors.Is(err, core.ErrHeld) {
//		if now, _ := locker.Inspect(ctx, key); now.Holder != nil && now.Holder.Note != run.Identity { return nil }
//	}
//	return err // asynq tries again
//
// # Workers
//
// A task that waits takes a worker. With a Concurrency of 1 nothing waits, and a task whose key is held comes back after
// DelayedTaskCheckInterval, 250 ms if Configure sets it. A backlog of one key costs asynq's Redis up to ten deliveries a second
// per worker. A server that cannot reach the lock nodes keeps each of its tasks for 5 s, so that those that can take the rest.
//
// # Last attempts
//
// asynq archives a task on its last attempt (MaxRetry(0), or retries used up) whatever the error is. There the middleware
// waits in place, beyond the waiting places, until a second before the deadline. If the server dies meanwhile, asynq archives
// the task with "asynq: task lease expired", although it has not run. Give tasks with contended keys a MaxRetry of 1 or more.
//
// # Schedules
//
// asynq's own Scheduler enqueues each tick once per replica. A [Scheduler] enqueues it once:
//
//	scheduler, err := ql.NewScheduler(client, "billing", time.UTC)
//	…
//	defer scheduler.Shutdown()
//	err = scheduler.Register("invoices", "0 3 * * *", asynq.NewTask("invoices", nil), asynq.MaxRetry(5))
//
// All replicas enqueue it, and asynq takes the id once. It keeps the id for an hour after the task has completed, and the
// middleware for the retention. A tick is as early as the clock of the earliest replica. If asynq's Redis is away, a tick is
// tried until the next one is due, ten minutes at most; then EventTickMissed and the log tell of it. Ticks that fall due while
// all replicas are down, or suspended, are not made up, as with asynq.
//
// # Shutdown
//
// First srv.Shutdown, then locker.Close(ctx) with a deadline: it waits for handlers that asynq has given up on, then frees their
// keys; the process must end then. If asynq's Redis is away, srv.Shutdown takes minutes: call it in a goroutine.
package queuelock
