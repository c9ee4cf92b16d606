// Package queuelock runs the tasks of asynq (github.com/hibiken/asynq) one at a time per key, and does not run a completed
// task again while it remembers the completion. asynq delivers at least once. It hands a task to a second worker while the
// first handler still runs (timeout, cancellation, loss of asynq's own lease on the task, shutdown). It also runs a task
// again if it failed to write the completion.
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
//  1. The identity of a task is its id. If the id was made by asynq (a UUID), [ID] or a [Scheduler], the completion is
//     remembered ([WithRetention]). Any other id is foreign, and identifies a task within its queue only: a completed
//     task may run again, but two deliveries of it do not run at the same time.
//  2. A handler runs under two leases of package core: that of the task's identity, then that of its key ([WithKey]), if it
//     has one. The leases are held until the handler returns, or until a grace period after its context has ended
//     ([WithGrace]).
//  3. A delivery that is refused a lease at first waits for it one time. If the lease is still not granted, the task is
//     given back: asynq delivers it again, and counts no retry. If somebody else holds the key, the delivery waits for
//     half of the time to its deadline, provided that the server has a free waiting place. Waiting places are a quarter
//     of the server's workers, rounded up, and never all of them ([WithWaiters]). If more than a second of the key's
//     cooldown ([Cooldown]) is left, the delivery does not wait. If the locks are unavailable (no quorum of lock nodes
//     answers), it waits for up to 5 s, and no longer than for a held key (not at all if the Locker is closed). A last
//     attempt, without retries left, waits in all of these cases and needs no waiting place. If it has no lease a second
//     before its deadline (a tenth of its time, if that is less), asynq archives the task.
//  4. A task that was given back is delivered again at asynq's next check for delayed tasks (250 ms), or after the
//     cooldown of its key. Those without a cooldown are limited to ten a second per worker of the server, after a burst
//     of four per worker; the limit gives way to a task whose deadline is nearer than its turn. When a server dies, its
//     keys are free within the TTL. Its tasks are delivered later: asynq finds them after 55 to 120 s and counts a retry
//     of each, even of those that only waited. The delay of that retry is added. When a server is cut off from asynq's
//     Redis, tasks that it has fetched may start late. asynq counts a retry of each of them whose timeout, or 30 s lease
//     from asynq, ends before the server is back.
//  5. If a handler returns nil or asynq.RevokeTask, a completion to remember (rule 1) is recorded before asynq gets the
//     result. asynq gets every other error as it is, except [Cooldown], which gives the task back. If a lease was lost,
//     the error also matches [core.ErrLost].
//  6. A tick, one due instant of a schedule, is a task whose id consists of service, name and instant ([Scheduler]).
//
// # Guarantee
//
// At most one handler per key has a context that has not ended. Two handlers of one key overlap only if the first
// continues after its context has ended, and either the grace period and what then remained of its lease have passed, or
// its lease was lost earlier (also by [core.Locker.Close]). Within the retention, a delivery of a task with a remembered
// completion does not run its handler, and returns nil once the record can be read.
//
// # Non-guarantee
//
// Tasks do not keep their order: one that was given back may be overtaken. If order matters, give tasks a sequence number,
// and check it in the store. Effects happen once only if the store does one of three things: it rejects a fencing token
// smaller than the largest it has seen, commits each effect together with a record of it, or recognizes an effect by the
// task's identity (see [FromContext] for token and identity). A completed task runs again if it is delivered after the
// retention, or with a foreign id. The limits of package core apply: a process that is paused does not notice that its lease
// has ended, and nodes that lose their memory lose records.
//
// # What becomes of a delivery
//
//	task on record as completed  nil: asynq removes the task            EventDuplicate
//	key held                     waits, or is given back                EventContended
//	locks unavailable            waits, then is given back; never run   EventUnavailable
//	no key can be made of it     a failure, and an error in the log     EventNoKey
//	key completed                a failure, and an error in the log     EventNoKey
//	last attempt without lease   archived, and an error in the log      EventArchived
//	handler returns nil          recorded, then nil
//	… after its context ended    the same, and a warning in the log     EventNilAfterCancel
//	… record not confirmed       tried for 30 s, less if a deadline is near,
//	                             then nil, and an error in the log      EventUnrecorded
//	… lease granted to another   core.ErrLost, a failure                EventRefused
//	handler fails or panics      leases released; asynq gets the error
//	handler returns Cooldown     given back; the key is in a cooldown   EventCooldown
//	… on a last attempt          archived; the key is in a cooldown     EventArchived
//	handler does not return      leases expire after the grace period   EventAbandoned
//
// A key is completed if another caller used Complete or Once on it: it is not granted within that caller's retention.
// EventRefused may also mean that too many nodes lost their memory to tell whether the lease was granted to another. A
// task that was revoked (asynq.RevokeTask) stays revoked, whatever becomes of its record.
//
// In asynq, a task that was given back is a retry until it is due, and then pending. The task's last error begins with
// "queuelock: not run" and gives the reason. [core.Locker.Inspect] and lockctl show the holder of the key. Middleware
// outside of this one sees [ErrNotRun]; asynq's ErrorHandler is not called.
//
// The context of a handler is asynq's. It also ends when a lease is lost, with a cause that matches [core.ErrLost]. If a
// handler returns nil because its context has ended, as in "case <-ctx.Done(): return nil", its task is recorded as
// completed: return ctx.Err() instead. To test a handler, call it without the middleware, with a context made by
// [NewContext].
//
// # Ids
//
// Producers must give two tasks that are the same work the same id, such as ID("charge", paymentID); asynq.Unique or a
// key of the payload does not replace it. An aggregator must give the task that it returns such an id, too, made of the
// member tasks, because asynq may aggregate them twice. At the first task of a type with a foreign id, such as
// TaskID("report:daily"), the log warns that completions of that type are not remembered (EventForeignID). Applications
// that share lock nodes, but not asynq's Redis, need different key prefixes (core.WithKeyPrefix), or a part of ID that
// tells them apart.
//
// To drop a task while another task with its key runs, leave out WithKey and use TryDo in the handler. core.ErrHeld may also
// mean that contenders split the votes, or that an earlier delivery of this task has the lease. So drop the task only if a
// quorum names another holder:
//
//	run, _ := queuelock.FromContext(ctx)
//	err := locker.TryDo(ctx, key, report, core.Note(run.Identity)) // at most 128 bytes: keep ids short, or hash them
//	if errors.Is(err, core.ErrHeld) {
//		if now, _ := locker.Inspect(ctx, key); now.Holder != nil && now.Holder.Note != run.Identity { return nil }
//	}
//	return err // if it is not nil, asynq tries again
//
// # Workers
//
// A task that waits occupies a worker. With a Concurrency of 1 there is no waiting place. Then a task whose key is held
// comes back at the next check for delayed tasks (DelayedTaskCheckInterval, which Configure sets to 250 ms if you have
// not). A backlog of one key costs asynq's Redis up to ten deliveries a second per worker. A server that cannot reach the
// lock nodes keeps each task for up to 5 s, so that other servers take the other tasks. A task that is back within 5 s is
// kept for 0.16 to 1.25 s.
//
// # Last attempts
//
// asynq archives a task on its last attempt (MaxRetry(0), or retries used up) whatever the error is. So a last attempt waits
// as long as it can (rule 3). If the server dies meanwhile, asynq archives the task with "asynq: task lease expired",
// although the handler has not run. Give tasks with contended keys a MaxRetry of 1 or more.
//
// # Schedules
//
// asynq's own Scheduler enqueues each tick once per replica. A [Scheduler] enqueues it once for all replicas:
//
//	scheduler, err := ql.NewScheduler(client, "billing", time.UTC)
//	…
//	defer scheduler.Shutdown()
//	err = scheduler.Register("invoices", "0 3 * * *", asynq.NewTask("invoices", nil), asynq.MaxRetry(5))
//
// All replicas try to enqueue a tick, and asynq accepts its id once. asynq keeps the id for at least an hour after the
// task has completed, and the middleware remembers the completion for the retention. The replica whose clock is furthest
// ahead decides when a tick is enqueued. If asynq's Redis does not answer, replicas try to enqueue a tick until the next
// one is due, for ten minutes at most; then the log and EventTickMissed report it. As with asynq, a tick is lost if all
// replicas are down when it is due, or suspended until its time is over.
//
// # Shutdown
//
// Call srv.Shutdown, then locker.Close(ctx) with a deadline. Close waits for handlers that asynq has given up on. When ctx
// ends, Close ends their leases and frees their keys; the process must exit then. If asynq's Redis does not answer,
// srv.Shutdown takes minutes: call it in a goroutine.
package queuelock
