// Package cronlock makes each tick of a gocron job run once across the replicas of a service.
//
//	scheduler, err := gocron.NewScheduler()
//	cron, err := cronlock.New(locker, scheduler, "billing")
//	job, err := cron.Add("invoices", gocron.CronJob("0 3 * * *", false), invoice, cronlock.AtLeastOnce(3))
//
// # Guarantee
//
// A tick of a job starts on one replica, and is not started again: neither by a replica whose clock is late,
// nor after a deploy, nor when it took no time at all. Runs of a job do not overlap, whatever replica they are
// on, unless the job allows it. The context of a run ends before any other replica could start the job's next run.
// All that holds for jobs that were added by [Cron.Add], under the assumptions of package core, and as long as a
// quorum of nodes keeps the records of ticks for the retention. A job that the scheduler gets otherwise is not
// protected; with [Cron.Locker] it is, with less of a promise.
//
// # Non-guarantee
//
// Once is about starts, not effects. A replica that dies in mid-run leaves the effects half done: under
// [AtMostOnce] nobody finishes them, under [AtLeastOnce] they are begun again. For effects that count once,
// use the tick as idempotency key or the fencing token to refuse late writes ([FromContext] has both). A function
// that does not look at its context goes on when its lease is lost; nothing else can tell it. Nor does a tick run
// at any price: when no quorum of nodes answers, it fails with core.ErrUnavailable on every replica.
//
// # Modes
//
//	mode                        a tick starts      while its replica dies, or nobody leads
//	AtMostOnce (default)        at most once       lost
//	AtLeastOnce(n)              at least once,     run again by a replica that saw the tick
//	                            at most n times
//	WithElector, AtMostOnce     at most once       lost if it had started, else run by the next leader,
//	                                               within the misfire grace
//	WithElector, AtLeastOnce    as without         run by the next leader: for the first time within the
//	                                               misfire grace, again also later
//	a leader.Elector alone      once per leader    lost; and overlaps with the next leader's, if its run
//	                                               ignores its context
//	WithRunAnyway(true)         once, or on every  as its crash policy says
//	                            replica while the
//	                            nodes are away
//
// A tick is started when its function is called: before, it is recorded as an attempt. A run that was told to stop
// (a shutdown, a lost leadership or lease) and returned an error counts as one whose replica died; with nil, or an
// error of its own accord, the tick is done. A tick that a listener of gocron's
// (BeforeJobRunsSkipIfBeforeFuncErrors) skips is not started, and free for other replicas. At least once assumes that
// another replica saw the tick (its scheduler ran) and lives on, that nodes answer within the misfire grace, and that
// runs are shorter than the retention. With an elector, a leader runs what was left of the ticks that it saw itself: one
// that was dead or stopped when a tick fell due does not know of it.
//
// Reruns, and runs by [Job.RunNow], are one-time jobs to gocron, with the options that the job was given, so that its
// limits, listeners and shutdown hold for them, too. A limit of concurrent jobs in the mode Reschedule drops them when
// it is reached: a rerun is tried again, and RunNow is not.
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
// A call of gocron's is for the latest tick that is due, by this replica's clock or the nodes', whichever is ahead. So a
// job that queues behind itself (singleton mode Wait, or a scheduler-wide limit) runs the latest of the ticks that it
// missed, and a replica whose clock is behind runs what is due. When a clock is set back, what gocron's timer brings too
// early is run when it is due.
//
// [Job.RunNow] runs a job on the replica that it is called on, without a tick: under the lease of the job, and without
// record. A run by RunNow that goes on when a tick falls due is an earlier run like any other. The RunNow of gocron's own
// job ([Job.Handle]) is not told from a tick: it counts as the one that was due last, and is refused as done, or with
// [ErrNotDue] where there was none.
//
// # Control
//
// Job.Pause stops the ticks of a job on all replicas until Job.Resume, and Job.Trigger has it run once for all of them.
// What falls due in a pause is not run later; runs by hand and triggers start in it, too. A replica looks for triggers every
// three seconds ([WithTriggerPoll]), which is one read to each node, and whoever has a tick reads once whether the job is
// paused. With [WithRunAnyway], a replica that cannot reach the nodes goes by what it has last heard.
//
// # Names
//
// Give each scheduler and job a definition of its own: gocron's are not to be shared between schedulers.
//
// A job is known by its name, which must be the same on all replicas and in all releases. A Cron has one job of a name.
//
// # Keys
//
// Runs of a job are kept apart by a lease on a key of its own. [WithKey] gives it another: where a job, a task of
// queuelock, a route of httplock and a call of core.Do work on the same thing, the same key made with core.Key keeps all
// of them apart, and each later one has the greater fencing token. The keys of ticks stay the job's own.
//
// # Logs
//
// What an operator must know goes to the logger of the Locker (core.WithLogger): runs whose end could not be recorded, runs
// without protection, and jobs that gocron does not run. What becomes of each tick is told to the observer.
//
// # Coming from
//
//	from                 what changes
//	gocron-redis-lock    scheduler.NewJob becomes cron.Add, and one lock per job one per tick and one per job:
//	                     short jobs do not run once per replica any more, WithTries(1) and a fitting expiry are
//	                     not needed, Shutdown leaves no lock behind, and AfterLockError tells an outage from a tick
//	                     that another replica has. WithKeyPrefix is the service's name here. To change one line
//	                     only, give the job gocron.WithDistributedJobLocker(cron.Locker("name")); a Cron is no
//	                     locker of a whole scheduler, because it would know of no job.
//	gocron-gorm-lock     A tick is the schedule's instant, and not the wall clock's second at the time of locking;
//	                     a long run keeps the next tick from starting; the job of a dead worker is free after the
//	                     TTL. There is no table to clean: records expire.
//	gocron-etcd-elector  An Elector of package leader campaigns until Close, also after errors, and Close resigns. Prefer
//	                     a Cron with WithElector: runs end with the leadership, and ticks missed in between are caught
//	                     up.
//
// gocron keeps an entry in memory for each tick that its own elector refuses, for as long as the process lives;
// a locker does not have that fault, so WithElector does not either.
package cronlock
