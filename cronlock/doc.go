// Package cronlock runs the cron jobs of a service that has several replicas. One replica at a time runs a job, and by
// default no tick of the job's schedule is started twice.
//
//	service, err := cronlock.New(locker, "billing")
//	schedule := cronlock.Crontab("0 3 * * *", time.UTC) // five fields, or six with the seconds first
//	job, err := service.Add("invoices", schedule, func(ctx context.Context) error {
//		run, _ := cronlock.FromContext(ctx)
//		return send(ctx, run.Tick, run.FencingToken) // ctx ends when this replica must stop
//	})
//	defer service.Close(ctx)
//
// Each [Service] has an engine, which decides when a tick of a job starts, and calls the job's function, directly or
// through a host (rule 6). With [WithElector], only the leader starts ticks. Package core explains nodes, quorum and
// lease.
//
// # The rules
//
//  1. A tick is an instant of the job's schedule, the same on every replica. It is due when the nodes' clocks reach it.
//  2. A tick is started at most n times; n is 1 unless [AtLeastOnce] sets it. A quorum of nodes records each start
//     before the function is called. A tick is completed when the function returns. An error completes it too, unless
//     the run's context ended before the function returned, or the error is that of a store that has refused the run's
//     fencing token (package core/fence), which counts as the loss of the lease.
//  3. A replica needs the job's lease to start a tick. With the lease, it starts the latest due tick, if that tick has
//     not been started and was not older than the grace when the poll began. All earlier ticks that have not been
//     started are then superseded: they never start. The default grace is a minute, or three TTLs if that is longer;
//     see [WithGrace].
//  4. With AtLeastOnce, a tick that was started but not completed is started again, at least a second after that start
//     was recorded, before any later tick and regardless of its age. It is given up after n starts, or when 100 later
//     ticks are due. A replica never restarts a tick that it has completed itself, even if the nodes have lost the
//     record, until the job is removed.
//  5. A run holds the job's lease, so no two runs overlap. The run's context ends with the lease. If the run began in a
//     call of [Job.RunDue] or [Job.RunNow], its context also ends with the context passed to the call. With an elector,
//     the context also ends when the leadership is lost, except in runs by hand (RunNow). A leader that resigns
//     finishes its runs first. If its Service is closed, the runs leave the term instead and go on under the leases of
//     their jobs.
//  6. The engine polls a job: it looks for a due tick in the job's records. A job can have a host: a cron library that
//     calls the job at its ticks (see Hosts). Such a call makes the engine poll, and the function runs inside the call.
//     The call does not choose the tick, so calls may come late, early, twice or never. The engine also polls without
//     being called: at each tick, after each run and each failure, and at least once a minute until the schedule has no
//     more ticks. Polls of a job do not overlap (see Requests).
//
// # Guarantee
//
// No tick is started more than n times. No two runs of a job have live contexts at the same time. Both hold under the
// assumptions of package core.
//
// Once the job's previous run is over, a due tick starts within
//
//	2 s                                    normally
//	7 s                                    if the host drops a call that it should make
//	the TTL + 2 s                          if the replica of the previous run has removed the job or closed its Service
//	the TTL + 10 s after the fault ended   if replicas, nodes or the network had a fault
//	the TTL + 70 s after the fault ended   if a majority of the nodes had wrong clocks
//
// plus the time of the requests to the nodes. The same times hold for a tick that is started again. With an elector,
// they hold while there is a leader that has not resigned. A tick never starts if no poll for it has begun when its
// grace ends, or if it has not started when the next tick is due.
//
// # Non-guarantee
//
// A function that ignores its context continues beside the next run. So does a process that is paused between looking
// at the context and acting. Make the stores that you write to reject a fencing token smaller than the largest they
// have seen.
//
// Not every tick starts: it may be superseded, or missed ([ErrMissed]) when its grace has passed. By default, a tick
// whose replica dies during the run is not started again. With AtLeastOnce, a tick may be done twice: its replica may
// die between the end of the function and the record of that end, or may reach no quorum of nodes before the job's
// lease ends. Until then the replica tries to record the end, but no longer than Close waits.
//
// Package core/fence makes an effect in your own database happen once even so. The run's context names its work
// ([core.Work]): by the service, the job and the tick, the same for each start of the tick. Each run by hand is work of
// its own. If the function returns the error that the work is done, the tick is completed without an error.
//
// # What follows from the rules
//
// If a replica dies while it has the job's lease, no replica starts the job until that lease has run out, which takes
// at most the TTL of the Locker.
//
// If a job takes longer than its period, and the grace is at least as long as the period, the job runs back to back.
// Each run is for the latest tick.
//
// A new job starts at once if its latest tick is within the grace. Older ticks of a new job do not count as missed.
//
// A replica whose clock differs from the nodes' by more than core's clock window starts nothing, and logs why.
//
// If replicas disagree about n, as during a deploy, the smallest n counts among the replicas that have started the tick
// and the replica that is about to start it. After a change of a job's schedule, an uncompleted tick is started again
// only if the new schedule has it, too.
//
// The engine recovers from the panics of runs that it began, and logs each with its stack. If a call such as RunDue
// began the run, the panic reaches the caller. Errors that a function returns are not logged; see [Past].
//
// # Every tick
//
// Superseded ticks are not queued. A job that must act for every tick can catch up in one run. [Run.Previous] is the
// last tick known to have completed without an error. The run acts for all later ticks:
//
//	run, _ := cronlock.FromContext(ctx)
//	tick := run.Tick // zero in a run by hand
//	if !run.Previous.IsZero() {
//		tick = schedule.Next(run.Previous)
//	}
//	for ; !tick.IsZero() && !tick.After(run.Tick); tick = schedule.Next(tick) { … }
//
// Previous is zero until a tick has succeeded. It is zero again if the job has started no tick for more than 100 ticks
// or more than a year. The loop then acts for run.Tick alone. A watermark that the job stores with its work is better
// still.
//
// # Hosts
//
// Package gocronlock runs the jobs of a Service on a gocron scheduler. With any other cron library, call [Job.RunDue]
// at the ticks:
//
//	id, _ := c.AddFunc("0 3 * * *", func() { logUnexpected(job.RunDue(ctx)) }) // robfig/cron; see IsExpected
//
// With [WithHost] you pass a function that asks the cron library for one more run. The engine calls it if a tick is
// late or must start again.
//
// # Requests
//
// A replica runs at most one poll of a job at a time. A poll begins when a tick is due, when a run has ended, and when
// the leadership begins. After a failure it begins after a second at the earliest, and in any case not within 50 ms of
// the last poll. So a replica polls a job at most 60 times a minute, beside the polls for ticks and after runs. A poll
// sends each node about five requests, because a replica does not request facts that it knows, and at most 120. Slow
// nodes, and an observer whose Start is slow, make polls rarer.
//
// So a job that is due every minute usually costs a node about 10 requests a minute from each replica, at most 300 if
// each poll fails, and at most 7200 in the worst case. In addition, a replica that does not know a job yet, or was
// without nodes for many ticks, reads the records of those ticks once, before it acquires the job's lease: at most 100
// ticks with two records each, in about five requests to each node. A poll lasts for at most a TTL, and the next poll
// continues its work.
//
// # Shutdown
//
// First stop the host, then call Service.Close with a deadline, then close the elector and the Locker. Service.Close
// waits for the runs of this replica, and does not end their contexts. Its elector resigns at once, so another process
// leads while Close waits. If the deadline comes first, Close returns the names of the jobs that still run. When the
// Locker is closed, the contexts of all runs end.
//
// # Records
//
// The keys of a job start with core.Key("cron", service, job). The next part of a key is one of:
//
//	run     held while the job runs
//	start   the record of a start of a tick
//	end     the record of a completed tick
//
// A tick whose end is recorded is over, even if nodes have lost its start. docs/operations.md says how long records are
// kept and how much memory they take.
package cronlock
