// Package cronlock makes each tick of a gocron job run once across the replicas of a service.
//
//	cron, err := cronlock.New(locks, "billing")
//	s, err := gocron.NewScheduler(cron.Options()...)
//	_, err = s.NewJob(gocron.CronJob("0 2 * * *", false), cron.Task(invoices), gocron.WithName("invoices"))
//
// # Guarantee
//
// A tick of a job starts on one replica, and is not started again: neither by a replica whose clock is late,
// nor after a deploy, nor when it took no time at all. Runs of a job do not overlap, whatever replica they are
// on, unless the job allows it. A run that [Cron.Task] started has a context that ends before any other
// replica could start the job's next run. All that holds under the assumptions of package core, and as long as
// a quorum of nodes keeps the records of ticks for the retention.
//
// # Non-guarantee
//
// Once is about starts, not effects. A replica that dies in mid-run leaves the effects half done: under
// [AtMostOnce] nobody finishes them, under [AtLeastOnce] they are begun again. For effects that count once,
// use the tick as idempotency key or the fencing token to refuse late writes ([FromContext] has both). A task
// that does not look at its context goes on when its lease is lost; gocron has no other way to tell it, and a
// task made by gocron.NewTask is not told at all. Nor does a tick run at any price: when no quorum of nodes
// answers, it fails with core.ErrUnavailable on every replica.
//
// # Modes
//
//	mode                        a tick starts      while its replica dies, or nobody leads
//	AtMostOnce (default)        at most once       lost
//	AtLeastOnce(n)              at least once,     run again by a replica that saw the tick, within the
//	                            at most n times    misfire grace
//	WithElector, AtMostOnce     at most once       lost if it had started, else run by the next leader,
//	                                               within the misfire grace
//	WithElector, AtLeastOnce    as without         run again by the next leader, within the misfire grace
//	an Elector alone            once per leader    lost; and overlaps with the next leader's, if its run
//	                                               ignores its context
//	WithRunAnyway(true)         once, or on every  as its crash policy says
//	                            replica while the
//	                            nodes are away
//
// A run by [Cron.Task] that was told to stop (a shutdown, a lost leadership) and returned an error counts as one
// whose replica died; with nil, or an error of its own accord, the tick is done. At least once assumes that
// another replica saw the tick (its scheduler ran) and lives on, and that nodes answer within the misfire grace.
//
// # Ticks
//
// A tick is an instant that the job's schedule names. Cron expressions, daily, weekly and monthly jobs, and
// one-time jobs with a date name the same instants on all replicas that use the same time zone and schedule, so
// their ticks are told apart exactly, however far the replicas' clocks are apart, up to the clock limit. A
// replica whose clock is ahead runs ticks early by as much.
//
// Other jobs have ticks that depend on when a replica was started: durations, "@every", every n-th day, week or
// month, and what runs immediately at the start. For these the nodes keep a minimum gap between two starts: the
// duration (the lesser one, if it is random) less a tenth, at most a second; for every n-th day n days less half
// of one, for each time of the day that the schedule names (and each day of the week or month); for an immediate
// start the misfire grace. Give such jobs a cron expression where you can. gocron does not tell whether an
// interval counts from completion, so the gap counts from the start.
//
// RunNow runs a job on the replica that it is called on, without a tick: under the lease of the job, and without
// record. So short before a tick that the tick could already be meant (a tenth of the period, at most a minute)
// it counts as the tick. A run by RunNow that goes on when a tick falls due is an earlier run like any other.
//
// A job that queues behind itself (singleton mode Wait, or a scheduler-wide limit) comes too late for the ticks
// it missed: of those, only the latest is run.
//
// # Names
//
// Give each scheduler and job a definition of its own: gocron's are not to be shared between schedulers.
//
// A job is known by its name: give it one with gocron.WithName, the same on all replicas and in all releases. A
// name made up by the compiler, as that of a closure, is refused, and so are two jobs of one name in a process.
//
// # Keys
//
// Runs of a job are kept apart by a lease on a key of its own. [WithKey] gives it another: where a job, a task of
// queuelock, a route of httplock and a call of core.Do work on the same thing, the same key made with core.Key keeps all
// of them apart, and each later one has the greater fencing token. The keys of ticks stay the job's own.
//
// # Coming from
//
//	from                 what changes
//	gocron-redis-lock    One lock per job becomes one per tick and one per job: short jobs do not run once per
//	                     replica any more, WithTries(1) and a fitting expiry are not needed, Shutdown leaves no
//	                     lock behind, and AfterLockError tells an outage from a tick that another replica has.
//	                     WithKeyPrefix is the service's name here.
//	gocron-gorm-lock     A tick is the schedule's instant, and not the wall clock's second at the time of locking;
//	                     a long run keeps the next tick from starting; the job of a dead worker is free after the
//	                     TTL. There is no table to clean: records expire.
//	gocron-etcd-elector  NewElector campaigns until Close, also after errors, and Close resigns. Prefer a Cron
//	                     with WithElector: runs end with the leadership, and ticks missed in between are caught up.
//
// gocron keeps an entry in memory for each tick that its own elector refuses, for as long as the process lives;
// a locker does not have that fault, so WithElector does not either.
package cronlock
