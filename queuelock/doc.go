// Package queuelock runs the tasks of asynq (github.com/hibiken/asynq) one at a time per key, and does not run a
// completed task again while it remembers the completion. asynq delivers at least once. It hands a task to a second
// worker while the first handler still runs (timeout, cancellation, loss of asynq's own lease on the task, shutdown).
// It also runs a task again if it failed to write the completion.
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
//  1. The identity of a task is its id, if the function [ID] or a [Scheduler] made the id. Otherwise, the identity is
//     the id together with the queue, the type and the payload. The completion of a task is remembered
//     ([WithRetention]) if its id is a random UUID, as asynq makes them, or was made by ID or a Scheduler. Any other id
//     is foreign. A task with a foreign id may run again after its completion.
//  2. A handler runs under two leases of package core. The first is on the task's identity. The second is on its key
//     ([WithKey]), if it has one; with [WithConcurrency], it is one of k permits for the key. Both are held until the
//     handler returns. If asynq ends the context of a handler and the handler goes on, the leases are renewed for a
//     grace period ([WithGrace]), and then expire.
//  3. A delivery that does not get a lease waits for it, for as long as the table below says. If it waits in vain, the
//     task is given back: asynq delivers it again, and counts no retry. The same happens if the application ends the
//     context of a delivery that waits. A last attempt, one without retries left, waits as long as it can; then asynq
//     archives the task.
//  4. A task that was given back is delivered again when asynq next checks for delayed tasks (every 250 ms by default)
//     and a worker is free. If its key is in a cooldown ([Cooldown]), it is delivered again after the cooldown.
//  5. If a handler returns nil or asynq.RevokeTask, the completion is recorded before asynq gets the result, unless the
//     id is foreign. If a handler returns [Cooldown], the task is given back. The same happens if it returns the error
//     of a store that has refused its fencing token (package core/fence), because a later holder has been at work. All
//     other errors go to asynq. If a lease was lost, the error also matches [core.ErrLost].
//  6. A tick is one due instant of a schedule. A [Scheduler] makes one task of it, for all replicas together. The
//     task's id consists of the service, the name of the schedule and the instant.
//
// # Guarantee
//
// At most one handler per key has a live context. Two handlers of one key can overlap only if the first goes on after
// its context has ended. Even then, the second does not start before the grace period of the first is over, unless the
// first has lost its lease. Closing the Locker ([core.Locker.Close]) counts as a loss.
//
// Within the retention, a task whose completion was recorded does not run again. If asynq delivers it again, the
// middleware returns nil without calling the handler. If no quorum of nodes answers, the delivery waits or is given
// back, as below.
//
// # Non-guarantee
//
// Tasks do not keep their order: a task that was given back may be overtaken. If order matters, give tasks a sequence
// number, and check it in the store.
//
// For effects that happen exactly once, the store must help. Package core/fence commits each effect together with a
// record of it, in your own database. If the handler returns its error that the work is done, the task is recorded as
// completed. A store can also recognize an effect by the task's identity, or reject a fencing token smaller than the
// largest it has seen ([FromContext] has token and identity). A completed task runs again if it is delivered after the
// retention, if its id is foreign, or if its completion could not be recorded. The limits of package core apply: a
// process that is paused does not notice that its lease has ended, and nodes that lose their memory lose records.
//
// # How long a delivery waits
//
// A delivery waits in a worker. To wait for a lease that another delivery or caller has, it also needs a waiting place.
// By default, a server has one waiting place for every four workers, rounded up ([WithWaiters]), but none if it has
// only one worker.
//
//	another delivery or caller has the lease          half of the time to the task's deadline
//	the same, but no waiting place is free            not at all
//	the key is in a cooldown for more than a second   not at all
//	no quorum of lock nodes answers                   5 s, or half of the time to the deadline if that is less
//	the Locker is closed                              not at all
//
// The table does not apply to last attempts. A last attempt always waits, and needs no waiting place. It gives up
// within the last second before its deadline.
//
// While a server cannot reach the lock nodes, its waiting workers fetch no further tasks, so servers that can reach the
// nodes get more.
//
// Tasks of other keys run beside the tasks that wait for a hot key, with two exceptions. With StrictPriority, asynq
// fetches no task of a lower queue while a task of a higher queue is pending. A worker gives back ten tasks a second,
// so more tasks of a hot key than that, for each worker, keep the lower queues waiting. The second exception is last
// attempts, such as each attempt with MaxRetry(0): they wait in their workers, so as many of them as a server has
// workers keep all its other tasks waiting. In both cases, give the tasks of the hot key a server of their own.
//
// # How a delivery ends
//
//	task on record as completed     nil: asynq removes the task           EventDuplicate
//	key held                        waits, or is given back               EventContended
//	locks unavailable               waits, then is given back             EventUnavailable
//	context ends before the run     given back
//	no key can be made of it        a failure, and an error in the log    EventNoKey
//	key completed                   a failure, and an error in the log    EventNoKey
//	last attempt without lease      archived, and an error in the log     EventArchived
//	handler returns nil             recorded, then nil
//	work done, by core/fence        the same
//	nil, but its context had ended  the same, and a warning in the log    EventNilAfterCancel
//	nil, but the record fails       nil, and an error in the log          EventUnrecorded
//	nil, but another got the lease  core.ErrLost, a failure               EventRefused
//	handler fails or panics         leases released; asynq gets the error
//	handler returns Cooldown        given back; the key is in a cooldown  EventCooldown
//	Cooldown, on a last attempt     archived; the key is in a cooldown    EventArchived
//	token refused, by core/fence    given back                            EventStale
//	the same, on a last attempt     archived                              EventStale, EventArchived
//	handler does not return         leases expire after the grace period  EventAbandoned
//
// A key is completed if another caller used Complete or Once on it: it is not granted within that caller's retention.
// If the nodes do not confirm a record, the middleware tries again for 30 s, or until the deadline is near. A task that
// was revoked (asynq.RevokeTask) stays revoked, even if its record fails.
//
// When a task has been given back, asynq shows it as "retry" until it is due, and then as "pending", but counts no
// retry. The task's last error begins with "queuelock: not run" and gives the reason. [core.Locker.Inspect] and lockctl
// show the holder of the key. Middleware outside of this one sees [ErrNotRun]; asynq's ErrorHandler is not called.
//
// The context of a handler is asynq's. It also ends when asynq.Config.BaseContext ends, or when a lease is lost, with a
// cause that matches [core.ErrLost]. If a handler returns nil because its context has ended, as in "case <-ctx.Done():
// return nil", its task is recorded as completed: return ctx.Err() instead. To test a handler, call it without the
// middleware, with a context made by [NewContext].
//
// # Ids
//
// If two tasks are the same work, producers must give them the same id, such as ID("charge", paymentID). Neither
// asynq.Unique nor a key from the payload ([WithKey]) replaces the id.
//
// A random UUID of a producer, such as an order's, looks like an id that asynq made. A "charge" and a "ship" of one
// order are two tasks even so, because they differ in type, queue or payload. A task that is the same in all of these
// and is enqueued again within the retention is not run, because asynq may have delivered one task twice. If that may
// be a mistake, the log warns. It also warns if a task with an [ID] is not run because a task of another type has
// completed under that id.
//
// asynq may aggregate the same tasks twice: if it fails to delete a set of tasks that it has aggregated, they join the
// next set, together with others. No id of the aggregated task prevents that they run again. In its handler, run each
// member task by [core.Locker.Once], under a key of the member's own. For package core/fence, each member is work of its
// own, so name it: otherwise a database that has the record of the first member skips the others.
//
//	for _, m := range members {
//		member := locker.WithWork(ctx, "member", m.ID)
//		err := locker.Once(member, core.Key("member", m.ID), func(ctx context.Context) error { … })
//		if err != nil && !errors.Is(err, core.ErrDone) {
//			return err
//		}
//	}
//
// In each process, the log warns once per type of task if a task has a foreign id, such as TaskID("report:daily"),
// because its completion is not remembered (EventForeignID). If two applications share lock nodes, but not asynq's
// Redis, the same id means the same task in both. Give them different key prefixes (core.WithKeyPrefix), or pass the
// application's name to ID.
//
// A handler's context names the work ([core.Work]): by the task's identity and its type. With a foreign id it names none,
// because another task may reuse the id. The handler can then name the work itself ([core.Locker.WithWork]).
//
// To drop a task while another task with its key runs, see docs/recipes.md.
//
// # Cost
//
// A task that waits occupies a worker. Without a waiting place, a task whose key is held comes back at the next check
// for delayed tasks (DelayedTaskCheckInterval, which Configure sets to 250 ms if you have not).
//
// For each of its workers, a server gives back at most ten tasks per second on average. So a backlog of one key costs
// asynq's Redis up to ten deliveries per second and worker. Beyond the limit, a task that must be given back stays in
// its worker until the limit allows it. If its deadline would come first, it is given back at once. Tasks whose key is
// in a cooldown do not count.
//
// # Last attempts
//
// asynq archives a task on its last attempt (MaxRetry(0), or retries used up) whatever the error is. So a last attempt
// waits as long as it can. If the server dies during the wait, asynq archives the task with "asynq: task lease
// expired", although the handler has not run. Give tasks with contended keys a MaxRetry of 1 or more.
//
// If the application ends the context of a last attempt that waits, for example in a middleware further out, the task
// stays in its worker. If the server then shuts down, asynq delivers the task again. A deadline that a middleware
// further out sets counts as the task's deadline.
//
// # When a server dies
//
// The keys of its tasks are free within the TTL. asynq finds the tasks after 55 to 120 s, counts a retry for each, and
// delivers each one after the retry delay. This includes tasks that were only waiting for a lease.
//
// A server that is cut off from asynq's Redis may be late to start the tasks that it has fetched. If a task's timeout
// or asynq's own lease on the task (30 s) ends before the server is back, asynq counts a retry for the task.
//
// # Schedules
//
// With asynq.Scheduler, each replica enqueues each tick. With the [Scheduler] of this package, the replicas together
// enqueue each tick at most once:
//
//	scheduler, err := ql.NewScheduler(client, "billing", time.UTC)
//	…
//	defer scheduler.Shutdown()
//	err = scheduler.Register("invoices", "0 3 * * *", asynq.NewTask("invoices", nil), asynq.MaxRetry(5))
//
// The expression is read as by cronlock.Crontab of this module. It names the instants at which the clocks of the
// Scheduler's time zone show its time, the same on all replicas, whenever they start. [Scheduler.Register] describes
// its syntax.
//
// All replicas try to enqueue a tick, and asynq accepts its id once. asynq keeps the id for at least an hour after the
// task has completed, and the middleware remembers the completion for the retention. The replica whose clock is
// furthest ahead decides when a tick is enqueued.
//
// If asynq's Redis does not answer, replicas try to enqueue a tick until the next one is due, for ten minutes at most.
// Then the log and EventTickMissed report it. A tick may also be lost if no replica runs at its time: as with asynq, it
// is not enqueued later.
//
// # Shutdown
//
// The BaseContext may be a context that ends when the process is told to stop. From then on, the server gives back the
// tasks that it gets, and the contexts of running handlers have ended.
//
// Call srv.Shutdown, then locker.Close(ctx) with a deadline. Close waits for handlers that asynq has given up on. When
// ctx ends, Close ends their leases and frees their keys; the process must exit then. If asynq's Redis does not answer,
// srv.Shutdown takes minutes: call it in a goroutine.
package queuelock
