// Package cronlock makes each tick of a gocron job run once across the replicas of a service.
//
//	scheduler, err := gocron.NewScheduler()
//	cron, err := cronlock.New(locker, scheduler, "billing")
//	job, err := cron.Add("invoices", gocron.CronJob("0 3 * * *", false), invoice, cronlock.AtLeastOnce(3))
//
// # Guarantee
//
// A tick of a job starts on one replica, and is not started again. Runs of a job do not overlap, whatever replica they are on,
// unless the job allows it. The context of a run ends before any other replica could start the job's next run. That holds for
// jobs that were added by [Cron.Add]. A job that the scheduler gets otherwise is not protected; with [Cron.Locker] it is, with
// less of a promise.
//
// # Non-guarantee
//
// Once is about starts, not effects: a replica that dies in mid-run leaves them half done, or to be begun again. Nor does a
// tick run at any price. Package [tick] says it all: what is assumed, the modes, how late ticks are caught up, names and keys.
// What follows is what gocron adds.
//
// Make the job idempotent by [Run].Tick, or have the store check its FencingToken. [NewContext] makes the context of a run, for
// a unit test of the job's function.
//
// # Policies
//
// A policy given to [New] is the default of all jobs, one given to [Cron.Add] is that of one. Options of gocron go into
// [WithGocron].
//
//	AtLeastOnce(n)           AtMostOnce        a tick whose replica died (after the TTL) or shut down in mid-run runs again
//	                                           elsewhere, with n starts at most
//	WithOverlap              Forbid            a tick that falls due while an earlier run goes on is skipped; or both run (Allow),
//	                                           or the earlier run is told to stop (Replace)
//	WithMisfireGrace         1m                how late a tick may start for the first time
//	WithRetention            1h to 24h,        how long a tick stays taken, and how long after its start an attempt may be made
//	                         by the period     good; more than the longest run
//	WithCatchUp(n)           since this        the latest n ticks that nobody started run late, within the misfire grace, also
//	                         replica has       after all replicas were down
//	                         the job
//	WithRetry(n, backoff)    0                 a function that returns an error is called again, n times, after pauses that double
//	WithElector(e)           none              only the leader runs jobs, under the same locks, and a new leader runs what was
//	                                           left; e is of leader.New in package leader, which needs no gocron
//	WithKey(key)             of its own        the key of core that keeps runs apart, as it is: the job then also excludes tasks,
//	                                           routes and calls that hold the same core.Key
//	WithRunAnyway(true)      off               without a quorum of nodes a tick runs on every replica, instead of on none
//
// # Errors
//
// AfterLockError of gocron hears why a tick does not run on a replica, as a [*TickError]. Match it with errors.Is;
// [IsExpected] reports whether it needs no attention.
//
//	core.ErrHeld, core.ErrDone, ErrNotLeader   nothing to do: it runs elsewhere, or has run
//	ErrPaused                                  nothing: somebody has called Job.Pause
//	ErrEarly                                   nothing: this replica's clock is ahead, and the tick runs when it is due by the
//	                                           nodes'
//	ErrOverlap                                 nothing, or shorten the job: an earlier run goes on
//	core.ErrUnavailable, ErrMissed             alert: the tick did not run here, for want of a quorum or of time
//	ErrClock                                   mend the clock: until then nothing runs here
//	ErrNotDue                                  call Job.RunNow, not that of gocron's job
//	core.ErrClosed, context.Canceled           nothing: this replica is shutting down
//
// # Runs
//
// A tick that a listener of gocron's (BeforeJobRunsSkipIfBeforeFuncErrors) skips is not started, and free for other replicas.
// A job that gocron does not run, because the scheduler has an elector of its own, is logged.
//
// Reruns, and runs by [Job.RunNow], are one-time jobs to gocron, with the options that the job was given, so that its
// limits, listeners and shutdown hold for them, too. A limit of concurrent jobs in the mode Reschedule drops them when
// it is reached: a rerun is tried again, and RunNow is not.
//
// # Ticks
//
// Cron expressions, daily, weekly and monthly jobs, and one-time jobs with a date name the same instants on all replicas that
// use the same time zone and schedule, so their ticks are told apart exactly.
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
// Give each scheduler and job a definition of its own: gocron's are not to be shared between schedulers.
//
// Ticks are caught up ([WithCatchUp]) once the scheduler has started: gocron does not tell its time zone before. Of daily,
// weekly and monthly jobs, those at a time that the clocks skip or show twice are not. Jobs whose ticks depend on when a
// replica was started have none to catch up: WithCatchUp changes nothing for them.
//
// # Control
//
// Job.Status tells every replica what became of the last ticks, who runs the job now, and when it runs next.
//
// Job.Pause stops the ticks of a job on all replicas until Job.Resume, and Job.Trigger has it run once for all of them.
// What falls due in a pause is not run later; runs by hand and triggers start in it, too. A replica looks for triggers every
// three seconds ([WithTriggerPoll]), which is one read to each node, and whoever has a tick reads once whether the job is
// paused. With [WithRunAnyway], a replica that cannot reach the nodes goes by what it has last heard.
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
