// Package queuelock runs the tasks of asynq (github.com/hibiken/asynq) one at a time per key, and
// completes each of them once. asynq delivers at least once: it hands a task to a second worker while the
// first handler still runs (timeout, cancellation, lost lease, shutdown), and runs a task again whose
// completion it failed to write.
//
// # Guarantee
//
//  1. At most one un-cancelled handler per key.
//  2. At most one recorded completion per task within the retention.
//  3. Effects once only with the fencing token, a transaction or idempotence.
//
// In other words: two handlers of one key overlap only after the context of the first one has ended, and
// after the grace (WithGrace) and the rest of its lease, or after the lease, if that was lost or taken away by the Close of
// its Locker (see Shutdown). A delivery of a task that is recorded as completed returns nil without running its handler. And what a handler does to the world is done once if
// the world refuses a stale fencing token, commits it together with a record of it, or knows it again by
// its identity: see [FromContext].
//
// # Non-guarantee
//
// Order: tasks of a key run in the order in which asynq delivers them while all of them have room to wait in place (see
// Waiting); whoever is given back may be overtaken. Anything about tasks that are enqueued twice under different ids, unless
// WithIdentity says that they are one. A delivery that comes after the retention (WithRetention) runs again. And what
// package core does not guarantee: a process that is paused does not notice that its lease has ended, and nodes that lose
// their memory lose records.
//
// # Use
//
//	locker, err := core.Open([]string{"redis://redis-a:6379", "redis://redis-b:6379", "redis://redis-c:6379"})
//	…
//	ql, err := queuelock.New(locker, queuelock.WithKey(queuelock.ByPayloadField("order_id")))
//	…
//	cfg := asynq.Config{Concurrency: 20}
//	if err := ql.Configure(&cfg); err != nil { … } // last, before NewServer
//	mux := asynq.NewServeMux()
//	mux.Use(ql.Middleware)
//	srv := asynq.NewServer(redis, cfg)
//
// A mux with several types gives each its own options, or makes the field optional (Optional); a task without a key is kept
// apart from nothing but other deliveries of itself:
//
//	queuelock.New(locker,
//		queuelock.ForType("order:", queuelock.WithKey(queuelock.ByPayloadField("order_id"))),
//		queuelock.ForType("report:", queuelock.WithConflict(queuelock.Skip), queuelock.WithKey(queuelock.ByHeader("tenant"))))
//
// A handler's own unit test calls it without the middleware, with a context made by [NewContext].
//
// A task costs two round trips to the lock nodes, and two more with a key (TestRequestsPerTask). docs/benchmarks/queue.md has
// what a hot key costs, and what becomes of a server that cannot reach the lock nodes: it takes few tasks from those that can.
//
// # What becomes of a delivery
//
// The middleware takes the key of the task, then the key of what it works on (WithKey), and runs the handler:
//
//	task recorded as completed   nil: asynq removes the task              EventDuplicate
//	a key is held                waits in place, or is given back, to be
//	                             delivered again about when its turn
//	                             comes: see Waiting                       EventContended
//	… with WithConflict(Skip)    nil: the task is dropped                 EventSkipped
//	locks out of reach           waits in place for about 5s, then is
//	                             given back; never run without a lease;
//	                             ErrorHandler hears of it once in 10s     EventUnavailable
//	no key can be made of it     an error in the log, and for asynq,
//	                             which counts a retry                     EventUnfit
//	handler returns nil          completion recorded, with the release,
//	or asynq.RevokeTask          before asynq hears of it
//	… but it cannot be recorded  tried for 30s or until the deadline,
//	                             then nil, and an error in the log: an
//	                             error for asynq would run it again       EventUnrecorded
//	… after its lease was lost   recorded if nobody was granted the key
//	                             since, and the nodes can tell; else an
//	                             error matching core.ErrLost, which
//	                             asynq retries                            EventRefused
//	handler fails or panics      keys released, the error goes to asynq
//	                             as it is (a lost lease is added to it)
//	handler returns Cooldown     given back for that long; nobody gets
//	                             its key before                           EventCooldown
//
// Giving back counts no retry. A task that was given back is listed by asynq among the retries, with an error that begins
// "queuelock: not run" and says which key is held, and on which nodes, if not by the same process. Middleware outside of
// this one sees it as [ErrNotRun].
//
// The handler's context is asynq's, which also ends when a lease is lost, with [core.ErrLost] as its cause.
// Leases are held until the handler returns, whatever has become of its context. They are not renewed any more if it
// has not returned a grace after that (EventAbandoned), and run out within the TTL.
//
// What an operator must know goes to the logger of the Locker (core.WithLogger): completions that could not be recorded,
// tasks archived without having run, tasks that no key can be made of, handlers that do not return, wiring that is missing,
// and, at level Info, duplicates and tasks dropped by Skip. Lines about a task have its type, queue, id, identity
// (Execution.Identity) and key (WithKey).
//
// # Waiting
//
// A task whose key is held waits in place, in the queue of core on the lock nodes, so that the key is handed on without a
// pause. It takes a worker of its server, but none that anybody else needs: while it waits, another worker is free to
// fetch the next task. If that has another key, it runs; if it has the same, one of those who wait is given back, the one
// that came last. Where workers are short, the only one that waits for its key stays, while at most a quarter of the workers
// do. A server with few workers has few to spare. A worker whose task does not come to the middleware (of this Runner)
// counts as taken for half an hour, or until the server has fetched so many more that it must be free.
//
// Who is given back comes again about when those before it will have had their turn, going by how long tasks of its type
// have taken on this server. asynq looks for such tasks at intervals, which Configure sets to a quarter of a second where
// they are not set. A key that rests (Cooldown) for more than 3 s is not waited for in place.
//
// Nobody waits for longer than WithWait, or than leaves its handler half of the task's timeout, and as much as handlers of
// its type have taken of late.
//
// # Shutdown
//
// A handler that returns nil when its context ends, as in "case <-ctx.Done(): return nil", has its task recorded as done,
// although bare asynq would run it again. Have it return ctx.Err(), or say WithNilAfterCancel(NotDone). EventNilAfterCancel
// and a line in the log tell of each.
//
// First srv.Shutdown(), then locker.Close(ctx) with a deadline: it waits for handlers that asynq has given up on. Where
// asynq's Redis does not answer, srv.Shutdown takes minutes: call it in a goroutine, and do not wait for it beyond the
// deadline. asynq waits for its ShutdownTimeout for workers, also for those that wait for a key, and then puts their
// tasks back.
//
// When that deadline comes first, Close frees the keys of the handlers that still run, whatever WithGrace says: their tasks
// run elsewhere at once, and their completions are not recorded (EventUnrecorded). So let the process end then.
//
// # Keys
//
// What WithKey returns is the key of core as it is. So a task excludes whatever else uses that key on the same nodes
// with the same prefix: a call of core's, or a route of httplock; and their fencing tokens grow from one to
// the other. ByPayloadField("order", "id") and ByHeader("tenant") make theirs by core.Key("order.id", "42") and
// core.Key("tenant", "t1"), and whoever else works on the same thing makes the same one. Completions are recorded under
// keys of this package's own, core.Key("queue", "task", queue, id), core.Key("queue", "identity", type, identity), or with
// WithSharedIdentity core.Key("queue", "identity", "", identity).
//
// # Crash windows
//
// A process that dies leaves its keys taken for up to the TTL. asynq notices after one to two minutes.
//
//	dies before the handler's effects             runs again; nothing was done
//	dies between the effects and the record       runs again: this is where promise 3 is needed
//	dies between the record and asynq's removal   delivered again, and not run
//	asynq's removal fails                         delivered again, and not run
//	asynq's Redis fails over and forgets          delivered again: waits, or is not run
//	locks out of reach at the record              as if it died before the record, if delivered again
//	too many lock nodes forget the record         as if it died before the record, if delivered again
//
// # What asynq forces
//
// On its last attempt (MaxRetry(0), or retries used up) asynq archives a task whatever the error is,
// without having run it. So there the middleware waits in place whatever else its worker is needed for, for as long as the
// task's timeout lets it and its handler the time that it needs. If the key is not free until then, asynq archives the task:
// the reason is stored with it and logged (EventArchived), and it can be run from the archive. So it is with Cooldown on a
// last attempt. Give tasks with contended keys a MaxRetry of 1 or more: waiting then costs them no retry.
//
// A task whose asynq.Deadline passes while it waits fails as in asynq. A timeout or cancellation counts a
// retry, although the first handler may yet succeed; the retry then finds it completed. A timeout on the last
// attempt archives a task whose handler may yet succeed; it is recorded then, and not run from the
// archive. Members of a group come back under a new id if asynq fails to delete the aggregated set: have the
// aggregated task carry an identity (WithIdentity), or its members be idempotent.
//
// # Reused task ids
//
// A task id that is used again, such as TaskID("report:daily"), reads as a duplicate of the first task until
// the retention is over, and is not run. Stamp such tasks, see [Stamp]; or have a Scheduler enqueue them.
//
// The first task of a type whose id is neither a UUID of asynq's making nor stamped is told of, before any is lost
// (EventUnstamped, and in the log).
//
// Applications that share lock nodes, but have a Redis of their own each for asynq, need a key prefix of
// their own each (core.WithKeyPrefix): else the task "report:daily" of one is a duplicate of the other's.
//
// # Schedules
//
// An asynq.Scheduler on every replica enqueues each tick as often as there are replicas. A [Scheduler] enqueues it once, and
// what the Scheduler enqueues, servers with the middleware process once:
//
//	scheduler, err := queuelock.NewScheduler(client, locker, "billing") // instead of asynq.NewScheduler(redis, nil)
//	…
//	_, err = scheduler.Register("0 3 * * *", asynq.NewTask("invoices", nil), asynq.MaxRetry(5))
//	…
//	err = scheduler.Run() // or Start and Shutdown
//
// A tick is an instant that the cronspec names, by the clocks of the lock nodes; so replicas whose clocks differ mean the
// same one. Its task has an id made of the service, the entry and the instant; that is its identity as well, also where
// WithIdentity says otherwise. All replicas try to enqueue it, under a key of its own, until one has recorded that it did.
//
//	replica dies before it has enqueued     another one does, once the lease has run out (TTL) and before the next
//	                                        tick is due
//	… between that and the record           likewise, and finds the task in the queue; or enqueues it again if it is
//	                                        completed and gone, and the middleware does not run it
//	no quorum of lock nodes, or no asynq    tried until the next tick is due, for 10 minutes at most; never enqueued
//	                                        without the lock. Then EventTickMissed, and an error in the log that names
//	                                        the tick, on each replica that tried
//	the nodes refuse a replica's clock      left to the others; if there are none, as above
//	all replicas are down, or asleep        not made up, as with asynq
//	the task is archived, or deleted        that was its tick: the next one is another task
//
// A tick is recorded for an hour, since nobody tries it after 10 minutes; what is later than that, by a paused process or a
// command that was long under way, meets the id of the task, or the record of its completion (WithRetention). A replica
// whose nodes have not answered yet goes by its own clock for its first tick, and may enqueue that late, but not early.
// A task of a group (asynq.Group) is enqueued once, and processed as what the group is aggregated into.
//
// # Producers
//
// Where the identity of tasks is in their payload, [Runner.Enqueue] enqueues one of each, over queues (WithIdentity), and over
// types as well (WithSharedIdentity). It returns [ErrCompleted] for as long as the completion is recorded
// (WithRetention), and [ErrEnqueued]
//
//   - for the same time from when it was enqueued, whatever has become of it: a task that was archived can be run from
//     the archive, but not enqueued anew
//   - for as long as asynq has it, archived or retained (asynq.Retention), in the queue in which it is to be enqueued;
//     when it is met there, it counts as enqueued just now
//
// So a task that waits for longer than the retention can be enqueued once more, into another queue. The middleware runs
// one of the two, unless the second is delivered when the completion of the first is forgotten. Producers that call
// asynq.Client.Enqueue are not seen; the middleware runs what they enqueue once. A producer that dies between enqueuing
// and the record leaves a task that the next one finds in its queue, or completed; if that one chooses another queue,
// there are two, of which one is run.
//
// # Coming from asynq.Unique
//
// docs/migrate.md has both side by side.
//
// Unique keeps producers from enqueueing twice; it neither keeps handlers apart nor remembers what was
// completed, and its lock ends with its TTL although the task still runs, or with the task. Keep it to save
// work; WithKey, WithIdentity and Enqueue are what it was taken for.
//
// # Coming from a Redis lock in the handler
//
// Remove it: a lock released at ctx.Done() is released while the handler still runs, one that is released
// at the end of the handler lets the redelivery run everything again, and "could not lock" as an error
// burns retries and archives the task. Move what made up its name into WithKey. Handlers may take further
// locks of core, under other keys.
package queuelock
